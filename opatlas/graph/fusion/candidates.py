"""Which nodes of a graph may be worth fusing: by patterns, and by search within bounds. PURE.

Every candidate has one output operator, the last of its nodes: whatever the others make is read inside. It
may have several input operators (a residual sum has two), which goes beyond the source's target subgraphs.

With one output operator a candidate never waits for itself: a path that leaves it leaves from its last node,
and comes back to none that runs before. For the same reason several of them that share no node can run in
the order of their last nodes, so that any choice among them is a plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opatlas.errors import InvalidOperator
from opatlas.graph.fused import PlacedOperator, fused
from opatlas.graph.fusion.dataflow import DataFlow
from opatlas.identity.bounds import MAX_NODES
from opatlas.identity.operator_types import types_with

MOST_TAIL = 8
"""Nodes of an elementwise tail: each further one saves less, and is in the search too."""
MOST_SEARCHED_NODES = 5
"""Of a candidate that is searched for; patterns have as many as they have."""
MOST_OF_ONE = 24
"""Candidates that the search proposes for one output operator, small ones first."""
MOST_CANDIDATES = 4096
"""Of a model."""
MOST_MADE = 16_384
"""Nodes of all fused operators that differ and are made for one model, its bodies included, at about a
millisecond each."""

POINTWISE = types_with("pointwise")
REDUCTIONS = types_with(family="reduction") | types_with(family="pooling")
MOVEMENT = types_with(family="movement") | {"Cast", "Expand", "Gather", "Identity"}
PRODUCTS = frozenset({"Einsum", "Gemm", "MatMul"})
TAIL = POINTWISE | {"BatchNormalization"}
"""What follows a producer element by element; a batch normalisation at inference does so by channel."""


@dataclass(frozen=True)
class FusionProposal:
    """Nodes in order, the output operator last; ``by``: the pattern that proposes them, or ``search``."""

    nodes: tuple[int, ...]
    by: str


@dataclass(frozen=True)
class FusionCandidate:
    """A proposal as an operator."""

    nodes: tuple[int, ...]
    by: str
    placed: PlacedOperator


@dataclass(frozen=True)
class Proposals:
    """In the order in which they were found, each set of nodes once; ``complete``: no bound cut them off."""

    found: tuple[FusionProposal, ...]
    complete: bool


@dataclass(frozen=True)
class TypedFlow:
    """A graph with its nodes' ONNX types, and those that may be in a fused operator at all."""

    flow: DataFlow
    types: Sequence[str]
    eligible: frozenset[int]

    def of(self, types: Collection[str]) -> frozenset[int]:
        """Eligible nodes of these types."""
        return frozenset(node for node in self.eligible if self.types[node] in types)


def proposals(
    typed: TypedFlow,
    targets: Iterable[Sequence[int]] = (),
    *,
    most: int = MOST_CANDIDATES,
    most_nodes: int = MOST_SEARCHED_NODES,
    most_of_one: int = MOST_OF_ONE,
) -> Proposals:
    """The target subgraphs, what the patterns find, and what the search does; the same for the same graph."""
    found, complete = dict[tuple[int, ...], str](), True
    for name, nodes in _every(typed, targets):
        if len(nodes) > 1:
            found.setdefault(tuple(sorted(nodes)), name)
        if len(found) > most:
            break
    for output in sorted(typed.eligible):
        if len(found) > most:
            break
        searched, all_of_them = ending_at(typed, output, most_nodes, most_of_one)
        complete = complete and all_of_them
        for one in searched:
            found.setdefault(one, "search")
    kept = [FusionProposal(nodes, by) for nodes, by in found.items()][:most]
    return Proposals(tuple(kept), complete and len(kept) == len(found))


def patterned(typed: TypedFlow, most: int = MOST_CANDIDATES) -> list[FusionProposal]:
    """What the patterns find, each set of nodes once, in their order."""
    found = dict[tuple[int, ...], str]()
    for name, nodes in _every(typed, ()):
        if len(nodes) > 1:
            found.setdefault(tuple(sorted(nodes)), name)
        if len(found) >= most:
            break
    return [FusionProposal(nodes, by) for nodes, by in found.items()]


def _every(typed: TypedFlow, targets: Iterable[Sequence[int]]) -> Iterator[tuple[str, Collection[int]]]:
    for target in targets:
        yield "target subgraph", target
    for name, pattern in PATTERNS.items():
        for nodes in pattern(typed):
            yield name, nodes


