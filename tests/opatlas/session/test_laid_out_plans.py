"""A plan with operators channels-last, made by the service and run by a session."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client.service.rest import RefusedRequest
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.graph.types import TensorType
from opatlas.identity import Operator
from opatlas.plan.plan import ByKernel, InvalidPlan
from opatlas.plan.profiling import profile_by_executor, profile_model
from opatlas.plan.said import WHOLE
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.graph.fusion.test_candidates import placed
from tests.opatlas.load.kernels import HEADER
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.session.test_session import kernels_win  # noqa: F401 - a fixture
from tests.tuning.graph.layout.making import paths
from tests.tuning.graph.layout.test_model import AT, DATA, GRAPH, TABLES
from tests.tuning.graph.layout.test_model import SHAPE as SEEN
from tests.tuning.graph.layout.test_model import feed as seen
from tests.tuning.graph.making import model
from tuning.graph.layout.forms import forms_of, transpose
from tuning.graph.layout.names import NHWC, ROW_MAJOR

SHAPE = (1, 4, 6, 5)
FEED = {
    name: np.random.default_rng(at).standard_normal(SHAPE).astype(np.float32) for at, name in enumerate("xy")
}
ADD = (
    HEADER
    + """
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *y = t[1].data;
  float* z = t[2].data;
  if (t[0].ndim != 4 || t[0].shape[3] != 4) return 9; /* channels are the last */
  for (int64_t i = 0; i < 120; i++) z[i] = x[i] + y[i];
  return 0;
}
"""
)


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None) -> None:
    """Plans are made as they are asked for."""


def summing() -> bytes:
    """A convolution, what is added to it, and another one."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["a", "y"], ["s"], name="sum"),
        helper.make_node("Conv", ["s", "w"], ["z"], name="second", pads=[1, 1, 1, 1]),
    ]
    weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32) / 6
    made = model(nodes, {"x": SHAPE, "y": SHAPE}, ["z"], {"w": weight})
    made.ir_version = 10
    return bytes(made.SerializeToString())


@pytest.fixture
def made(publish_add: Any, job: Any) -> tuple[Any, dict[str, Any]]:
    """Who asks, and the service's plan: convolutions take a fifth channels-last, where ONNX Runtime has them,
    and the sum a tenth, by a kernel in C."""
    from catalog.best.publishing import publish
    from catalog.registry import register_operator, register_setting, register_target
    from opatlas.identity import Setting, detect_target
    from tests.catalog import making as catalogue

    graph = ModelGraph(summing())
    place = {"target": register_target(detect_target()), "setting": register_setting(Setting(threads=1))}

    def known(operator: Operator, route: str, ratio: float) -> None:
        row = register_operator(operator)
        publish(catalogue.new_result({"operator": row, **place}, route, ratio, needs={}))

    for node in (0, 1):
        found = graph.operator(node)
        assert found is not None
        known(found[0].operator, "torch", 1.0)
    conv, add = forms_of(TypedNodes.of_graph(graph), [(0,), (1,)], placed(graph))
    known(conv.placed.operator, "onnxruntime", 5.0)
    publish_add(size=4, source=ADD, operator=add.placed.operator)
    client = job()
    wanted_plan = {
        "structure": structure_of(graph).to_json(), "target": client.target.to_json(),
        "setting": client.setting.to_json(), "passes": ["kernels", "layout"],
    }  # fmt: skip
    return client, client.rest.call("POST", "/api/v1/plans", wanted_plan)


def test_a_session_runs_it_and_values_lie_channels_last_between_its_steps(
    made: tuple[Any, dict[str, Any]],
    kernels_win: None,  # noqa: F811
) -> None:
    client, answer = made
    assert answer["plan"]["nhwc"] == [[0], [1], [2]]
    with opatlas.Session(summing(), client=client, plan=answer, frameworks=(), example=FEED) as session:
        assert [one.said for one in session.standings] == [
            WHOLE, "1 of 3 steps by kernels, 3 nodes channels-last",
        ]  # fmt: skip
        assert_same(session.run(None, FEED), wanted(summing(), FEED))
        [kernel] = [step for step in session.plan.steps if isinstance(step.by, ByKernel)]
        running = session._executor.graph
        assert isinstance(running, LaidOutGraph) and running.own_nodes(kernel.nodes) == (1,)
        kinds = [running.type_of(one) for one in (*kernel.by.tensors, *kernel.outputs)]  # type: ignore[union-attr]
        assert {kind.shape for kind in kinds if kind is not None} == {(1, 6, 5, 4)}
        # What is said of its steps is said of the model's own nodes.
        assert session.breakdown(FEED)[1].nodes == "Add sum"
        profile = profile_by_executor(session._executor, [FEED])
        assert profile.model == ModelGraph(summing()).key and set(profile.nodes) == {(0,), (1,), (2,)}
        # A kernel that is revoked gives way, and the layouts stay.
        session._executor._program.drop(session._executor.artifacts)  # type: ignore[union-attr]
        assert_same(session.run(None, FEED), wanted(summing(), FEED))
        assert not session._executor.artifacts


