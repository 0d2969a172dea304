"""A graph's target subgraphs, each with one input and one output operator, as requirement G2 has them. PURE.

The source is a patent application (``docs/plans.md``); its claims are cited by number, cases by what it calls
them. What it leaves open is decided here and said there: what an input and an output operator are, what
becomes of operators that several walks reach, that nothing waits in a circle, and branches and loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.graph.normal import ModelGraph
from opatlas.identity.operator import Operator
from tuning.graph.fusion.device import ExecutionDevice, LibraryRules

CONTROL_FLOW = "a branch or loop is never fused with others"
NO_OPERATOR = "no canonical operator expresses it"
PRUNED = "pruned: no others have one input and one output operator together with it"


@dataclass(frozen=True)
class FusionPartition:
    """``originals``: the *original subgraphs*, which the device can run (claim 2). ``targets``: the *target
    subgraphs* of at least two nodes, as node numbers in order (claim 3). ``unfused``: every other node with
    its reason; so each node is in exactly one of the two."""

    originals: tuple[tuple[int, ...], ...]
    targets: tuple[tuple[int, ...], ...]
    unfused: Mapping[int, str]


def partition(
    flow: DataFlow,
    operators: Sequence[Operator | None],
    device: ExecutionDevice,
    library: LibraryRules,
) -> FusionPartition:
    """Both divisions of a graph (claim 1): by the device that can run each node, then by the library's rules.

    ``operators`` by node, None where a node is none. Raises
    :class:`tuning.graph.fusion.device.RulesContradict` for a library of another kind of device; where it has
    an operator that the device has not, the device's word counts for that node.
    """
    library.check_for(device)
    unfused = dict[int, str]()
    for node, operator in enumerate(operators):
        if reason := _first_division(node, operator, flow, device, library):
            unfused[node] = reason
    originals = flow.components([node for node in range(len(operators)) if node not in unfused])
    targets = list[frozenset[int]]()
    for original in originals:
        dropped = {
            node: reason
            for node in original
            if (operator := operators[node]) is not None and (reason := library.refusal(operator))
        }
        unfused |= dropped
        for remaining in flow.components(original - dropped.keys()):
            targets += pruned(flow, remaining)
    alone = (node for target in targets if len(target) == 1 for node in target)
    unfused |= dict.fromkeys(alone, PRUNED)
    return FusionPartition(
        tuple(tuple(sorted(one)) for one in originals),
        tuple(sorted(tuple(sorted(one)) for one in targets if len(one) > 1)),
        dict(sorted(unfused.items())),
    )


def partitions(
    graph: ModelGraph, device: ExecutionDevice, library: LibraryRules
) -> dict[tuple[int, ...], FusionPartition]:
    """Of a model, under ``()``, and of each body of its branches and loops, which is a graph of its own:
    under the body's node and number, and so on inwards."""
    placed = map(graph.operator, range(len(graph.nodes)))
    operators = [found[0].operator if found else None for found in placed]
    every: dict[tuple[int, ...], FusionPartition] = {}
    every[()] = partition(DataFlow.of_graph(graph), operators, device, library)
    for number, node in enumerate(graph.nodes):
        for which, body in enumerate(node.bodies):
            for where, one in partitions(body.graph, device, library).items():
                every[number, which, *where] = one
    return every


def pruned(flow: DataFlow, remaining: frozenset[int]) -> list[frozenset[int]]:
    """What remains of an original subgraph, pruned until every part has one input and one output operator
    (claims 4 to 6, and the last case of the summary).

    Each round divides a part that has not: a walk from one of several input (output) operators ends at all
    others, so two of them are never in one part afterwards, and every operator is reached by some walk. So it
    ends after fewer rounds than there are operators, and loses none. No walk divides a target subgraph, so
    these are the largest that there are (docs/plans.md has the proof).
    """
    waiting, targets = [remaining], list[frozenset[int]]()
    while waiting:
        part = waiting.pop()
        inputs, outputs = flow.inputs_of(part), flow.outputs_of(part)
        if len(inputs) == 1 and len(outputs) == 1:
            targets.append(part)
        elif len(inputs) > 1:  # many and one (claim 6); many and many: forward comes first (the summary)
            waiting += walked_forward(flow, part, inputs)
        else:  # one and many (claim 5)
            waiting += walked_backward(flow, part, outputs)
    return sorted(targets, key=min)


def walked_forward(flow: DataFlow, part: frozenset[int], inputs: Iterable[int]) -> list[frozenset[int]]:
    """From each input operator along the edges until another is met (claim 6). What is met begins its own
    part; what several walks reach belongs to no one of them, so those that the same walks reach are parts of
    their own."""
    return _by_walks(sorted(part), inputs, flow.before)


def walked_backward(flow: DataFlow, part: frozenset[int], outputs: Iterable[int]) -> list[frozenset[int]]:
    """The same from each output operator against the edges (claim 5)."""
    return _by_walks(sorted(part, reverse=True), outputs, flow.after)


def _by_walks(
    order: Sequence[int], starts: Iterable[int], nearer: Sequence[frozenset[int]]
) -> list[frozenset[int]]:
    """The nodes by which walks reach them. ``order`` is the walks' own; ``nearer``: of each node those from
    which a walk comes to it. A set of walks is a number with a bit for each."""
    bits = {start: 1 << at for at, start in enumerate(starts)}
    reached, groups = dict[int, int](), dict[int, list[int]]()
    for node in order:
        walks = bits.get(node, 0)
        if not walks:
            for one in nearer[node]:
                walks |= reached.get(one, 0)
        reached[node] = walks
        groups.setdefault(walks, []).append(node)
    return [frozenset(group) for group in groups.values()]


def _first_division(
    node: int,
    operator: Operator | None,
    flow: DataFlow,
    device: ExecutionDevice,
    library: LibraryRules,
) -> str:
    """Why a node is not for the device; empty if it is."""
    if node in flow.control:
        return CONTROL_FLOW
    if operator is None:
        return NO_OPERATOR
    reason = device.refusal(operator)
    if reason and not library.refusal(operator):
        return f"{reason}, though {library.name} says that it has it: the device's word counts"
    return reason