def cone(flow: DataFlow, output: int, allowed: Collection[int]) -> frozenset[int]:
    """All allowed nodes that only the output operator needs, with it: the largest candidate that ends there
    (a *fanout-free cone*, as logic synthesis calls it), as far as one operator may have so many nodes."""
    found = {output}
    waiting = [-one for one in flow.before[output]]
    heapq.heapify(waiting)
    while waiting and len(found) < MAX_NODES:
        # The last first, so that all who read a node have been decided before it.
        node = -heapq.heappop(waiting)
        if node not in found and node in allowed and _is_inside(flow, node, found):
            found.add(node)
            for one in flow.before[node]:
                heapq.heappush(waiting, -one)
    return frozenset(found)


def _is_inside(flow: DataFlow, node: int, nodes: Collection[int]) -> bool:
    """Whether whatever it makes is read among these nodes alone."""
    return node not in flow.leaving and all(one in nodes for one in flow.after[node])


def ending_at(
    typed: TypedFlow, output: int, most_nodes: int, most: int
) -> tuple[list[tuple[int, ...]], bool]:
    """Connected candidates of at most so many nodes that end at one, each once, small ones first; and whether
    these are all. A candidate grows by nodes that stand before all that it has, so that it is come to in one
    way only."""
    flow, found = typed.flow, list[tuple[int, ...]]()
    level: list[tuple[int, ...]] = [(output,)]
    for _ in range(most_nodes - 1):
        larger = list[tuple[int, ...]]()
        for nodes in level:
            near = set[int]().union(*(flow.before[node] for node in nodes)) & typed.eligible
            for node in sorted(near, reverse=True):
                if node >= nodes[0] or not _is_inside(flow, node, nodes):
                    continue
                if len(found) == most:
                    return found, False
                larger.append((node, *nodes))
                found.append(larger[-1])
        level = larger
    return found, True


# ---- patterns -----------------------------------------------------------------------------------


def elementwise_tails(typed: TypedFlow) -> Iterator[Collection[int]]:
    """A producer with the elementwise operators behind it, one more each time."""
    tail = typed.of(TAIL)
    for producer in sorted(typed.eligible):
        nodes = [producer]
        while len(nodes) <= MOST_TAIL:
            last = nodes[-1]
            after = typed.flow.after[last]
            if last in typed.flow.leaving or len(after) != 1 or not after <= tail:
                break
            nodes += after
            yield tuple(nodes)


def normalisations(typed: TypedFlow) -> Iterator[Collection[int]]:
    """What a normalisation or a softmax is where the model has it in pieces: reductions and elementwise
    operators that end in an elementwise one."""
    allowed, reductions = typed.of(POINTWISE | REDUCTIONS), typed.of(REDUCTIONS)
    for output in sorted(typed.of(POINTWISE)):
        nodes = cone(typed.flow, output, allowed)
        if not nodes.isdisjoint(reductions):
            yield nodes


def attentions(typed: TypedFlow) -> Iterator[Collection[int]]:
    """Product, softmax, product, with what scales, masks and moves data between them and before the first."""
    flow, products = typed.flow, typed.of(PRODUCTS)
    between = typed.of(POINTWISE | MOVEMENT)
    for softmax in sorted(typed.of({"Softmax"})):
        scores = _first_before(flow, softmax, products, between)
        last = softmax
        while len(after := flow.after[last]) == 1 and last not in flow.leaving and after <= between:
            last = next(iter(after))
        if len(after) != 1 or last in flow.leaving or not after <= products:
            continue
        yield cone(flow, next(iter(after)), between | scores | {softmax})


def _first_before(
    flow: DataFlow, node: int, wanted: frozenset[int], through: frozenset[int]
) -> frozenset[int]:
    """The nearest wanted ones on the ways back from a node."""
    seen, found, waiting = {node}, set[int](), [node]
    while waiting:
        for one in flow.before[waiting.pop()] - seen:
            seen.add(one)
            if one in wanted:
                found.add(one)
            elif one in through:
                waiting.append(one)
    return frozenset(found)


def residual_sums(typed: TypedFlow) -> Iterator[Collection[int]]:
    """A sum with all that only it reads, and with the elementwise operators behind it."""
    flow, tail = typed.flow, typed.of(TAIL)
    for total in sorted(typed.of({"Add", "Sum"})):
        mine = [one for one in flow.before[total] & typed.eligible if _is_inside(flow, one, (total,))]
        nodes = {*mine, total}
        if len(flow.before[total]) > 1 and mine:
            yield frozenset(nodes)
            last = total
            while len(nodes) <= MOST_TAIL and len(after := flow.after[last]) == 1 and after <= tail:
                if last in flow.leaving:
                    break
                last = next(iter(after))
                nodes.add(last)
                yield frozenset(nodes)


