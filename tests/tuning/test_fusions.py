"""Fused operators in plans of the service: looked up, chosen by their times, asked for, and found again by
every later model that has them."""

# ruff: noqa: F811 - fixtures of another file

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import numpy as np
import pytest
from django.core.management import call_command
from onnx import TensorProto, helper

from catalog.best.publishing import publish as publish_result
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Implementation, Miss, Model, Operator
from catalog.registry import register_operator
from opatlas.graph.fused import operator_of
from opatlas.graph.fusion.choosing import FusionQuestion
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.identity import Setting
from opatlas.plan.checking import check_plan
from opatlas.plan.plan import ByBodies, ModelPlan
from opatlas.plan.profiling import profile_model
from tests.catalog import making as catalogue
from tests.tuning.fakes import FakeRoute
from tests.tuning.graph import making
from tests.tuning.test_planning import (  # noqa: F401 - fixtures
    FEED,
    _chain,
    given,
    known,
    own_folders,
    publish,
)
from tuning import ingest, planning
from tuning.fusions import operators_of, unknown_fusions, with_fusions
from tuning.graph.passes.draft import KnownOperator, PlanDraft
from tuning.management.commands.plan import table as plan_table

pytestmark = pytest.mark.django_db
PASSES = ["kernels", "fusion"]


@pytest.fixture
def publish_at(given: Model) -> Callable[..., None]:
    """``publish_at(operator, "tvm", 2.0)``: a result at the model's place; a compiled kernel by TVM."""

    def publish_one(operator: Any, route: str, ratio: float, **changes: Any) -> None:
        place = {"operator": register_operator(operator), "target": given.target, "setting": given.setting}
        if route == "tvm":
            changes = {"kind": "c-abi", "method": "compiler", "needs": {}} | changes
        publish_result(catalogue.new_result(place, route, ratio, **changes))

    return publish_one


@pytest.fixture
def publish_fused(publish_at: Callable[..., None]) -> Callable[..., str]:
    """``publish_fused((0, 1), 2.0)``: a kernel for these nodes of the model together; gives its key."""

    def publish_one(nodes: tuple[int, ...], ratio: float, **changes: Any) -> str:
        graph = ModelGraph(_chain())
        operator = operator_of(graph, nodes, graph.nodes[nodes[-1]].outputs).operator
        publish_at(operator, "tvm", ratio, **changes)
        return operator.key

    return publish_one


def test_nodes_run_as_one_operator_where_that_takes_less(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
) -> None:
    """Relu by its kernel and Exp by the default take 25 + 100 µs, together 50."""
    key = publish_fused((0, 1), 2.0)
    body = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    plan = ModelPlan.from_json(body["plan"])
    check_plan(plan, ModelGraph(_chain()), given.target.key, given.setting.key)
    assert [step.nodes for step in plan.steps] == [(0, 1), (2,), (3,)]
    assert [step.predicted_us for step in plan.steps] == [50.0, 25.0, 100.0]
    assert [one.median_us for one in plan.steps[0].over] == [125.0]
    assert (body["predicted_us"], body["default_us"], body["unknown_nodes"]) == (175.0, 400.0, 0)
    by = {one["operator"]: one for one in body["choices"]}
    assert (by[key]["by"], by[key]["nodes"], by[key]["route"]) == ("kernel", [0, 1], "tvm")
    ops = {Operator.objects.get(key=one).op_type: found["by"] for one, found in by.items()}
    assert ops == {"Relu": "kernel", "Exp": "fused", "Neg": "default", "Relu+Exp": "kernel"}
    alone = api.post("plans", {"model": given.pk}).json()
    assert alone["passes"] == ["kernels"] and alone["predicted_us"] == 250.0


def test_one_that_takes_no_less_than_its_parts_does_not_run(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
) -> None:
    publish_fused((0, 1), 0.8)
    publish_fused((2, 3), 3.0, kind="recipe", method="library", needs={"torch": "2.13.0"})
    body = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    assert [step["nodes"] for step in body["plan"]["steps"]] == [[0], [1], [2], [3]]
    assert body["predicted_us"] == 250.0


def test_found_once_it_is_a_hit_for_every_later_model_that_has_it(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
    organisation: Any,
) -> None:
    key = publish_fused((0, 1), 2.0)
    nodes = [
        helper.make_node("Tanh", ["in"], ["a"], name="other"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["out"]),
    ]
    made = making.model(nodes, {"in": [64]}, ["out"])
    made.ir_version = 10
    place = {"organisation": organisation, "target": given.target, "setting": Setting(threads=2)}
    later = ingest.add_model(made.SerializeToString(), "later", **place)
    body = api.post("plans", {"model": later.pk, "passes": PASSES}).json()
    [fused] = [step for step in body["plan"]["steps"] if len(step["nodes"]) > 1]
    assert fused["nodes"] == [1, 2] and fused["by"]["operator"] == key
    first = api.post("plans", {"model": given.pk, "passes": PASSES}).json()["plan"]["steps"][0]
    assert fused["by"]["artifact"] == first["by"]["artifact"]


