"""Numbers that do not depend on the caller's names or order.

Colour refinement over the directed graph with its ports tells most nodes and values apart; where symmetric
ones remain, each is singled out in turn and the smallest serialisation wins. A branch whose first leaf
equals an earlier branch's is that branch's mirror image (an automorphism fixes what was singled out before)
and is skipped. The work is bounded; what is too symmetric is refused.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.identity.bounds import refuse
from opatlas.identity.operator import Node, Operator, Value
from opatlas.identity.workbench import NodeStep

MAX_WORK = 300_000
"""Nodes, values and wires looked at before a graph is refused: less than a second of a core's time."""

COMMUTATIVE = frozenset(
    {
        "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Max", "Mean", "Min", "Mul", "Or",
        "Sum", "Xor",
    }
)  # fmt: skip
"""Operator types whose inputs may change places: ONNX's formula gives every output the same value."""


@dataclass
class Graph:
    """Settled nodes in any topological order, and their values."""

    steps: list[NodeStep]
    values: dict[str, Value]
    outputs: list[str]


@dataclass(frozen=True)
class Numbered:
    """The canonical operator, and the names that became its inputs and outputs."""

    operator: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def number(graph: Graph) -> Numbered:
    """Order nodes and values canonically."""
    if len(graph.steps) == 1 and graph.steps[0].op not in COMMUTATIVE:
        return _write(graph, {0: 0}, None)
    search = _Search(graph)
    return search.best()


def _label(value: Value) -> str:
    return json.dumps([value.dtype, value.shape, value.role, value.strides, value.data])


class _Search:
    """Items are the nodes (0 … n-1), then the values by name."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.names = list(
            dict.fromkeys(name for step in graph.steps for name in (*step.inputs, *step.outputs) if name)
        )
        self.nodes = len(graph.steps)
        self.item = {name: self.nodes + i for i, name in enumerate(self.names)}
        self.size = self.nodes + len(self.names)
        self.reads = [[self.item.get(name, -1) for name in step.inputs] for step in graph.steps]
        self.writes = [[self.item[name] for name in step.outputs] for step in graph.steps]
        self.swaps = [step.op in COMMUTATIVE for step in graph.steps]
        self.readers: list[list[tuple[int, int]]] = [[] for _ in range(self.size)]
        self.writer: dict[int, tuple[int, int]] = {}
        for node in range(self.nodes):
            for port, item in enumerate(self.reads[node]):
                if item >= 0:
                    self.readers[item].append((node, 0 if self.swaps[node] else port))
            for port, item in enumerate(self.writes[node]):
                self.writer[item] = (node, port)
        self.round = self.size + sum(len(step.inputs) + len(step.outputs) for step in graph.steps)
        self.spent = 0

    def best(self) -> Numbered:
        return self._descend(self._refine(self._first()))[1]

    def _first(self) -> list[int]:
        """Colours from what lies before (one pass down) and after (one pass up) each item."""
        outputs = set(self.graph.outputs)
        down: list[bytes] = [b""] * self.size
        for name in self.names:
            if self.item[name] not in self.writer:
                down[self.item[name]] = _hash("input", _label(self.graph.values[name]))
        for node, step in enumerate(self.graph.steps):
            attrs = json.dumps(sorted(step.attrs.items()))
            read = [down[item] if item >= 0 else b"-" for item in self.reads[node]]
            down[node] = _hash(step.op, step.domain, attrs, *(sorted(read) if self.swaps[node] else read))
            for port, item in enumerate(self.writes[node]):
                value = self.graph.values[self.names[item - self.nodes]]
                is_output = self.names[item - self.nodes] in outputs
                down[item] = _hash("made", down[node], port, is_output, _label(value))
        up: list[bytes] = list(down)
        for node in reversed(range(self.nodes)):
            for item in self.writes[node]:
                up[item] = self._up(item, down, up)
            up[node] = _hash(down[node], *(up[item] for item in self.writes[node]))
        for name in self.names:
            if self.item[name] not in self.writer:
                up[self.item[name]] = self._up(self.item[name], down, up)
        return _ranks(up)

    def _up(self, item: int, down: list[bytes], up: list[bytes]) -> bytes:
        return _hash(down[item], *sorted(up[node] + bytes([port]) for node, port in self.readers[item]))

    def _refine(self, colours: list[int]) -> list[int]:
        """Until no item's neighbours tell it from others of its colour."""
        classes = len(set(colours))
        while True:
            self.spent += self.round
            if self.spent > MAX_WORK:
                refuse(
                    "The graph has too many interchangeable parts to be numbered; send it in smaller pieces."
                )
            if classes == self.size:
                return colours
            signatures: list[Hashable] = []
            for node in range(self.nodes):
                read = [colours[item] if item >= 0 else -1 for item in self.reads[node]]
                read = sorted(read) if self.swaps[node] else read
                written = tuple(colours[item] for item in self.writes[node])
                signatures.append((colours[node], tuple(read), written))
            for item in range(self.nodes, self.size):
                node, port = self.writer.get(item, (-1, -1))
                readers = tuple(sorted((colours[reader], place) for reader, place in self.readers[item]))
                signatures.append((colours[item], (colours[node] if node >= 0 else -1, port), readers))
            colours = _ranks(signatures)
            if len(set(colours)) == classes:
                return colours
            classes = len(set(colours))

    def _cell(self, colours: list[int]) -> list[int]:
        """The first colour that several items share; none where every item has its own."""
        cells: dict[int, list[int]] = {}
        for item, colour in enumerate(colours):
            cells.setdefault(colour, []).append(item)
        shared = [colour for colour, items in cells.items() if len(items) > 1]
        return cells[min(shared)] if shared else []

    def _single_out(self, colours: list[int], chosen: int) -> list[int]:
        return self._refine([2 * colour + (item != chosen) for item, colour in enumerate(colours)])

    def _descend(self, colours: list[int]) -> tuple[bytes, Numbered]:
        """The smallest leaf below these colours."""
        cell = self._cell(colours)
        if not cell:
            return self._leaf(colours)
        best: tuple[bytes, Numbered] | None = None
        mirrors: set[bytes] = set()
        for chosen in cell:
            below = self._single_out(colours, chosen)
            first = self._greedy(below)
            if first[0] in mirrors:
                continue
            mirrors.add(first[0])
            leaf = self._descend(below) if self._cell(below) else first
            if best is None or leaf[0] < best[0]:
                best = leaf
        assert best is not None
        return best

    def _greedy(self, colours: list[int]) -> tuple[bytes, Numbered]:
        while cell := self._cell(colours):
            colours = self._single_out(colours, cell[0])
        return self._leaf(colours)

    def _leaf(self, colours: list[int]) -> tuple[bytes, Numbered]:
        by_name = {name: colours[self.item[name]] for name in self.names}
        numbered = _write(self.graph, dict(enumerate(colours[: self.nodes])), by_name)
        return json.dumps(numbered.operator.to_json(), sort_keys=True).encode(), numbered


