"""Which candidates are fused: those that take less time together with what is left than anything else, by
measured times. PURE.

Candidates that share no node can be chosen together, whichever they are: each has one output operator, so
they run in the order of those (:mod:`opatlas.graph.fusion.candidates`). What remains is to pack sets by their
weights: nodes are decided in their order, and all ways that block the same later nodes are one way, the best.
Where a graph has few candidates across each of its cuts, which chains and towers have, that is exact;
beyond :data:`MOST_WAYS` ways the best are kept, and how much better it could be is said.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from opatlas.noise import MARGIN

MOST_WAYS = 4096
"""Of blocking later nodes that are kept while nodes are decided: what takes a second for thousands of
nodes."""

_Way = tuple[float, "tuple[int, _Way] | None"]
"""What is gained so far, and the option that was chosen last, with the way before it."""


@dataclass(frozen=True)
class FusionOption:
    """Nodes in order, the output operator last, and what they take as one operator, in microseconds; None:
    not measured. ``least_us``: less than that nobody expects of them as one."""

    nodes: tuple[int, ...]
    fused_us: float | None
    least_us: float = 0.0


@dataclass(frozen=True)
class FusionQuestion:
    """A candidate that takes no part since nobody has measured it. ``gain_us`` is what it would save at best,
    more than 0: all of its parts but the one that takes the most, or but the least that it is expected to
    take."""

    option: int
    gain_us: float


@dataclass(frozen=True)
class ChosenFusions:
    """``chosen`` are numbers of options that share no node, in the order of their nodes; ``gain_us``: what
    they take less than their parts. No choice gains more than ``most_us``, which is ``gain_us`` where the
    choice is ``exact``."""

    chosen: tuple[int, ...]
    gain_us: float
    most_us: float
    exact: bool
    questions: tuple[FusionQuestion, ...]


def choose_fusions(
    options: Sequence[FusionOption],
    parts_us: Mapping[int, float],
    *,
    margin: float = MARGIN,
    most_ways: int = MOST_WAYS,
) -> ChosenFusions:
    """The options that save the most. ``parts_us``: what each node takes by itself, as it would run unfused.

    An option counts only where it takes less than its parts in sum, by more than what is no difference
    (``margin``, a share); one with a part whose time is not known is neither chosen nor asked for.
    """
    gains, questions = dict[int, float](), list[FusionQuestion]()
    for at, option in enumerate(options):
        parts = [parts_us.get(node, math.nan) for node in option.nodes]
        total = math.fsum(parts)
        if math.isnan(total):
            continue
        if option.fused_us is None:
            gain_us = total - max(*parts, option.least_us)
            if gain_us > 0:
                questions.append(FusionQuestion(at, gain_us))
        elif takes_less(option.fused_us, total, margin):
            gains[at] = total - option.fused_us
    nodes_of = {at: options[at].nodes for at in gains}
    chosen, most_us, exact = list[int](), 0.0, True
    for group in _conflicting(nodes_of):
        best, bound, is_exact = _packed({at: nodes_of[at] for at in group}, gains, most_ways)
        chosen += best
        most_us += bound
        exact = exact and is_exact
    chosen.sort(key=lambda at: nodes_of[at])
    questions.sort(key=lambda one: (-one.gain_us, options[one.option].nodes))
    gain_us = math.fsum(gains[at] for at in chosen)
    return ChosenFusions(tuple(chosen), gain_us, gain_us if exact else most_us, exact, tuple(questions))


def takes_less(fused_us: float, parts_us: float, margin: float = MARGIN) -> bool:
    """Than its parts in sum, by more than what is no difference."""
    return fused_us * (1 + margin) < parts_us


def _conflicting(nodes_of: Mapping[int, Collection[int]]) -> list[list[int]]:
    """The options in groups that share no node with one another."""
    owner: dict[int, int] = {}
    group_of = {at: [at] for at in nodes_of}
    for at, nodes in nodes_of.items():
        for node in nodes:
            mine, other = group_of[at], group_of[owner.setdefault(node, at)]
            if mine is not other:
                small, large = sorted((mine, other), key=len)
                large += small
                group_of |= dict.fromkeys(small, large)
    return list({id(group): sorted(group) for group in group_of.values()}.values())


def _packed(
    nodes_of: Mapping[int, Sequence[int]], gains: Mapping[int, float], most_ways: int
) -> tuple[list[int], float, bool]:
    """The best of options that all hang together, a bound that none exceeds, and whether it is the best."""
    order = sorted({node for nodes in nodes_of.values() for node in nodes})
    place = {node: at for at, node in enumerate(order)}
    beginning: dict[int, list[tuple[int, int]]] = {}  # options by their first node, with a bit for each node
    for option in sorted(nodes_of, key=lambda at: (nodes_of[at], at)):
        bits = sum(1 << place[node] for node in nodes_of[option])
        beginning.setdefault(min(place[node] for node in nodes_of[option]), []).append((option, bits))
    ways: dict[int, _Way] = {0: (0.0, None)}  # by the nodes that are taken, those that are decided left out
    exact = True
    for at in range(len(order)):
        bit, after = 1 << at, dict[int, _Way]()
        for taken, way in ways.items():
            _keep(after, taken & ~bit, way)
            if not taken & bit:
                for option, bits in beginning.get(at, ()):
                    if not taken & bits:
                        _keep(after, (taken | bits) & ~bit, (way[0] + gains[option], (option, way)))
        if len(after) > most_ways:
            exact = False
            kept = sorted(after.items(), key=lambda one: (-one[1][0], one[0]))[:most_ways]
            after = dict(kept)
        ways = after
    gain, link = ways[0]
    chosen = list[int]()
    while link is not None:
        chosen.append(link[0])
        link = link[1][1]
    return chosen[::-1], gain if exact else _bound(nodes_of, gains), exact


def _keep(ways: dict[int, _Way], taken: int, way: _Way) -> None:
    """Of two ways to the same, the better; of two that are as good, the one that fused less or came first."""
    if taken not in ways or way[0] > ways[taken][0]:
        ways[taken] = way


def _bound(nodes_of: Mapping[int, Sequence[int]], gains: Mapping[int, float]) -> float:
    """What no packing exceeds: each node counts with the most that it can be worth as a part of anything."""
    worth: dict[int, float] = {}
    for at, nodes in nodes_of.items():
        for node in nodes:
            worth[node] = max(worth.get(node, 0.0), gains[at] / len(nodes))
    return math.fsum(worth.values())
