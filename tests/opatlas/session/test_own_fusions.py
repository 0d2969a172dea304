"""Fused operators that a session tries without a plan of the service."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.graph.normal import ModelGraph
from opatlas.plan.fusing import with_fusions
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import ByKernel
from opatlas.plan.said import WHOLE
from opatlas.session.own_fusions import own_fusions
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.load.kernels import HEADER
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import FEED, SIZE, kernels_win  # noqa: F401 - a fixture
from tests.tuning.graph.making import model

BOTH = """
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[AT].data, *y = t[1 - AT].data;
  float* z = t[2].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++) z[i] = (x[i] + y[i] > 0 ? x[i] + y[i] : 0) + x[i];
  return 0;
}
"""


def residual() -> bytes:
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"], name="first"),
        helper.make_node("Relu", ["s"], ["t"]),
        helper.make_node("Add", ["t", "x"], ["z"], name="second"),
    ]
    made = model(nodes, {"x": (SIZE,), "y": (SIZE,)}, ["z"])
    made.ir_version = 10
    return bytes(made.SerializeToString())


def test_a_session_runs_several_nodes_by_one_kernel_where_that_is_faster(
    publish_add: Any,
    job: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    from catalog.models import Miss

    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    with opatlas.Session(residual(), client=client, frameworks=()) as session:
        assert [len(step.nodes) for step in session.plan.steps] == [1, 1, 1]
    asked = set(Miss.objects.filter(related=False).values_list("operator__op_type", flat=True))
    assert asked >= {"Relu", "Add+Relu", "Add+Relu+Add"}  # looked up, and so explored
    [fused] = [one.placed.operator for one in own_fusions(ModelGraph(residual()), 16) if len(one.nodes) == 3]
    [x] = [one for one in fused.nodes[-1].inputs if one < 2]
    publish_add(size=3, source=HEADER + BOTH.replace("AT", str(x)), operator=fused)
    later = job(accepts={"kinds": ["c-abi"]}, cache=False)
    with opatlas.Session(residual(), client=later, frameworks=()) as session:
        assert [step.nodes for step in session.plan.steps] == [(0, 1, 2)]
        assert [one.said for one in session.standings][:2] == [
            WHOLE, "1 of 1 steps by kernels, 1 of several nodes",
        ]  # fmt: skip
        assert [one.said for one in session.plan.steps[0].over] == ["ONNX Runtime in the model"]
        assert_same(session.run(None, FEED), wanted(residual(), FEED))
        assert session._executor.artifacts and not session._executor.fallen_back
    with opatlas.Session(residual(), client=later, frameworks=(), fusions=0) as session:
        assert [len(step.nodes) for step in session.plan.steps] == [1, 1, 1]


def test_those_that_spare_most_steps_are_asked_for() -> None:
    graph = ModelGraph(residual())
    assert [one.nodes for one in own_fusions(graph, 1)] == [(0, 1, 2)]
    assert len(own_fusions(graph, 16)) > 1 and own_fusions(graph, 0) == []


def test_those_with_most_work_come_first_and_what_others_go_on_from_last() -> None:
    """Two convolutions, each with a Relu, the second of more channels, and their sum with a Relu."""
    weights = {
        name: np.ones((made, 16, 3, 3), np.float32) for name, made in (("v", 16), ("w", 32), ("u", 32))
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], pads=pads),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"], pads=pads),
        helper.make_node("Conv", ["b", "u"], ["d"], pads=pads),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Relu", ["e"], ["y"]),
    ]
    graph = ModelGraph(model(nodes, {"x": (1, 16, 8, 8)}, ["y"], weights).SerializeToString())
    every = {one.nodes for one in own_fusions(graph, 99)}
    assert {(0, 1), (3, 4), (3, 4, 5), (2, 3, 4, 5)} <= every  # what is unlikely is asked for in the end
    assert [one.nodes for one in own_fusions(graph, 2)] == [(2, 4, 5), (3, 4, 5)]
    assert [one.nodes for one in own_fusions(graph, 3)] == [(0, 1), (2, 4, 5), (3, 4, 5)]


def chosen(us: float, *nodes: int) -> NodeChoice:
    by = ByKernel(f"o1:{nodes}", "0" * 64, (), "a kernel")
    return NodeChoice(by, us, fused=nodes if len(nodes) > 1 else ())


def test_the_set_that_saves_most_is_tried_beside_kernels_of_single_nodes() -> None:
    times = {0: 10.0, 1: 10.0, 2: 10.0, 3: 10.0}
    single = {0: chosen(4.0, 0)}
    # 0 and 1 take 14 as they are, so 13 is worth it, but 1, 2 and 3 together save more.
    found = with_fusions(single, [chosen(13.0, 0, 1), chosen(12.0, 1, 2, 3), chosen(19.9, 2, 3)], times)
    assert list(found) == [3, 0] and found[3].fused == (1, 2, 3) and found[3].over[0].median_us == 30.0
    assert with_fusions(single, [chosen(15.0, 0, 1)], times) == single
    assert list(with_fusions(single, [chosen(5.0, 0, 1)], times)) == [1]  # in place of the single one
    # What ONNX Runtime fused into another node takes nothing there.
    assert with_fusions({}, [chosen(12.0, 0, 1)], {0: 10.0}) == {}


@pytest.mark.parametrize("seed", range(4))
def test_random_models_have_some_and_none_of_several_outputs(seed: int) -> None:
    from tests.opatlas.plan.graphs import RandomModel

    graph = ModelGraph(RandomModel(seed, nodes=16).build(3))
    found = own_fusions(graph, 16)
    assert len({one.placed.operator.key for one in found}) <= 16
    for one in found:
        inner = np.array([value for node in one.nodes[:-1] for value in graph.nodes[node].makes])
        readers = {at for at, node in enumerate(graph.nodes) if not node.reads.isdisjoint(inner.tolist())}
        assert readers <= set(one.nodes) and len(one.placed.outputs) == 1
