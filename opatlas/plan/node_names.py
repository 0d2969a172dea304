"""Finds the node of a model by the name that ONNX Runtime gives it in a profile."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from opatlas.graph.linked import LEFT_OUT, BodyPath, NodePath
from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import KERNEL_TIME
from opatlas.plan.borders import IN_BLOCKS

_IN_BLOCKS = "_nchwc"
_OWN_NAME = re.compile(rf"(?:fused )?node(\d+(?:/\d+)*)\.(?!.*{_IN_BLOCKS}$)")
"""What ONNX Runtime makes of a node's name ends with more than that: what it was fused with. What runs in
blocks has the name of a value, whatever the model calls that."""


def median_times(graph: ModelGraph, events: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """Microseconds of each node by a session's profile, the median of its calls. The nodes of a body count
    in their own time and in that of the body's node. What ONNX Runtime inserted, such as a reorder, is no
    node."""
    found: dict[int, dict[str, list[float]]] = {}
    where = places_of(graph, own_place)
    for event in events:
        name = event.get("name", "")
        at = where(name.removesuffix(KERNEL_TIME)) if name.endswith(KERNEL_TIME) else None
        if at is not None and len(at) == 1:
            found.setdefault(at[0], {}).setdefault(name, []).append(float(event["dur"]))
    return {number: sum(map(median, calls.values())) for number, calls in found.items()}


def places_of(
    graph: ModelGraph, by_name: Callable[[str], NodePath | None]
) -> Callable[[str], NodePath | None]:
    """Where a node is that ONNX Runtime names so: found by its name or, if it runs in blocks of channels, by
    the name of its output."""
    every = list(_made_in_blocks(graph))
    once = Counter(name for name, _ in every)
    made = {name: at for name, at in every if once[name] == 1}

    def where(name: str) -> NodePath | None:
        if name.endswith(_IN_BLOCKS):
            return by_name(name) or made.get(name.removesuffix(_IN_BLOCKS))
        return by_name(name)

    return where


def _made_in_blocks(graph: ModelGraph, body: BodyPath = ()) -> Iterator[tuple[str, NodePath]]:
    """Values that ONNX Runtime may compute in blocks, alone or with what it fuses behind them, and the nodes
    that make them."""
    makers: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        read = [one for one in node.inputs if one != LEFT_OUT and not graph.is_constant(one)]
        maker = makers.get(read[0]) if len(read) == 1 else None
        if node.proto.op_type in IN_BLOCKS:
            maker = number
        if maker is not None:
            makers |= dict.fromkeys(node.makes, maker)
            for value in node.makes:
                yield graph.names[value], (*body, maker)
        for which, inner in enumerate(node.bodies):
            yield from _made_in_blocks(inner.graph, (*body, number, which))


def own_place(name: str) -> NodePath | None:
    named = _OWN_NAME.match(name)
    return tuple(map(int, named[1].split("/"))) if named is not None else None
