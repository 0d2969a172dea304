"""Which node's results feed which: all that partitions and searches ask of a graph. PURE."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from opatlas.graph.linked import Linked
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import ModelStructure
from opatlas.graph.walk import CONTROL


@dataclass(frozen=True)
class DataFlow:
    """A graph by the numbers of its nodes, which are an order in which they can run.

    ``before`` and ``after``: of each node those whose results it reads, and those that read its own.
    Constants are part of who reads them and no edges. ``given``: nodes that read what the graph is given (in
    a body: what it is given and what it captures); ``leaving``: those whose results leave the graph;
    ``control``: branches and loops.
    """

    before: tuple[frozenset[int], ...]
    after: tuple[frozenset[int], ...]
    given: frozenset[int]
    leaving: frozenset[int]
    control: frozenset[int] = frozenset()

    @classmethod
    def of_graph(cls, graph: ModelGraph) -> DataFlow:
        """A model, or one of its bodies."""
        types = [node.proto.op_type for node in graph.nodes]
        return _read(graph.nodes, types, graph.outputs, graph.is_constant)

    @classmethod
    def of_structure(cls, structure: ModelStructure) -> DataFlow:
        types = [node.op_type for node in structure.nodes]
        return _read(structure.nodes, types, structure.outputs, structure.constants.__contains__)

    def inputs_of(self, part: Collection[int]) -> list[int]:
        """Its *input operators*: those that read what comes from outside of it. One that reads nothing but
        constants begins something, so it is one too."""
        return [one for one in sorted(part) if self._is_input(one, part)]

    def outputs_of(self, part: Collection[int]) -> list[int]:
        """Its *output operators*: those whose results are read outside of it, or leave the graph. One that
        nobody reads ends something, so it is one too."""
        return [one for one in sorted(part) if self._is_output(one, part)]

    def _is_input(self, node: int, part: Collection[int]) -> bool:
        before = self.before[node]
        return node in self.given or not before or any(one not in part for one in before)

    def _is_output(self, node: int, part: Collection[int]) -> bool:
        after = self.after[node]
        return node in self.leaving or not after or any(one not in part for one in after)

    def components(self, nodes: Collection[int]) -> list[frozenset[int]]:
        """The nodes by how they hang together by edges among them, each by its first node."""
        left, found = set(nodes), list[frozenset[int]]()
        for first in sorted(nodes):
            if first not in left:
                continue
            left.discard(first)
            waiting, together = [first], [first]
            while waiting:
                one = waiting.pop()
                near = (self.before[one] | self.after[one]) & left
                left -= near
                waiting += near
                together += near
            found.append(frozenset(together))
        return found

    def runs_in_some_order(self, parts: Iterable[Collection[int]]) -> bool:
        """Whether each of these parts (disjoint) can run at once, the other nodes alone: none waits for
        another in a circle."""
        part_of = {node: at for at, part in enumerate(parts) for node in part}
        names = [part_of.get(node, ~node) for node in range(len(self.before))]
        waits = {name: set[int]() for name in names}  # for whom: parts, and nodes alone by their complement
        for node, before in enumerate(self.before):
            waits[names[node]] |= {names[one] for one in before} - {names[node]}
        readers: dict[int, list[int]] = {name: [] for name in waits}
        for name, others in waits.items():
            for other in others:
                readers[other].append(name)
        ready = [name for name, others in waits.items() if not others]
        done = 0
        while ready:
            name, done = ready.pop(), done + 1
            for reader in readers[name]:
                waits[reader].discard(name)
                if not waits[reader]:
                    ready.append(reader)
        return done == len(waits)


def _read(
    nodes: Sequence[Linked],
    types: Sequence[str],
    outputs: Collection[int],
    is_constant: Callable[[int], bool],
) -> DataFlow:
    maker = {value: number for number, node in enumerate(nodes) for value in node.makes}
    before = [frozenset(maker[value] for value in node.reads if value in maker) for node in nodes]
    after: list[set[int]] = [set() for _ in nodes]
    for number, others in enumerate(before):
        for other in others:
            after[other].add(number)
    given = (
        number
        for number, node in enumerate(nodes)
        if any(value not in maker and not is_constant(value) for value in node.reads)
    )
    control = (number for number, node in enumerate(nodes) if node.bodies or types[number] in CONTROL)
    return DataFlow(
        tuple(before),
        tuple(map(frozenset, after)),
        frozenset(given),
        frozenset(maker[value] for value in outputs if value in maker),
        frozenset(control),
    )
