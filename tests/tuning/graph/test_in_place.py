"""What ONNX Runtime takes for each node in a model, by a profile that has one time for all that it fused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import BorderCosts, ModelProfile, NodeProfile
from opatlas.graph.structure import structure_of
from opatlas.plan.profiling import profile_in_place
from tests.opatlas.plan.test_executor import FEED
from tests.opatlas.plan.test_executor import chain as data_of_chain
from tests.tuning.graph.passes.test_borders import chain, structure
from tuning.graph.in_place import times_in_place

BORDERS = BorderCosts(1.0, 1.0)


def profile(seen: Mapping[int, float], borders: BorderCosts | None = BORDERS) -> ModelProfile:
    nodes = {(at,): NodeProfile(2, 2 * us, 2 * us) for at, us in seen.items()}
    return ModelProfile("m1:x", "", "onnxruntime", 2, nodes, borders)


ALONE = {0: 60.0, 1: 20.0, 2: 30.0, 3: 10.0}


def test_what_was_fused_shares_the_time_as_nodes_take_it_alone() -> None:
    found = times_in_place(chain(4), profile({0: 70.0, 2: 36.0}), ALONE.get, ())
    assert found == pytest.approx({0: 52.5, 1: 17.5, 2: 27.0, 3: 9.0})


def test_what_is_not_known_alone_takes_nothing_beside_the_one_that_was_seen() -> None:
    found = times_in_place(chain(3), profile({0: 70.0}), {0: 60.0, 1: 20.0}.get, ())
    assert found == {0: 70.0, 1: 0.0, 2: 0.0}


def test_what_comes_before_all_that_was_seen_is_part_of_who_reads_it() -> None:
    found = times_in_place(chain(3), profile({2: 55.0}), ALONE.get, ())
    assert found == pytest.approx({0: 30.0, 1: 10.0, 2: 15.0})
    aside = structure([[0], [0], [1, 2]])  # node 1 folds into the last, which reads it
    found = times_in_place(aside, profile({0: 5.0, 2: 50.0}), ALONE.get, ())
    assert found == pytest.approx({0: 5.0, 1: 20.0, 2: 30.0})


def test_times_that_do_not_count_are_not_taken_and_unseen_bodies_are_unknown() -> None:
    assert times_in_place(chain(2), profile({0: 5.0}, None), ALONE.get, ()) == {}
    assert times_in_place(chain(2), profile({}), ALONE.get, ()) == {}
    assert times_in_place(chain(2), profile({0: 5.0}), ALONE.get, (7, 0)) == {}


def test_no_time_is_lost_and_onnx_runtimes_own_profile_is_read() -> None:
    graph = ModelGraph(data_of_chain(6))
    seen = profile_in_place(graph, {"v0": np.asarray(FEED["v0"])}, 1)
    assert seen.borders is not None and seen.borders.us_per_mib >= 0 < seen.borders.handoff_us
    assert all(one.count == seen.runs for one in seen.nodes.values())
    made = structure_of(graph)
    found = times_in_place(made, seen, lambda node: 10.0, ())
    per_run = sum(one.total_per_run_us or 0.0 for one in seen.nodes.values())
    assert set(found) == set(range(6)) and sum(found.values()) == pytest.approx(per_run) and per_run > 0
    assert times_in_place(made, replace(seen, borders=None), lambda node: 10.0, ()) == {}
