"""How often each part of a model runs in one run of it, by a profile. PURE.

ONNX has no Switch, Enter or NextIteration. An ``If`` is the condition. A loop is entered once for each run of
its node; every further run of its body is a next iteration. Zero runs of a part mean *unknown*: fused nodes
are not seen, and what never ran in a profile may run tomorrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opatlas.graph.linked import BodyPath, NodePath, unique_name
from opatlas.graph.profile import InvalidProfile, ModelProfile
from opatlas.graph.typed_nodes import TypedNodes


@dataclass(frozen=True)
class ControlFlow:
    """A branch or loop; ``bodies``: the nodes of each, in order, without those of inner bodies."""

    at: NodePath
    op_type: str
    bodies: tuple[tuple[NodePath, ...], ...]

    @property
    def triple(self) -> tuple[str, str, str]:
        """For an If: the unique names of the condition, of the true branch's first operator, and of the false
        one's; empty for a branch without operators."""
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
    """How often a body ran: as often as its first operator, or the first counted one if that was fused. 0:
    unknown."""
    return next((count for at in body if (count := profile.of(at).count)), 0)


def branch_probabilities(profile: ModelProfile, branch: ControlFlow) -> tuple[float | None, float | None]:
    """Runs of each branch ÷ runs of the If; None if either is zero. Raises :class:`InvalidProfile` if a
    branch ran more often than its If."""
    runs = profile.of(branch.at).count
    then, other = (body_runs(profile, body) for body in branch.bodies)
    if runs and then + other > runs:
        name = unique_name(branch.at)
        raise InvalidProfile(f"The branches of node {name} ran {then} and {other} times, itself {runs}.")
    return _share(then, runs), _share(other, runs)


def iterations(profile: ModelProfile, loop: ControlFlow) -> float | None:
    """Of each entry into a loop: (next + enter) ÷ enter; None if it was not seen."""
    enter = profile.of(loop.at).count
    following = body_runs(profile, loop.bodies[0]) - enter
    return _share(following + enter, enter)


def expected_counts(flow: Iterable[ControlFlow], profile: ModelProfile | None) -> dict[BodyPath, float]:
    """How often each body runs in one run of the model, which runs once; nested ones multiply. Without a
    profile, or if it does not know a body, that runs once for each run of its node."""
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
    """An unknown branch takes what the other leaves, and at least one of the seen runs: it may be that rare,
    but never counts as free."""
    if own is not None:
        return own
    return 1.0 if other is None else max(1.0 - other, 1 / runs)


def _share(part: int, whole: int) -> float | None:
    return part / whole if part and whole else None
