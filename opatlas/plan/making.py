"""Makes plans from what is known of a model's nodes. PURE.

A region consists of the nodes between two kernels in the order of execution, so steps never wait in a circle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.linked import Linked, NodeAt
from opatlas.plan.plan import Alternative, ByBodies, ByFramework, ByKernel, ModelPlan, PlanStep

DEFAULT = ByFramework("onnxruntime")


class PlannedGraph(Protocol):
    """The graph that a plan is made for: a model, or its structure without weights."""

    @property
    def key(self) -> str: ...

    @property
    def nodes(self) -> Sequence[Linked]: ...

    @property
    def outputs(self) -> Sequence[int]: ...

    @property
    def nhwc(self) -> ChannelsLast: ...

    def can_begin_at(self, number: int, /) -> bool: ...


@dataclass(frozen=True)
class NodeChoice:
    """An implementation for one node: its time, and the alternatives. ``fused``: the nodes that it computes
    together, in order. Only the last one's outputs are read outside, and the choice has its number."""

    by: ByKernel
    median_us: float
    over: tuple[Alternative, ...] = ()
    fused: tuple[int, ...] = ()


def whole(graph: PlannedGraph, target: str, setting: str) -> ModelPlan:
    """The plan that leaves everything to the default framework."""
    nodes = tuple(range(len(graph.nodes)))
    made = frozenset().union(*(node.makes for node in graph.nodes))
    outputs = tuple(dict.fromkeys(number for number in graph.outputs if number in made))
    step = PlanStep(nodes, outputs, DEFAULT)
    return ModelPlan(graph.key, target, setting, (step,), graph.nhwc)


def with_kernels(
    graph: PlannedGraph,
    chosen: Mapping[int, NodeChoice] | Mapping[NodeAt, NodeChoice],
    target: str,
    setting: str,
    default_us: Mapping[int, float] | Mapping[NodeAt, float] | None = None,
    streams: Mapping[int, int] | None = None,
) -> ModelPlan:
    """A plan with the chosen kernels, and the default for the rest; nodes that no output needs are left out.
    A branch or loop with chosen nodes in its bodies runs by itself. A kernel that would cut a value of
    unknown type is left out. ``default_us``: the default's time for each node in place, for predicting
    regions (of a loop, all of it). ``streams``: the stream of each needed node (default: one). If streams
    would cut a value of unknown type, all nodes run in one."""
    known_us = dict[NodeAt, float]((default_us or {}).items())
    steps = _steps(graph, dict(chosen.items()), target, setting, known_us, streams or {})
    in_one = len({step.stream for step in steps}) <= 1
    if in_one and all(isinstance(step.by, ByFramework) for step in steps):
        return whole(graph, target, setting)
    if default_us is None:
        steps = [replace(one, predicted_us=None) if _is_region(one) else one for one in steps]
    return ModelPlan(graph.key, target, setting, tuple(steps), graph.nhwc)


def kernels_in(plan: ModelPlan) -> dict[int, NodeChoice]:
    """A plan's kernels in the form that :func:`with_kernels` takes; without those in bodies."""
    return {
        step.nodes[-1]: NodeChoice(
            step.by, step.predicted_us or 0.0, step.over, step.nodes if len(step.nodes) > 1 else ()
        )
        for step in plan.steps
        if isinstance(step.by, ByKernel)
    }


def _steps(
    graph: PlannedGraph,
    chosen: Mapping[NodeAt, NodeChoice],
    target: str,
    setting: str,
    default_us: Mapping[NodeAt, float],
    streams: Mapping[int, int],
) -> list[PlanStep]:
    needed = needed_nodes(graph)
    alone: dict[int, PlanStep] = {}
    for number in needed:
        outputs = tuple(value for value in graph.nodes[number].outputs if value >= 0)
        if (one := chosen.get(number)) is not None:
            alone[number] = PlanStep(one.fused or (number,), outputs, one.by, one.median_us, one.over)
            continue
        plans = tuple(
            ModelPlan(
                body.graph.key,
                target,
                setting,
                tuple(
                    _steps(
                        body.graph,
                        _within(chosen, number, which),
                        target,
                        setting,
                        _within(default_us, number, which),
                        {},
                    )
                ),
            )
            for which, body in enumerate(graph.nodes[number].bodies)
        )
        if any(plan.kernels for plan in plans):
            alone[number] = PlanStep((number,), outputs, ByBodies(plans), default_us.get(number))
    while True:
        groups = _groups(graph, needed, alone, streams)
        across = _uncuttable(graph, groups)
        if across is None:
            break
        if streams:
            streams = {}
            continue
        alone = {number: one for number, one in alone.items() if not _touches(one, across)}
    # A region's own values are no others': only what crosses groups, or leaves the model, is kept.
    read = [frozenset().union(*(graph.nodes[number].reads for number in group)) for group in groups]
    makes = [frozenset().union(*(graph.nodes[number].makes for number in group)) for group in groups]
    kept = frozenset(graph.outputs).union(*(used - made for used, made in zip(read, makes, strict=True)))
    steps = [alone.get(group[-1]) or _region(graph, group, kept, default_us) for group in groups]
    return [
        replace(step, stream=streams.get(group[-1], 0)) for step, group in zip(steps, groups, strict=True)
    ]


