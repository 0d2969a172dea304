"""Layouts in plans of the service: channels-last operators looked up, chosen by their times, asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from onnx import helper

from catalog.best.publishing import publish as publish_result
from catalog.models import Miss, Model, Operator
from catalog.registry import register_operator
from opatlas.graph.channels_last import ChannelsLast
from opatlas.graph.fused import fused
from opatlas.graph.laid_model import LaidOutGraph
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.identity import Setting
from opatlas.plan.checking import check_plan
from opatlas.plan.plan import ModelPlan
from opatlas.plan.profiling import profile_model
from tests.catalog import making as catalogue
from tests.opatlas.graph.fusion.test_candidates import placed
from tests.tuning.graph import making
from tests.tuning.graph.layout.test_model import DATA, GRAPH, feed
from tests.tuning.test_planning import own_folders  # noqa: F401 - a fixture
from tuning import ingest, planning
from tuning.graph.layout.forms import forms_of, transpose
from tuning.graph.layout.names import NHWC, ROW_MAJOR

pytestmark = pytest.mark.django_db
PASSES = ["kernels", "layout"]
SHAPE = (1, 8, 14, 14)
REORDER_US = 2.0 + 2 * 4 * 8 * 14 * 14 / 2_000
"""At each end, of 12.5 kB read and written, which nobody has timed."""


def pictures() -> bytes:
    """Conv → Relu → Conv."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="n0", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], name="n1"),
        helper.make_node("Conv", ["b", "w"], ["z"], name="n2", pads=[1, 1, 1, 1]),
    ]
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype(np.float32)
    made = making.model(nodes, {"x": SHAPE}, ["z"], {"w": weight})
    made.ir_version = 10
    return bytes(made.SerializeToString())


@pytest.fixture
def given(organisation: Any, target_row: Any) -> Model:
    place = {"organisation": organisation, "target": target_row, "setting": Setting(threads=2)}
    return ingest.add_model(pictures(), "pictures", **place)


@pytest.fixture
def publish(given: Model) -> Callable[..., None]:
    """``publish(operator, "tvm", 2.0)``: a compiled kernel that takes 50 µs where the default takes 100."""

    def publish_one(operator: Any, route: str, ratio: float) -> None:
        place = {"operator": register_operator(operator), "target": given.target, "setting": given.setting}
        changes = {"kind": "c-abi", "method": "compiler", "needs": {}} if route == "tvm" else {}
        publish_result(catalogue.new_result(place, route, ratio, **changes))

    return publish_one


@pytest.fixture
def known(publish: Callable[..., None]) -> None:
    """Row-major: the convolutions take 100 µs by the default, the Relu 50 by a kernel."""
    graph = ModelGraph(pictures())
    for node, route, ratio in ((0, "eager", 1.0), (1, "eager", 1.0), (1, "tvm", 2.0)):
        found = graph.operator(node)
        assert found is not None
        publish(found[0].operator, route, ratio)


def form(*nodes: int) -> Any:
    graph = ModelGraph(pictures())
    [found] = forms_of(TypedNodes.of_graph(graph), [nodes], placed(graph))
    return found.placed.operator


def as_one(*nodes: int) -> Any:
    """In row-major."""
    graph = ModelGraph(pictures())
    parts = [placed(graph)[node] for node in nodes]
    return fused(parts, parts[-1].outputs).operator


def test_nodes_are_fused_only_channels_last_where_that_takes_less(
    api: Any, given: Model, known: None, publish: Any
) -> None:
    """As one in row-major the first two take longer than apart; `gains` says what the joint choice saves."""
    publish(as_one(0, 1), "tvm", 0.5)
    publish(form(0), "tvm", 1.0)
    publish(form(0, 1), "tvm", 4.0)
    passes = ["kernels", "fusion", "layout"]
    body = api.post("plans", {"model": given.pk, "passes": passes}).json()
    plan = ModelPlan.from_json(body["plan"])
    assert plan.nhwc == ChannelsLast(((0, 1),))
    check_plan(plan, LaidOutGraph(ModelGraph(pictures()), plan.nhwc), given.target.key, given.setting.key)
    assert body["predicted_us"] == pytest.approx(25 + 100 + 2 * REORDER_US)
    assert (body["gains"]["fusion"], body["gains"]["layout"]) == (
        1,
        pytest.approx(250 / body["predicted_us"]),
    )
    for fewer in (["kernels", "fusion"], PASSES):
        assert api.post("plans", {"model": given.pk, "passes": fewer}).json()["predicted_us"] == 250.0