def test_one_that_is_revoked_runs_in_parts_from_the_next_plan_on(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
) -> None:
    key = publish_fused((0, 1), 2.0)
    withdraw(Implementation.objects.filter(operator__key=key), "it was wrong")
    body = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    assert [step["nodes"] for step in body["plan"]["steps"]] == [[0], [1], [2], [3]]


def test_unknown_ones_are_asked_for_where_the_caller_says_so_the_most_promising_first(
    api: Any,
    given: Model,
    known: None,
) -> None:
    Miss.objects.all().delete()
    silent = api.post("plans", {"model": given.pk, "passes": PASSES}).json()
    assert not Miss.objects.exists() and all(one["by"] != "miss" for one in silent["choices"])
    body = api.post("plans", {"model": given.pk, "passes": PASSES, "fusions": 2}).json()
    asked = {one.operator.op_type: (one.calls, one.state) for one in Miss.objects.all()}
    # 25 + 100 + 25 + 100 µs but for the largest part; then those of three nodes, which save 125 or 50
    assert asked == {"Relu+Exp+Relu+Neg": (1.0, "waiting"), "Exp+Relu+Neg": (1.0, "waiting")}
    missed = [one for one in body["choices"] if one["by"] == "miss"]
    assert [one["nodes"] for one in missed] == [[0, 1, 2, 3], [1, 2, 3]]
    assert "might save 150.0 µs" in missed[0]["reason"] and missed[0]["state"] == "waiting"