def fed_reductions(typed: TypedFlow) -> Iterator[Collection[int]]:
    """A reduction with the elementwise operators and the movement that only it needs."""
    allowed = typed.of(POINTWISE | MOVEMENT)
    for reduction in sorted(typed.of(REDUCTIONS)):
        yield cone(typed.flow, reduction, allowed)


def data_movements(typed: TypedFlow) -> Iterator[Collection[int]]:
    """Reshapes, transposes, slices and the like that follow one another."""
    movement = typed.of(MOVEMENT)
    for output in sorted(movement):
        goes_on = output not in typed.flow.leaving and typed.flow.after[output] <= movement
        if not goes_on:  # else there is a longer one
            yield cone(typed.flow, output, movement)


PATTERNS: Mapping[str, Callable[[TypedFlow], Iterator[Collection[int]]]] = {
    "elementwise tail": elementwise_tails,
    "normalisation": normalisations,
    "attention": attentions,
    "residual sum": residual_sums,
    "fed reduction": fed_reductions,
    "data movement": data_movements,
}
"""By the name that people read."""


# ---- as operators -------------------------------------------------------------------------------


KnownFused = dict[object, PlacedOperator | str]
"""Fused operators, or why they are none, by their nodes' operators and how these hang together."""


class MadeOperators:
    """Fused operators of one model. ``known``: those that were made before, for whichever model; its own are
    put there too. So many are made as if none had been, or a plan would depend on the plans before."""

    def __init__(self, known: KnownFused | None = None) -> None:
        self.known = {} if known is None else known
        self._mine = dict[object, PlacedOperator | str]()
        self._left = MOST_MADE

    def of(
        self, parts: Sequence[PlacedOperator], shape: PartsShape, wanted: tuple[int, ...]
    ) -> PlacedOperator | str:
        """These nodes' operators as one, by the numbers that ``shape`` has; else the reason."""
        what = (shape, wanted)
        if what in self._mine:
            return self._mine[what]
        if len(parts) > self._left:
            return f"fused operators of {MOST_MADE} nodes were made for the model before"
        self._left -= len(parts)
        if (made := self.known.get(what)) is None:
            here = [
                PlacedOperator(part.operator, tensors, outputs)
                for part, (_, tensors, outputs) in zip(parts, shape, strict=True)
            ]
            made = self.known[what] = _made(here, wanted)
        self._mine[what] = made
        return made


def as_operators(
    found: Iterable[FusionProposal],
    placed: Mapping[int, PlacedOperator],
    made_before: MadeOperators | None = None,
) -> tuple[list[FusionCandidate], dict[tuple[int, ...], str]]:
    """Each proposal as one operator; and those that are none, with the reason (more nodes than an operator
    may have, say). ``placed``: the operators of the nodes. Proposals that differ in their place alone are
    made once, in another body of the model too where that says what was ``made_before``."""
    candidates, refused = list[FusionCandidate](), dict[tuple[int, ...], str]()
    every = made_before or MadeOperators()
    for one in found:
        parts = [placed[node] for node in one.nodes]
        local = LocalValues()
        shape = shape_of(parts, local)
        wanted = local.of(parts[-1].outputs)
        made = every.of(parts, shape, wanted)
        if isinstance(made, str):
            refused[one.nodes] = made
            continue
        there = PlacedOperator(made.operator, local.back(made.tensors), local.back(made.outputs))
        candidates.append(FusionCandidate(one.nodes, one.by, there))
    return candidates, refused


PartsShape = tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
"""Operators' keys, and how they hang together: the same in any place of any model."""


def shape_of(parts: Iterable[PlacedOperator], local: LocalValues) -> PartsShape:
    """Of operators in their order, by ``local`` numbers of values."""
    return tuple((part.operator.key, local.of(part.tensors), local.of(part.outputs)) for part in parts)


class LocalValues:
    """Values by the order in which they are come to."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._values: list[int] = []

    def of(self, values: Iterable[int]) -> tuple[int, ...]:
        return tuple(map(self._number, values))

    def back(self, numbers: Iterable[int]) -> tuple[int, ...]:
        return tuple(self._values[number] for number in numbers)

    def _number(self, value: int) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._values)
            self._values.append(value)
        return self._numbers[value]


def _made(parts: Sequence[PlacedOperator], outputs: tuple[int, ...]) -> PlacedOperator | str:
    try:
        made = fused(parts, outputs)
    except InvalidOperator as error:
        return str(error)
    return made if made.outputs == outputs else "its outputs have another order as one operator"