def test_operators_run_channels_last_where_the_whole_takes_less(
    api: Any, given: Model, known: None, publish: Any
) -> None:
    publish(form(0), "tvm", 4.0)
    publish(form(1), "tvm", 2.0)
    body = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    plan = ModelPlan.from_json(body["plan"])
    assert plan.nhwc == ChannelsLast(((0,), (1,), (2,)))
    check_plan(plan, LaidOutGraph(ModelGraph(pictures()), plan.nhwc), given.target.key, given.setting.key)
    reorders_us = 2 * REORDER_US
    assert body["predicted_us"] == pytest.approx(25 + 50 + 25 + reorders_us)
    assert body["estimated_us"] == pytest.approx(reorders_us)
    assert (body["default_us"], body["unknown_nodes"]) == (300.0, 0)
    assert body["gains"] == {
        "kernels": pytest.approx(300 / 250), "layout": pytest.approx(250 / body["predicted_us"]),
    }  # fmt: skip
    why = {one["operator"]: (one["by"], one["reason"]) for one in body["choices"]}
    assert why[form(0).key][0] == "kernel" and "Channels-last" in why[form(0).key][1]
    assert api.get(f"plans/{body['id']}").json()["gains"] == body["gains"]
    alone = api.post("plans", {"model": given.pk}).json()
    assert "nhwc" not in alone["plan"] and alone["predicted_us"] == 250.0


def test_a_reorder_that_was_timed_is_no_estimate(api: Any, given: Model, known: None, publish: Any) -> None:
    graph = ModelGraph(pictures())
    kind = graph.type_of(graph.inputs[0])
    assert kind is not None
    publish(form(0), "tvm", 4.0)
    publish(form(1), "tvm", 2.0)
    publish(transpose(kind, ROW_MAJOR, NHWC), "tvm", 50.0)
    publish(transpose(kind, NHWC, ROW_MAJOR), "tvm", 25.0)
    body = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    assert (body["predicted_us"], body["estimated_us"]) == (2 + 25 + 50 + 25 + 4, 0.0)
    assert len(body["plan"]["steps"]) == 5 and all("operator" in one["by"] for one in body["plan"]["steps"])


def test_unknown_ones_are_asked_for_where_the_caller_says_so(api: Any, given: Model, known: None) -> None:
    Miss.objects.all().delete()
    silent = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    assert not Miss.objects.exists() and "nhwc" not in silent["plan"]
    body = api.post("plans", {"model": given.pk, "passes": PASSES, "layouts": 1}).json()
    assert [one.operator.key for one in Miss.objects.all()] == [form(0).key]
    assert silent["open_questions"] == 4 and silent["asking_s"] > 0  # a Conv, a Relu, two reorders
    [missed] = [one for one in body["choices"] if one["by"] == "miss"]
    assert missed["nodes"] == [0, 2] and "might save 200.0 µs" in missed["reason"]
    api.post("plans", {"model": given.pk, "passes": PASSES, "layouts": 64})
    asked = {one.operator.op_type for one in Miss.objects.all()}
    assert asked == {"Transpose+Conv+Transpose", "Relu", "Transpose"}  # and no Relu in row-major
    assert Operator.objects.filter(op_type="Relu").count() == 2


def test_the_command_says_each_passs_gain_and_what_asking_would_cost(
    given: Model, known: None, publish: Any
) -> None:
    out = StringIO()
    call_command("plan", "pictures", "--passes", "kernels,layout", stdout=out)
    said = out.getvalue()
    assert "operators that layouts would need are not known" in said and "--layouts N" in said
    assert "would take one worker about" in said
    publish(form(0), "tvm", 4.0)
    publish(form(1), "tvm", 2.0)
    out = StringIO()
    call_command("plan", "pictures", "--passes", "kernels,layout", stdout=out)
    said = out.getvalue()
    assert "Channels-last: 3 nodes in 3 operators" in said and "of the predicted time are estimates" in said
    assert "Gains by pass, predicted: kernels 1.20×, layout" in said


