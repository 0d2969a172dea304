"""Which of overlapping candidates are fused: what saves the most, by measured times alone."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from opatlas.graph.fusion.candidates import TypedFlow, proposals
from opatlas.graph.fusion.choosing import ChosenFusions, FusionOption, choose_fusions
from opatlas.graph.fusion.dataflow import DataFlow
from tests import by_day
from tests.tuning.graph.fusion.making import random_flow, waits_in_a_circle

PARTS = dict.fromkeys(range(6), 10.0)


def chosen_nodes(options: list[FusionOption], found: ChosenFusions) -> list[tuple[int, ...]]:
    return [options[at].nodes for at in found.chosen]


def test_fused_is_only_what_takes_less_than_the_sum_of_its_parts() -> None:
    options = [FusionOption((0, 1), 15.0), FusionOption((2, 3), 20.0), FusionOption((4, 5), 25.0)]
    found = choose_fusions(options, PARTS)
    assert chosen_nodes(options, found) == [(0, 1)]
    assert (found.gain_us, found.most_us, found.exact, found.questions) == (5.0, 5.0, True, ())


def test_less_by_what_is_no_difference_is_no_reason() -> None:
    options = [FusionOption((0, 1), 19.7)]
    assert choose_fusions(options, PARTS).chosen == ()
    assert choose_fusions(options, PARTS, margin=0.0).chosen == (0,)


def test_of_those_that_share_a_node_the_best_together_are_chosen() -> None:
    """The single best one, in the middle, would keep two out that save more together."""
    options = [FusionOption((1, 2), 8.0), FusionOption((0, 1), 12.0), FusionOption((2, 3), 12.0)]
    found = choose_fusions(options, PARTS)
    assert chosen_nodes(options, found) == [(0, 1), (2, 3)] and found.gain_us == 16.0


def test_one_large_one_is_taken_where_it_beats_its_own_parts_fused() -> None:
    options = [FusionOption((0, 1), 12.0), FusionOption((2, 3), 12.0), FusionOption((0, 1, 2, 3), 20.0)]
    assert chosen_nodes(options, choose_fusions(options, PARTS)) == [(0, 1, 2, 3)]
    options[2] = FusionOption((0, 1, 2, 3), 24.0)
    assert choose_fusions(options, PARTS).gain_us == 16.0
    assert choose_fusions(options, PARTS).chosen == (0, 1)  # of two that are as good, the one that fuses less


def test_what_was_not_measured_takes_no_part_and_is_asked_for_by_what_it_might_save() -> None:
    parts = PARTS | {3: 50.0}
    options = [FusionOption((0, 1), None), FusionOption((2, 3, 4), None), FusionOption((4, 5), 12.0)]
    found = choose_fusions(options, parts)
    assert chosen_nodes(options, found) == [(4, 5)]
    assert [(one.option, one.gain_us) for one in found.questions] == [(1, 20.0), (0, 10.0)]


def test_what_is_expected_to_take_as_long_as_its_parts_is_not_asked_for() -> None:
    options = [FusionOption((0, 1), None, 20.0), FusionOption((2, 3), None, 14.0), FusionOption((4, 5), None)]
    found = choose_fusions(options, PARTS)
    assert [(one.option, one.gain_us) for one in found.questions] == [(2, 10.0), (1, 6.0)]


def test_a_part_whose_time_is_not_known_leaves_out_what_it_is_in() -> None:
    options = [FusionOption((0, 9), 1.0), FusionOption((8, 9), None), FusionOption((0, 1), 12.0)]
    found = choose_fusions(options, PARTS)
    assert chosen_nodes(options, found) == [(0, 1)] and found.questions == ()


def test_an_operator_that_was_revoked_is_one_without_a_time() -> None:
    """What a plan knows is what is published: its nodes run as they would without it."""
    options = [FusionOption((0, 1), 5.0), FusionOption((1, 2), 12.0)]
    assert chosen_nodes(options, choose_fusions(options, PARTS)) == [(0, 1)]
    revoked = [FusionOption((0, 1), None), options[1]]
    assert chosen_nodes(revoked, choose_fusions(revoked, PARTS)) == [(1, 2)]


def _options(seed: int, nodes: int = 10) -> tuple[DataFlow, list[FusionOption], dict[int, float]]:
    """Candidates of a random graph, some of them measured."""
    random = np.random.default_rng(seed)
    kinds = ["Relu", "Add", "MatMul", "ReduceSum"]
    types = [str(random.choice(kinds)) for _ in range(nodes)]
    graph = random_flow(seed, nodes)
    parts = {node: float(random.integers(1, 50)) for node in range(nodes) if random.random() < 0.95}
    found = proposals(TypedFlow(graph, types, frozenset(range(nodes)))).found
    order = random.permutation(len(found))[:12]
    options = []
    for at in order:
        total = sum(parts.get(node, 1.0) for node in found[at].nodes)
        measured = float(random.uniform(0.2, 1.2)) * total if random.random() < 0.8 else None
        options.append(FusionOption(found[at].nodes, measured))
    return graph, options, parts


def _best_by_force(graph: DataFlow, options: list[FusionOption], parts: dict[int, float]) -> float:
    """Over all sets of options that share no node and do not wait in a circle."""
    gains = {}
    for at, one in enumerate(options):
        if one.fused_us is not None and all(node in parts for node in one.nodes):
            gain = sum(parts[node] for node in one.nodes) - one.fused_us
            if one.fused_us * 1.02 < sum(parts[node] for node in one.nodes):
                gains[at] = gain
    best = 0.0
    for size in range(1, len(gains) + 1):
        for some in combinations(gains, size):
            nodes = [node for at in some for node in options[at].nodes]
            if len(set(nodes)) == len(nodes):
                assert not waits_in_a_circle(graph, [options[at].nodes for at in some])
                best = max(best, sum(gains[at] for at in some))
    return best


@pytest.mark.parametrize("seed", by_day.first(20, range(80)))
def test_the_choice_is_the_best_that_there_is(seed: int) -> None:
    graph, options, parts = _options(seed)
    found = choose_fusions(options, parts)
    assert found.exact and found.most_us == found.gain_us
    assert found.gain_us == pytest.approx(_best_by_force(graph, options, parts))
    nodes = [node for at in found.chosen for node in options[at].nodes]
    assert len(set(nodes)) == len(nodes)
    taken = math.fsum(
        math.fsum(parts[node] for node in options[at].nodes) - (options[at].fused_us or 0)
        for at in found.chosen
    )
    assert found.gain_us == pytest.approx(taken)
    assert choose_fusions(options, parts) == found


@pytest.mark.parametrize("seed", by_day.first(20, range(80)))
def test_beyond_the_bound_it_says_how_much_better_it_could_be(seed: int) -> None:
    graph, options, parts = _options(seed, nodes=12)
    found = choose_fusions(options, parts, most_ways=1)
    best = _best_by_force(graph, options, parts)
    assert found.gain_us <= best + 1e-9 <= found.most_us + 2e-9
    if found.exact:
        assert found.gain_us == pytest.approx(best)


def test_a_thousand_equal_blocks_are_chosen_exactly() -> None:
    """As a tower of layers has them: few candidates lie across any cut of it."""
    parts = dict.fromkeys(range(5000), 10.0)
    options = []
    for at in range(0, 5000, 5):
        options += [
            FusionOption((at, at + 1), 15.0),
            FusionOption((at + 1, at + 2), 12.0),
            FusionOption((at + 2, at + 3, at + 4), 20.0),
            FusionOption((at, at + 1, at + 2), 18.0),
        ]
        if at:
            options.append(FusionOption((at - 1, at), 16.0))
    found = choose_fusions(options, parts)
    assert found.exact and len(found.chosen) == 2000
    assert found.gain_us == pytest.approx(1000 * 15.0)
