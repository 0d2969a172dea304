"""How often each part of a model runs in one run of it, by a profile. PURE.

ONNX has no Switch, Enter or NextIteration. An ``If`` is the condition; a loop is entered once for each run of
its node, and every further run of its body is a next iteration. Zero runs of a part are *unknown*: what was
fused away was not seen, and what never ran in a profile may run tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opatlas.graph.linked import BodyPath, NodePath, unique_name
from opatlas.graph.profile import InvalidProfile, ModelProfile
from opatlas.graph.typed_nodes import TypedNodes


@dataclass(frozen=True)
class ControlFlow:
    """A branch or loop; ``bodies``: the nodes of each, in order, those of bodies within left out."""

    at: NodePath
    op_type: str
    bodies: tuple[tuple[NodePath, ...], ...]

    @property
    def triple(self) -> tuple[str, str, str]:
        """Of an If: the condition, the first operator of its true branch, and the first of its false one, by
        their unique names; empty for a branch without operators."""
        then, other = (unique_name(body[0]) if body else "" for body in self.bodies)
        return unique_name(self.at), then, other


def control_flow(model: TypedNodes, body: BodyPath = ()) -> list[ControlFlow]:
    """A model's branches and loops that can be taken apart, outer ones before those in them."""
    found = []
    for number, bodies in sorted(model.bodies.items()):
        at = (*body, number)
        inner = tuple(
            tuple((*at, which, one) for one in range(len(part.graph.nodes)))
            for which, part in enumerate(bodies)
        )
        found.append(ControlFlow(at, model.types[number], inner))
        for which, part in enumerate(bodies):
            found += control_flow(part.graph, (*at, which))
    return found


def body_runs(profile: ModelProfile, body: Sequence[NodePath]) -> int:
    """How often a body ran: as often as its first operator, or, where that was fused into another one, as the
    first that was counted. 0: unknown."""
    return next((count for at in body if (count := profile.of(at).count)), 0)


def branch_probabilities(profile: ModelProfile, branch: ControlFlow) -> tuple[float | None, float | None]:
    """Runs of each branch ÷ runs of the If; None where either is zero. Raises :class:`InvalidProfile` where a
    branch ran more often than its If."""
    runs = profile.of(branch.at).count
    then, other = (body_runs(profile, body) for body in branch.bodies)
    if runs and then + other > runs:
        name = unique_name(branch.at)
        raise InvalidProfile(f"The branches of node {name} ran {then} and {other} times, itself {runs}.")
    return _share(then, runs), _share(other, runs)


def iterations(profile: ModelProfile, loop: ControlFlow) -> float | None:
    """Of each entry into a loop: (next + enter) ÷ enter; None where nothing of it was seen."""
    enter = profile.of(loop.at).count
    following = body_runs(profile, loop.bodies[0]) - enter
    return _share(following + enter, enter)


def expected_counts(flow: Iterable[ControlFlow], profile: ModelProfile | None) -> dict[BodyPath, float]:
    """How often each body runs in one run of the model; the model itself runs once. Nested ones multiply.

    Without a profile every body runs once for each run of its node, and so does what the profile knows
    nothing of.
    """
    counts: dict[BodyPath, float] = {(): 1.0}
    for one in flow:
        outer = counts[one.at[:-1]]
        factors = _factors(one, profile) if profile is not None else [1.0] * len(one.bodies)
        counts |= {(*one.at, which): outer * factor for which, factor in enumerate(factors)}
    return counts


def _factors(one: ControlFlow, profile: ModelProfile) -> list[float]:
    if one.op_type != "If":
        return [iterations(profile, one) or 1.0]
    then, other = branch_probabilities(profile, one)
    runs = profile.of(one.at).count
    return [_of_branch(then, other, runs), _of_branch(other, then, runs)]


def _of_branch(own: float | None, other: float | None, runs: int) -> float:
    """Of an unknown branch what the other leaves, and at least one run of those that were seen: so rarely
    may it run that it did not, and it is never taken for one that costs nothing."""
    if own is not None:
        return own
    return 1.0 if other is None else max(1.0 - other, 1 / runs)


def _share(part: int, whole: int) -> float | None:
    return part / whole if part and whole else None