def test_the_command_weighs_branches_and_loops_by_a_profile(
    organisation: Any, target_row: Any, publish: Any, tmp_path: Path
) -> None:
    place = {"organisation": organisation, "target": target_row, "setting": Setting(threads=2)}
    ingest.add_model(DATA, "seeing", **place)
    for canonical, _ in GRAPH.operators().values():
        publish(canonical.operator, "onnxruntime", 1.0)
    profile = profile_model(GRAPH, [feed(False, 12)], 1)
    path = tmp_path / "profile.json"

    def said(*words: str) -> str:
        out = StringIO()
        call_command("plan", "seeing", *words, stdout=out)
        return out.getvalue()

    assert "the defaults take 1000.0 µs" in said()  # ten operators, of 100 µs each
    assert "no time is known of 0 of 10 nodes" in said()
    path.write_text(json.dumps(profile.to_json()))
    assert "the defaults take 4300.0 µs" in said("--profile", str(path))  # three of them twelve times
    for wrong, why in (("{", "cannot be read"), (json.dumps({"profile": 1}), "must be a list")):
        path.write_text(wrong)
        with pytest.raises(CommandError, match=why):
            said("--profile", str(path))


def test_a_structure_that_contradicts_its_operators_has_no_layouts(
    api: Any, given: Model, known: None, publish: Any
) -> None:
    publish(form(0), "tvm", 4.0)
    sent = {"target": given.target.key, "setting": given.setting.key, "passes": PASSES}
    structure = structure_of(ModelGraph(pictures())).to_json()
    answer = api.post("plans", sent | {"structure": structure})
    assert "nhwc" in answer.json()["plan"]
    for change in (None, [1, 8, 14, 14], [1, 1, 8, 14, 3]):  # of no known shape, of three dimensions, another
        structure["values"][structure["nodes"][0]["outputs"][0]] = change
        answer = api.post("plans", sent | {"structure": structure})
        assert answer.status_code in (200, 201), answer.json()


@pytest.mark.parametrize("passes", [PASSES, ["kernels", "fusion", "layout"]])
def test_planning_takes_as_many_times_longer_as_there_are_more_operators(
    passes: list[str], given: Model, known: None, publish: Any
) -> None:
    """When all costs are known; what is fused is made of a few operators again and again."""
    publish(form(0), "tvm", 4.0)
    publish(form(1), "tvm", 2.0)
    for nodes in ((0, 1), (1, 2), (0, 1, 2)):
        publish(as_one(*nodes), "tvm", 0.8)
        publish(form(*nodes), "tvm", 1.25)

    def took(convolutions: int) -> float:
        structure = _chain(convolutions)
        start = time.thread_time()
        found = planning.make_plan(structure, given.target, given.setting, given.organisation, passes)
        seconds = time.thread_time() - start
        assert found.plan.nhwc.nodes == 2 * convolutions - 1
        assert any(len(unit) == 3 for unit in found.plan.nhwc.units) == ("fusion" in passes)
        return seconds

    took(20)  # what is imported first
    few = min(took(100) for _ in range(2))
    assert took(1000) < 25 * few, "ten times as many; what goes over pairs of them takes a hundred times"


def _chain(convolutions: int) -> Any:
    nodes = [helper.make_node("Conv", ["v0", "w"], ["v1"], pads=[1, 1, 1, 1])]
    for at in range(1, convolutions):
        nodes.append(helper.make_node("Relu", [f"v{at}"], [f"r{at}"]))
        nodes.append(helper.make_node("Conv", [f"r{at}", "w"], [f"v{at + 1}"], pads=[1, 1, 1, 1]))
    made = making.model(nodes, {"v0": SHAPE}, [f"v{convolutions}"], {"w": np.ones((8, 8, 3, 3), np.float32)})
    made.ir_version = 10
    return structure_of(ModelGraph(made.SerializeToString()))
