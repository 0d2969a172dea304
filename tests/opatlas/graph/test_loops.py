"""Loops that only their own condition ends."""

from __future__ import annotations

import pytest

from opatlas.graph.loops import unbounded_loop
from opatlas.graph.normal import ModelGraph
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.loops import halving


@pytest.mark.parametrize(
    ("turns", "ends", "found"),
    [
        ("", "c_out", "down"),  # while
        ("most", "c_out", "down"),  # as exporters write it
        ("n", "c_out", "down"),  # a number that only a run knows
        ("two", "c_out", ""),
        ("n", "same", ""),  # for
    ],
)
def test_a_loop_is_named_that_only_data_ends(turns: str, ends: str, found: str) -> None:
    assert unbounded_loop(ModelGraph(halving(turns, ends))) == found


def test_loops_of_a_known_count_and_models_without_any_have_a_bound() -> None:
    made = RandomModel(0, nodes=0)
    made.loop()
    assert unbounded_loop(ModelGraph(made.build(1))) == ""
    assert unbounded_loop(ModelGraph(RandomModel(1, control=False).build(1))) == ""
