"""ONNX Runtime's time for each node of a model in place, from a profile of warm runs. PURE.

A framework fuses nodes: its profile has their whole time under one of them, and nothing for the others. That
time is divided among the nodes in proportion to their times alone. So a kernel for one node is not compared
with the time of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from opatlas.graph.linked import BodyPath
from opatlas.graph.profile import ModelProfile
from opatlas.graph.structure import ModelStructure
from opatlas.plan.making import needed_nodes


def times_in_place(
    structure: ModelStructure, profile: ModelProfile, alone_us: Callable[[int], float | None], body: BodyPath
) -> dict[int, float]:
    """Microseconds of each node of the model, or of a body, in one run of it, without branches and loops.
    Empty if the profile's times do not count or none of these nodes was seen. ``alone_us``: ONNX Runtime's
    time for a node alone, None if unknown."""
    if profile.borders is None:
        return {}
    needed = [node for node in needed_nodes(structure) if not structure.nodes[node].bodies]
    seen = {node: us for node in needed if (us := profile.of((*body, node)).self_per_run_us) is not None}
    if not seen:
        return {}
    found = dict.fromkeys(needed, 0.0)
    for node, fused in _fused_into(structure, needed, seen).items():
        found |= _shared(seen[node], {one: alone_us(one) for one in fused}, node)
    return found


def _fused_into(
    structure: ModelStructure, needed: list[int], seen: Mapping[int, float]
) -> dict[int, list[int]]:
    """Seen nodes, each with the unseen ones that it computed as well: they read its output or, if no seen
    node is before them, it reads theirs."""
    owner, makers = dict[int, int](), dict[int, int]()
    for node in needed:
        before = (
            owner.get(makers[value]) for value in sorted(structure.nodes[node].reads) if value in makers
        )
        mine = node if node in seen else next((one for one in before if one is not None), None)
        if mine is not None:
            owner[node] = mine
        makers |= dict.fromkeys(structure.nodes[node].makes, node)
    for node in reversed(needed):
        for value in structure.nodes[node].reads if node in owner else ():
            if (maker := makers.get(value)) is not None:
                owner.setdefault(maker, owner[node])
    found: dict[int, list[int]] = {node: [] for node in seen}
    for node, mine in owner.items():
        found[mine].append(node)
    return found


def _shared(us: float, alone: Mapping[int, float | None], seen: int) -> dict[int, float]:
    """A time, divided in proportion to the nodes' times alone; the seen node has all of it if one of these is
    unknown."""
    known = {node: time for node, time in alone.items() if time is not None}
    total = math.fsum(known.values())
    if len(known) < len(alone) or not total:
        return {seen: us}
    return {node: us * time / total for node, time in known.items()}