def test_layouts_that_cannot_be_are_refused(made: tuple[Any, dict[str, Any]]) -> None:
    client, answer = made

    def given(**changes: Any) -> Any:
        document = answer | {"plan": answer["plan"] | changes}
        return opatlas.Session(summing(), client=client, plan=document, frameworks=(), example=FEED)

    for nhwc, said in (
        ([[0], [0]], "in two units"),
        ([[3]], "in their order"),
        ([[0]], "another operator|before it is made|names nodes"),
        ([], "another operator|before it is made|names nodes"),
        ("NHWC", "must be a list"),
        ([0], "must be a list"),
        ([[0, [0, 0, 1]]], "must be of one body"),
        ([[-1]], "by whole numbers"),
        ([[[0, 0, 0]]], "Node 0 has no body 0"),
    ):
        with pytest.raises(InvalidPlan, match=said):
            given(nhwc=nhwc)
    for field, places, said in (
        ("handed", [[0]], "must be places in the model"),
        ("handed", [[0, 0]], "Node 0 hands on no picture at place 0"),
        ("brought", [[0, 0]], "must be places in the model"),
        ("brought", 7, "must be a list"),
    ):
        with pytest.raises(InvalidPlan, match=said):
            given(**{field: places})


# ---- branches and loops -----------------------------------------------------------------------------


@pytest.fixture
def seeing(publish_add: Any, job: Any) -> Any:
    """Who asks; the catalogue has each operator of a model with a branch and a loop in both layouts, at the
    times of :data:`TABLES`, and reorders at 25 µs. The sum within the loop runs channels-last by a kernel in
    C, which takes as long as ONNX Runtime does in row-major."""
    from catalog.best.publishing import publish
    from catalog.registry import register_operator, register_setting, register_target
    from opatlas.identity import Setting, detect_target
    from tests.catalog import making as catalogue

    place = {"target": register_target(detect_target()), "setting": register_setting(Setting(threads=1))}

    def known(operator: Operator, us: float) -> None:
        row = {"operator": register_operator(operator), **place}
        publish(catalogue.new_result(row, "torch", 1.0, needs={}))
        publish(catalogue.new_result(row, "onnxruntime", 100 / us, needs={}))

    for at, (row_major, nhwc) in TABLES.items():
        graph = TypedNodes.of_graph(GRAPH).within(at[:-1])
        inner = within(at[:-1])
        own = inner.operator(at[-1])
        [form] = forms_of(graph, [at[-1:]], placed(inner))
        assert own is not None
        if at == AT["step_add"]:
            known(own[0].operator, 10.0)
            source = ADD.replace("shape[3] != 4", f"shape[3] != {SEEN[1]}").replace("120", str(np.prod(SEEN)))
            publish_add(size=5, source=source, operator=form.placed.operator)
            continue
        known(own[0].operator, row_major.cost.us)
        known(form.placed.operator, nhwc.cost.us)
    for way in ((ROW_MAJOR, NHWC), (NHWC, ROW_MAJOR)):
        known(transpose(TensorType(1, tuple(SEEN)), *way), 25.0)
    return job(accepts={"kinds": ["c-abi"]})


def within(body: tuple[int, ...]) -> ModelGraph:
    graph = GRAPH
    for node, which in zip(body[::2], body[1::2], strict=True):
        graph = graph.nodes[node].bodies[which].graph
    return graph


BRIGHT, DARK = seen(True, 1), seen(False, 12)


def test_what_real_runs_show_changes_which_layouts_run(
    seeing: Any,
    kernels_win: None,  # noqa: F811
) -> None:
    """The session shows the service one run of its example; the plan differs by it, and runs."""
    plans, at = {}, dict[str, Any]()
    for name, example in (("bright", BRIGHT), ("dark", DARK)):
        with opatlas.Session(DATA, client=seeing, plan=True, frameworks=(), example=example) as session:
            given = session._given
            assert given is not None
            plans[name], at = given.plan, paths(given.graph)
            # What was asked for is what runs.
            assert (session.plan.nhwc, session.plan.kernels) == (given.plan.nhwc, given.plan.kernels)
            for feed in (BRIGHT, DARK, seen(False, 1), seen(True, 3)):
                assert_same(session.run(None, feed), wanted(DATA, feed))
            assert not session._executor.fallen_back
            if name == "dark":  # the sum in the loop by its kernel, once a round
                assert [by.said for by in session.plan.kernels] == ["cpp add"]
                assert len(session._executor.artifacts) == 1
                profile = profile_by_executor(session._executor, [DARK])
                assert profile.of(at["step_add"]).count == profile.of(at["step_conv"]).count == 12
    assert not plans["bright"].nhwc
    dark = plans["dark"].nhwc
    assert {unit[0] for unit in dark.units} == {at["dark_conv"], at["step_conv"], at["step_add"]}
    # What is carried lies so, and the value that each round adds is brought so before the loop.
    assert dark.handed == {(*at["choice"], 0), (*at["refine"], 0)} and len(dark.own_brought) == 1


def test_a_profile_is_asked_with_and_must_be_of_the_model(seeing: Any) -> None:
    sent = {
        "structure": structure_of(GRAPH).to_json(), "target": seeing.target.to_json(),
        "setting": seeing.setting.to_json(), "passes": ["kernels", "layout"],
    }  # fmt: skip

    def plan(**more: Any) -> dict[str, Any]:
        return dict(seeing.rest.call("POST", "/api/v1/plans", sent | more))

    dark = profile_model(GRAPH, [DARK], 1).to_json()
    without, with_it = plan(), plan(profile=dark)
    assert "nhwc" not in without["plan"] and with_it["plan"]["nhwc"]
    # Twelve rounds of the loop, in place of one; of one run both branches count once.
    assert with_it["default_us"] == without["default_us"] + 11 * 200
    assert with_it["predicted_us"] < with_it["default_us"]
    [add] = [one for one in with_it["choices"] if one["in_bodies"] and one["summary"].startswith("Add")]
    assert add["by"] == "kernel"
    for wrong, said in (
        (dark | {"model": f"m1:{'0' * 64}"}, "profile this one"),
        (dark | {"profile": 2}, "form 2"),
        ("dark", "is a JSON object"),
    ):
        with pytest.raises(RefusedRequest, match=said):
            plan(profile=wrong)