T = TypeVar("T")


def _within(by_node: Mapping[NodeAt, T], number: int, which: int) -> dict[NodeAt, T]:
    """The entries for nodes of one body, by where they are in it."""
    found: dict[NodeAt, T] = {}
    for at, one in by_node.items():
        if isinstance(at, tuple) and at[:2] == (number, which):
            found[at[2] if len(at) == 3 else at[2:]] = one
    return found


def needed_nodes(graph: PlannedGraph) -> list[int]:
    """The nodes that the outputs need, in order."""
    wanted, found = set(graph.outputs), list[int]()
    for number in reversed(range(len(graph.nodes))):
        node = graph.nodes[number]
        if node.makes & wanted:
            wanted |= node.reads
            found.append(number)
    return found[::-1]


def _groups(
    graph: PlannedGraph, needed: Collection[int], alone: Mapping[int, PlanStep], streams: Mapping[int, int]
) -> list[list[int]]:
    """Nodes by step, in an order in which they can run. A step of its own stands at the place of its last
    node; the others are grouped between them, stream by stream. A node whose value another stream reads ends
    a group, and a node that reads one begins a group: so no step waits for more than it needs, and no two
    groups for each other."""
    within = {inner for step in alone.values() for inner in step.nodes[:-1]}
    places = {
        number: alone[number].nodes if number in alone else (number,)
        for number in needed
        if number not in within
    }
    makes = {last: _union(graph.nodes[one].makes for one in nodes) for last, nodes in places.items()}
    reads = {
        last: _union(graph.nodes[one].reads for one in nodes) - makes[last] for last, nodes in places.items()
    }
    made_in = {value: streams.get(number, 0) for number, made in makes.items() for value in made}
    groups: list[list[int]] = []
    open_in: dict[int, list[int]] = {}  # groups that may grow, by stream
    foreign = {  # what each reads of other streams
        number: {one for one in read if made_in.get(one, streams.get(number, 0)) != streams.get(number, 0)}
        for number, read in reads.items()
    }
    handed_on = _union(foreign.values())
    for number, nodes in places.items():
        stream = streams.get(number, 0)
        if foreign[number] or number in alone or stream not in open_in:
            groups.append([])
            open_in[stream] = groups[-1]
        open_in[stream].extend(nodes)
        if number in alone or not handed_on.isdisjoint(makes[number]):
            del open_in[stream]
    return groups


def _union(sets: Iterable[Collection[int]]) -> frozenset[int]:
    return frozenset().union(*sets)


def _touches(step: PlanStep, across: tuple[int, int]) -> bool:
    """Whether a group has a node between these two."""
    return any(across[0] <= number <= across[1] for number in step.nodes)


def _uncuttable(graph: PlannedGraph, groups: list[list[int]]) -> tuple[int, int] | None:
    """Nodes between which a value of unknown type goes from one step to another, if any."""
    maker = {value: number for group in groups for number in group for value in graph.nodes[number].makes}
    group_of = {number: index for index, group in enumerate(groups) for number in group}
    for group in groups:
        for number in group:
            for value in graph.nodes[number].reads:
                made = maker.get(value)
                if made is None or group_of[made] == group_of[number] or graph.can_begin_at(value):
                    continue
                return made, number
    return None


def _region(
    graph: PlannedGraph, group: list[int], needed: frozenset[int], default_us: Mapping[NodeAt, float]
) -> PlanStep:
    """``needed``: values that other groups or the model's outputs need."""
    made = [value for number in group for value in graph.nodes[number].outputs if value >= 0]
    predicted = sum(default_us.get(number, 0.0) for number in group)
    return PlanStep(tuple(group), tuple(one for one in made if one in needed), DEFAULT, predicted)


def _is_region(step: PlanStep) -> bool:
    return isinstance(step.by, ByFramework)
