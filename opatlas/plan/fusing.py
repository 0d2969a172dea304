"""Adds fused kernels to those of a plan, by what ONNX Runtime takes in place. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opatlas.graph.fusion.choosing import FusionOption, choose_fusions
from opatlas.graph.linked import NodeAt
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import IN_PLACE, Alternative


def with_fusions(
    promising: Mapping[NodeAt, NodeChoice], fused: Sequence[NodeChoice], times: Mapping[NodeAt, float]
) -> dict[NodeAt, NodeChoice]:
    """The kernels that promise to take less, the most promising first, with the fused ones that save most
    together; without them if none saves. ``times``: ONNX Runtime's time for each node in place; a node that
    it fused into another takes none."""
    nodes = {node for one in fused for node in one.fused}
    in_place = {node: times.get(node, 0.0) for node in nodes}
    parts_us = {node: promising[node].median_us if node in promising else in_place[node] for node in nodes}
    found = choose_fusions([FusionOption(one.fused, one.median_us) for one in fused], parts_us)
    chosen = dict(promising)
    for at in found.chosen:
        one = fused[at]
        for node in one.fused:
            chosen.pop(node, None)
        theirs = math.fsum(in_place[node] for node in one.fused)
        chosen[one.fused[-1]] = replace(one, over=(Alternative(IN_PLACE, theirs),))

    def gain(node: NodeAt) -> float:
        one = chosen[node]
        return math.fsum(times.get(part, 0.0) for part in one.fused or (node,)) - one.median_us

    return {node: chosen[node] for node in sorted(chosen, key=lambda node: -gain(node))}