def _hash(*parts: Any) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return digest.digest()


def _ranks(signatures: Sequence[Any]) -> list[int]:
    rank = {signature: i for i, signature in enumerate(sorted(set(signatures)))}
    return [rank[signature] for signature in signatures]


def _write(graph: Graph, colours: dict[int, int], by_name: dict[str, int] | None) -> Numbered:
    """The operator with nodes in topological order, the smallest colour first, inputs by first use."""
    order = _topological(graph, colours)
    produced_names = [name for node in order for name in graph.steps[node].outputs]
    made = set(produced_names)
    reads: dict[int, list[str]] = {}
    inputs: dict[str, int] = {}
    for node in order:
        names = list(graph.steps[node].inputs)
        if by_name is not None and graph.steps[node].op in COMMUTATIVE:
            names.sort(key=lambda name: by_name[name])
        reads[node] = names
        for name in names:
            if name and name not in made:
                inputs.setdefault(name, len(inputs))
    numbers = {**inputs, **{name: len(inputs) + i for i, name in enumerate(produced_names)}, "": -1}
    outputs = sorted(numbers[name] for name in graph.outputs)
    names_by_number = {value: name for name, value in numbers.items()}
    operator = Operator(
        inputs=tuple(graph.values[name] for name in inputs),
        nodes=tuple(
            Node(
                op=graph.steps[node].op,
                domain=graph.steps[node].domain,
                inputs=tuple(numbers[name] for name in reads[node]),
                outputs=tuple(numbers[name] for name in graph.steps[node].outputs),
                attrs=tuple(sorted(graph.steps[node].attrs.items())),
            )
            for node in order
        ),
        outputs=tuple(outputs),
        produced=tuple(graph.values[name] for name in produced_names),
    )
    return Numbered(operator, tuple(inputs), tuple(names_by_number[value] for value in outputs))


def _topological(graph: Graph, colours: dict[int, int]) -> list[int]:
    maker = {name: node for node, step in enumerate(graph.steps) for name in step.outputs}
    waits = [len({maker[name] for name in step.inputs if name in maker}) for step in graph.steps]
    readers: list[set[int]] = [set() for _ in graph.steps]
    for node, step in enumerate(graph.steps):
        for name in step.inputs:
            if name in maker:
                readers[maker[name]].add(node)
    ready = [(colours[node], node) for node, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for reader in readers[node]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, (colours[reader], reader))
    return order