def looping() -> bytes:
    """Relu → Exp in each of five rounds, and Exp after them."""
    ends = [("turn", TensorProto.INT64, []), ("go", TensorProto.BOOL, []), ("c", TensorProto.FLOAT, [64])]
    body = helper.make_graph(
        [helper.make_node("Relu", ["c"], ["r"]), helper.make_node("Exp", ["r"], ["d"])],
        "body", [helper.make_tensor_value_info(*one) for one in ends],
        [helper.make_empty_tensor_value_info(name) for name in ("go", "d")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Loop", ["five", "", "x"], ["l"], body=body),
        helper.make_node("Exp", ["l"], ["y"]),
    ]
    made = making.model(nodes, {"x": [64]}, ["y"], {"five": np.array(5)})
    made.ir_version = 10
    return bytes(made.SerializeToString())


def test_in_a_loop_nodes_run_as_one_operator_and_count_as_often_as_it_goes_round(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
) -> None:
    """What another model has in its body is what this one has; and nothing is fused across a body's end."""
    graph = ModelGraph(looping())
    sent = {
        "structure": structure_of(graph).to_json(), "target": given.target.key, "setting": given.setting.key,
        "passes": PASSES, "profile": profile_model(graph, [FEED], 1).to_json(),
    }  # fmt: skip
    body = api.post("plans", sent | {"fusions": 8}).json()
    [missed] = [one for one in body["choices"] if one["by"] == "miss"]  # the one pair that there is
    assert (missed["nodes"], missed["in_bodies"]) == ([], ["0/0/0", "0/0/1"])
    assert "might save 125.0 µs" in missed["reason"] and missed["state"] == "waiting"  # 25 in each round
    assert (body["predicted_us"], body["default_us"]) == (5 * 125 + 100, 5 * 200 + 100)
    key = publish_fused((0, 1), 2.0)
    assert key == missed["operator"]
    body = api.post("plans", sent).json()
    plan = ModelPlan.from_json(body["plan"])
    check_plan(plan, graph, given.target.key, given.setting.key)
    assert isinstance(plan.steps[0].by, ByBodies)
    [inner] = plan.steps[0].by.plans
    assert [(step.nodes, step.predicted_us) for step in inner.steps] == [((0, 1), 50.0)]
    assert [by.operator for by in plan.kernels] == [key]
    assert (plan.steps[0].predicted_us, body["predicted_us"]) == (250.0, 350.0)
    [fused] = [one for one in body["choices"] if one["operator"] == key]
    assert (fused["by"], fused["in_bodies"]) == ("kernel", ["0/0/0", "0/0/1"])


def test_the_command_says_what_it_would_ask_for(given: Model, known: None, publish_fused: Any) -> None:
    publish_fused((0, 1), 2.0)
    out = StringIO()
    call_command("plan", "chain", "--passes", "kernels,fusion", stdout=out)
    said = out.getvalue()
    assert "3 steps, 2 by kernels, 1 of several nodes" in said and "Relu+Exp" in said
    assert "fused operators of the model are not known" in said and "--fusions N" in said
    before = Miss.objects.count()
    call_command("plan", "chain", "--passes", "kernels", "fusion", "--fusions", "1", stdout=StringIO())
    assert Miss.objects.count() == before + 1


def test_what_has_never_paid_elsewhere_in_the_model_is_not_asked_for(
    given: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of forty equal pairs thirty are known, each five times as slow as one operator."""
    table = dict[str, KnownOperator]()
    monkeypatch.setattr(
        planning._Bests, "published", lambda _, keys: {k: table[k] for k in keys if k in table}
    )
    nodes = [helper.make_node("Relu", [f"x{at}"], [f"r{at}"]) for at in range(40)]
    nodes += [helper.make_node("Exp", [f"r{at}"], [f"y{at}"]) for at in range(40)]
    sizes, outputs = {f"x{at}": [64 + at] for at in range(40)}, [f"y{at}" for at in range(40)]
    made = making.model(nodes, sizes, outputs)
    made.ir_version = 10
    graph = ModelGraph(made.SerializeToString())
    for at in range(30):
        pair = (at, 40 + at)
        key = operator_of(graph, pair, graph.nodes[pair[1]].outputs).operator.key
        table[key] = KnownOperator(200.0, "onnxruntime", onnxruntime_us=1000.0)
    for canonical, _ in graph.operators().values():
        table[register_operator(canonical.operator).key] = KnownOperator(100.0, "eager")
    structure = structure_of(graph)
    place = given.target, given.setting, given.organisation
    found = planning.make_plan(structure, *place, PASSES)
    assert found.hopeless.known == 30 and not found.hopeless.wrong
    assert found.hopeless.count + found.open_questions == 10 and found.hopeless.count >= 6
    assert given.organisation is not None
    kept, _ = planning.keep_plan(found, given.organisation, *place[:2], given)
    assert planning.kept_plan(kept).hopeless == found.hopeless
    assert f"{found.hopeless.count} more are not asked for" in plan_table(given, kept, found)


def test_a_structure_that_contradicts_its_operators_has_no_fusions(
    api: Any,
    given: Model,
    known: None,
    publish_fused: Any,
) -> None:
    publish_fused((0, 1), 2.0)
    structure = structure_of(ModelGraph(_chain())).to_json()
    sent = {"target": given.target.key, "setting": given.setting.key, "passes": PASSES}
    assert len(api.post("plans", sent | {"structure": structure}).json()["plan"]["steps"]) == 3
    for node in structure["nodes"]:
        node["tensors"] = [structure["outputs"][0]]  # what nobody has made by then
    answer = api.post("plans", sent | {"structure": structure, "passes": ["fusion"]})
    assert answer.status_code == 201 and len(answer.json()["plan"]["steps"]) == 1


def test_places_that_share_a_node_count_once(given: Model) -> None:
    """Of 0–1, 1–2 and 2–3, one operator each time, two can be fused."""
    nodes = [helper.make_node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(4)]
    made = making.model(nodes, {"v0": [64]}, ["v4"])
    made.ir_version = 10
    structure = structure_of(ModelGraph(made.SerializeToString()))
    draft = PlanDraft(structure, {})
    known = operators_of(structure.operator_keys)
    draft = with_fusions(draft, given.target, given.setting, known, lambda keys: {})
    pairs = [at for at, one in enumerate(draft.fusions) if len(one.nodes) == 2]
    found = unknown_fusions(replace(draft, questions=tuple(FusionQuestion(at, 10.0) for at in pairs)))
    assert len(found) == 1 and found[0].gain_us == 20.0
    assert found[0].places == (((0,), (1,)), ((2,), (3,)))


def test_a_page_makes_its_plan_without_them(given: Model, known: None, publish_fused: Any) -> None:
    publish_fused((0, 1), 2.0)
    structure = planning.structure_of_model(given)
    made = planning.make_plan(structure, given.target, given.setting, given.organisation)
    assert made.passes == ("kernels",) and not made.fusions


@pytest.mark.django_db(transaction=True)
def test_what_was_asked_for_is_explored_like_any_operator(
    api: Any,
    given: Model,
    known: None,
    worker_with: Any,
) -> None:
    Miss.objects.all().delete()
    sent = {"model": given.pk, "passes": PASSES, "fusions": 1}
    api.post("plans", sent)
    worker_with(FakeRoute("quick", offers=[{"ratio": 2.5}])).run_until_idle()
    best = Best.objects.get(operator__op_type="Relu+Exp+Relu+Neg", rank=0)
    assert best.route == "quick"
    [missed] = [one for one in api.post("plans", sent).json()["choices"] if one["by"] == "miss"]
    assert missed["nodes"] == [1, 2, 3]  # the first is known now: a library has it, which runs in no plan
