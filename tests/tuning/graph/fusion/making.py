"""Graphs of numbered nodes, by hand and at random, and what is asked of any part of them, counted anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from opatlas.graph.fusion.dataflow import DataFlow


def flow(
    edges: Mapping[int, Collection[int]], given: Iterable[int] = (), leaving: Iterable[int] = ()
) -> DataFlow:
    """``edges``: of each node those whose results it reads."""
    count = len(edges)
    after: list[set[int]] = [set() for _ in range(count)]
    for node, before in edges.items():
        for one in before:
            assert one < node
            after[one].add(node)
    return DataFlow(
        tuple(frozenset(edges[node]) for node in range(count)),
        tuple(map(frozenset, after)),
        frozenset(given),
        frozenset(leaving),
    )


def random_flow(seed: int, nodes: int = 14) -> DataFlow:
    """Sparse, dense, wide and deep ones, with what enters and leaves anywhere; most results have one reader,
    as in models."""
    random = np.random.default_rng(seed)
    reach, most, single = int(random.integers(1, nodes)), int(random.integers(1, 4)), random.random()
    edges: dict[int, list[int]] = {}
    unread = set[int]()
    for node in range(nodes):
        near = list(range(max(0, node - reach), node))
        read = set[int]()
        for _ in range(int(random.integers(0 if random.random() < 0.2 else 1, most + 1)) if near else 0):
            free = [one for one in near if one in unread - read]
            read.add(int(random.choice(free if free and random.random() < single else near)))
        edges[node] = sorted(read)
        unread = (unread - read) | {node}
    share = float(random.choice([0.0, 0.1, 0.4]))
    return flow(
        edges,
        [node for node in edges if random.random() < share or not edges[node]],
        [node for node in edges if random.random() < share],
    )


def enters(graph: DataFlow, part: Collection[int]) -> list[int]:
    """Input operators, by the definition in docs/plans.md."""
    return [
        node
        for node in sorted(part)
        if node in graph.given or not graph.before[node] or set(graph.before[node]) - set(part)
    ]


def leaves(graph: DataFlow, part: Collection[int]) -> list[int]:
    """Output operators."""
    return [
        node
        for node in sorted(part)
        if node in graph.leaving or not graph.after[node] or set(graph.after[node]) - set(part)
    ]


def waits_in_a_circle(graph: DataFlow, parts: Iterable[Collection[int]]) -> bool:
    """Whether, each part as one node, some node comes before itself: by depth-first search."""
    name = {node: node for node in range(len(graph.before))}
    for part in parts:
        name |= dict.fromkeys(part, min(part))
    after: dict[int, set[int]] = {one: set() for one in name.values()}
    for node, before in enumerate(graph.before):
        for one in before:
            if name[one] != name[node]:
                after[name[one]].add(name[node])
    colour: dict[int, str] = {}

    def is_met_again(node: int) -> bool:
        if node in colour:
            return colour[node] == "on the way"
        colour[node] = "on the way"
        found = any(is_met_again(one) for one in after[node])
        colour[node] = "done"
        return found

    return any(is_met_again(node) for node in after)


def hangs_together(graph: DataFlow, part: Collection[int]) -> bool:
    seen = {min(part)}
    waiting = [min(part)]
    while waiting:
        node = waiting.pop()
        for one in (graph.before[node] | graph.after[node]) & set(part):
            if one not in seen:
                seen.add(one)
                waiting.append(one)
    return seen == set(part)
