"""What a version's evaluations come to. PURE: rows in, a state and one sentence out.

Only a version whose every evaluation ended ``ok`` or ``slower``, one at least ``ok``, awaits approval. The
database asks for the same before it lets one be approved (migration ``evidence_guards``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tuning.measure.outcome import Status

VerdictState = Literal["awaiting", "failed", "noisy"]

FOR = (Status.OK, Status.SLOWER)
"""Checked and found right: together with an ``ok``, people decide whether it is worth having."""
SAYS_NOTHING = (Status.UNSUPPORTED, "died", "")
"""The harness could not try it: nothing is known of the kernel."""
APPROVABLE = (*FOR, Status.UNSUPPORTED)
"""How the evaluations of an approved version ended: on what cannot be tried, nothing is known."""
UNTIMED = (Status.NOISY, *SAYS_NOTHING)
"""What may be tried again: nothing was found against the kernel."""


class Tested(Protocol):
    """An evaluation or one of its tries."""

    @property
    def status(self) -> str: ...

    @property
    def detail(self) -> str: ...

    @property
    def ratio_to_default(self) -> float | None: ...

    @property
    def operator(self) -> object: ...


@dataclass(frozen=True)
class Verdict:
    """The state, and the sentence that people read beside it."""

    state: VerdictState
    reason: str


def is_against(status: str) -> bool:
    """Whether it says that the kernel is not fit to be served."""
    return status not in (*FOR, *UNTIMED)


def against(tried: Iterable[Tested]) -> list[Tested]:
    """Those that say that the kernel is not fit to be served."""
    return [one for one in tried if is_against(one.status)]


def decide(evaluations: Sequence[Tested], given_up: Iterable[Tested] = ()) -> Verdict:
    """Of evaluations that have all ended; ``given_up`` are those of them whose worker died each time."""
    if wrong := against(evaluations):
        return Verdict("failed", _sentence(wrong[0]))
    if dead := list(given_up):
        return Verdict("failed", f"given up on {dead[0].operator}: {dead[0].detail}")
    noisy = [one for one in evaluations if one.status == Status.NOISY]
    right = [one for one in evaluations if one.status in FOR]
    if noisy:
        return Verdict("noisy", _noise(noisy, right))
    if any(one.status == Status.OK for one in right):
        return Verdict("awaiting", _praise(right))
    if right:
        return Verdict("failed", f"right, and much slower than the default on {_count(right)}")
    return Verdict("failed", _sentence(evaluations[0]) if evaluations else "it was tried on no operator")


def _sentence(one: Tested) -> str:
    return f"{one.status or 'given up'} on {one.operator}: {one.detail}"


def _noise(noisy: Sequence[Tested], right: Sequence[Tested]) -> str:
    beside = f"; right on {_count(right)}" if right else ""
    return (
        f"the machine was too noisy to time it on {noisy[0].operator}{beside}. "
        "Without times nobody can approve it: ask for another evaluation."
    )


def _praise(right: Sequence[Tested]) -> str:
    ratios = [one.ratio_to_default for one in right if one.ratio_to_default]
    said = f"right on {_count(right)}"
    return f"{said}, {min(ratios):.2f} to {max(ratios):.2f}× the default" if ratios else said


def _count(rows: Sequence[Tested]) -> str:
    return f"{len(rows)} operator{'s' if len(rows) > 1 else ''}"
