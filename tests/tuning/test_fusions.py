"""Fused operators in plans of the service: looked up, chosen by their times, asked for, and found again by
every later model that has them."""

# ruff: noqa: F811 - fixtures of another file

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from onnx import helper

from catalog.best.publishing import publish as publish_result
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Implementation, Miss, Model, Operator
from catalog.registry import register_operator
from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.identity import Setting
from opatlas.plan.checking import check_plan
from opatlas.plan.plan import ModelPlan
from tests.catalog import making as catalogue
from tests.tuning.fakes import FakeRoute
from tests.tuning.graph import making
from tests.tuning.test_planning import _chain, given, known, own_folders, publish  # noqa: F401 - fixtures
from tuning import ingest, planning
from tuning.fusions import UnknownFusion, unknown_fusions
from tuning.graph.fusion.choosing import FusionQuestion

pytestmark = pytest.mark.django_db
PASSES = ["kernels", "fusion"]


@pytest.fixture
def publish_fused(given: Model) -> Callable[..., str]:
    """``publish_fused((0, 1), 2.0)``: a kernel for these nodes of the model together; gives its key."""

    def publish_one(nodes: tuple[int, ...], ratio: float, **changes: Any) -> str:
        graph = ModelGraph(_chain())
        operator = operator_of(graph, nodes, graph.nodes[nodes[-1]].outputs).operator
        place = {"operator": register_operator(operator), "target": given.target, "setting": given.setting}
        changes = {"kind": "c-abi", "method": "compiler", "needs": {}} | changes
        publish_result(catalogue.new_result(place, "tvm", ratio, **changes))
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
    from tuning.fusions import fusions_of

    nodes = [helper.make_node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(4)]
    made = making.model(nodes, {"v0": [64]}, ["v4"])
    made.ir_version = 10
    structure = structure_of(ModelGraph(made.SerializeToString()))
    fusions = fusions_of(structure, given.target, given.setting)
    pairs = [at for at, one in enumerate(fusions) if len(one.nodes) == 2]
    found: list[UnknownFusion] = unknown_fusions(fusions, [FusionQuestion(at, 10.0) for at in pairs])
    assert len(found) == 1 and found[0].gain_us == 20.0
    assert found[0].places == ((0, 1), (2, 3))


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
