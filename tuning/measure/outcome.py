"""What came of a candidate: data, failures included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from opatlas.evidence import CHECKS, Evidence, Ratios, figures_of


class Status(StrEnum):
    OK = "ok"
    UNSUPPORTED = "unsupported"  # the route cannot express the operator
    BUILD_FAILED = "build_failed"
    LOAD_FAILED = "load_failed"
    CRASHED = "crashed"  # a signal, or an exit nobody asked for
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    WRONG_RESULT = "wrong_result"
    NOT_FINITE = "not_finite"  # NaN or infinity where the reference has none, or the other way round
    WROTE_INPUT = "wrote_input"
    SLOWER = "slower"  # three times slower than the default after three samples: stopped
    CHEATED = "cheated"  # faster than the roofline allows, work after the answer, stale outputs
    NOISY = "noisy"  # the host never became quiet enough to measure


COPIES = ("upload_us", "download_us")
"""Facts of who ran on a device: what bringing its inputs and fetching its outputs took, which no run
contains."""


@dataclass(frozen=True)
class Outcome:
    """Status, and as much evidence as there is for it."""

    status: Status
    detail: str = ""
    timing: Evidence | None = None
    max_error: float | None = None
    tolerance: float | None = None
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    peak_bytes: int | None = None
    build_s: float | None = None
    tier: str = ""  # sandbox tier: "T2", "T1", "T0"
    log_tail: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def evidence(self) -> Evidence:
        """Of one that was timed: its times, and all else that is published with them."""
        assert self.timing is not None
        return replace(self.timing, **figures_of(self, CHECKS))

    @property
    def said(self) -> str:
        """Status and detail as the end of a sentence."""
        detail = self.detail.strip().rstrip(".")
        return str(self.status).replace("_", " ") + (f" ({detail})" if detail else "")

    @property
    def ok(self) -> bool:
        return self.status is Status.OK

    @property
    def of_device(self) -> dict[str, Any]:
        """What is kept of the device that it ran on: what that said of itself, the copies, and what a run
        took by its own clock."""
        copies = {name: round(us, 1) for name in COPIES if (us := self.facts.get(name)) is not None}
        return {**self.facts.get("device", {}), **copies, **self.facts.get("by_the_device", {})}

    @property
    def ratio(self) -> float:
        """Default ÷ candidate; 0 where it was not timed."""
        return self.timing.ratio_to_default if self.timing else 0.0


DEFAULT = -1
"""The default's number among the pairs of a line-up."""


@dataclass(frozen=True)
class Matter:
    """From which difference on (a share of the time) it is worth telling the first two apart by further
    sittings, and the seconds that the whole may take then."""

    least_gap: float = float("inf")
    seconds: float = 0.0


NO_MATTER = Matter()
"""As many sittings as were asked for."""


@dataclass(frozen=True)
class LineUp:
    """What came of it: an outcome for each artifact, in order, its evidence pooled over the sittings.

    ``pairs`` has, of two that were timed in the same sittings (``DEFAULT`` among them), the time of the first
    ÷ the time of the second (above 1: the second is faster). ``default`` is the default's own evidence, at a
    ratio of 1.
    """

    outcomes: tuple[Outcome, ...]
    pairs: Mapping[tuple[int, int], Ratios] = field(default_factory=dict)
    sittings: int = 0
    spent_s: float = 0.0
    default: Evidence | None = None

    def pairs_with(self, default: int) -> dict[tuple[int, int], Ratios]:
        """The pairs, with this number for the default."""
        return {
            (default if one == DEFAULT else one, default if other == DEFAULT else other): ratios
            for (one, other), ratios in self.pairs.items()
        }

    def order(self) -> list[int]:
        """Who has times, the fastest first."""
        timed = [number for number, outcome in enumerate(self.outcomes) if outcome.timing is not None]
        return sorted(timed, key=lambda number: -self.outcomes[number].ratio)
