"""Plans that the service makes: what they choose and why, over REST and by the command, and that they run."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from onnx import helper

from catalog.models import Miss, Model, Operator, StoredPlan, StoredStructure
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import structure_of
from opatlas.identity import Setting
from opatlas.load.signing import verify_plan
from opatlas.plan.checking import check_plan
from opatlas.plan.plan import ModelPlan
from tests.catalog import making as catalogue
from tests.opatlas.plan.making import Kernels, assert_same, executor, wanted
from tests.tuning import fakes
from tests.tuning.graph import making
from tuning import ingest, planning

pytestmark = pytest.mark.django_db
FEED = {"x": np.linspace(-1, 1, 64, dtype=np.float32)}


@pytest.fixture(autouse=True)
def own_folders(configure: Any, tmp_path: Path, uploads_at_once: None) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home", store=tmp_path / "store")


def _chain() -> bytes:
    """Relu → Exp → Relu → Neg over [64]."""
    ops = ("Relu", "Exp", "Relu", "Neg")
    names = ["x", "v1", "v2", "v3", "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]], name=f"n{i}") for i, op in enumerate(ops)]
    made = making.model(nodes, {"x": [64]}, ["y"])
    made.ir_version = 10
    return made.SerializeToString()


@pytest.fixture
def given(organisation: Any, target_row: Any) -> Model:
    return ingest.add_model(
        _chain(), "chain", organisation=organisation, target=target_row, setting=Setting(threads=2)
    )


@pytest.fixture
def publish(given: Model) -> Callable[..., Any]:
    """``publish("Relu", "cpp", 2.0, kind="c-abi")``: a verified result for the model's operator."""

    def publish_one(op: str, route: str, ratio: float, **changes: Any) -> Any:
        from catalog.best.publishing import publish

        operator = Operator.objects.get(op_type=op, models__model=given)
        place = {"operator": operator, "target": given.target, "setting": given.setting}
        return publish(catalogue.new_result(place, route, ratio, **changes))

    return publish_one


@pytest.fixture
def known(publish: Callable[..., Any]) -> None:
    """Relu by a faster kernel, Exp by a slower one, Neg by a library's call alone."""
    publish("Relu", "cpp", 4.0, kind="c-abi", method="manual", needs={})
    publish("Exp", "eager", 1.0)
    publish("Exp", "cpp", 0.8, kind="c-abi", method="manual", needs={})
    publish("Neg", "onednn", 2.0)


def _by_op(choices: Any) -> dict[str, Any]:
    summaries = {one["operator"]: one for one in choices}
    return {row.op_type: summaries[row.key] for row in Operator.objects.filter(key__in=summaries)}


def test_a_node_runs_by_its_kernel_where_that_is_published_as_faster(
    api: Any, given: Model, known: None
) -> None:
    answer = api.post("plans", {"model": given.pk})
    assert answer.status_code == 201, answer.json()
    body = answer.json()
    assert (body["model"], body["key"], body["target"]) == (given.pk, given.structure_key, given.target.key)
    assert body["passes"] == ["kernels"] and body["signature"] == "" and body["measured"] is None
    plan = ModelPlan.from_json(body["plan"])
    graph = ModelGraph(_chain())
    check_plan(plan, graph, given.target.key, given.setting.key)
    assert [step.nodes for step in plan.steps] == [(0,), (1,), (2,), (3,)]
    assert [step.predicted_us for step in plan.steps] == [25.0, 100.0, 25.0, 100.0]
    assert plan.steps[0].over[0].said == "the default alone, not in place"
    assert (body["predicted_us"], body["default_us"], body["unknown_nodes"]) == (250.0, 400.0, 0)
    chosen = _by_op(body["choices"])
    relu = chosen["Relu"]
    assert (relu["by"], relu["nodes"], relu["ratio"], relu["route"]) == ("kernel", [0, 2], 4.0, "cpp")
    assert relu["ratio_low"] < 4.0 < relu["ratio_high"] and len(relu["artifact"]) == 64
    assert relu["link"] == f"/operators/{relu['operator']}" and relu["charged"] is False
    assert (chosen["Exp"]["by"], chosen["Neg"]["by"]) == ("default", "default")
    assert "not faster" in chosen["Exp"]["reason"] and "onednn" in chosen["Neg"]["reason"]
    again = api.post("plans", {"model": given.pk})
    assert (again.status_code, again.json()["id"]) == (200, body["id"])
    assert api.get(f"plans/{body['id']}").json() == again.json()


def test_only_kernels_as_exact_as_is_asked_for_take_part(api: Any, given: Model, publish: Any) -> None:
    """Errors are shares of what is allowed: a kernel's beside ONNX Runtime's at the same operator."""
    for op, mine, theirs in (("Relu", 0.05, 0.02), ("Exp", 0.03, 0.02), ("Neg", 0.0, None)):
        publish(op, "cpp", 4.0, kind="c-abi", method="manual", needs={}, max_error=mine)
        if theirs is not None:
            publish(op, "onnxruntime", 1.0, max_error=theirs)

    def planned(**asked: float) -> tuple[list[list[int]], dict[str, Any]]:
        body = api.post("plans", {"model": given.pk, **asked}).json()
        by_kernel = [one["nodes"] for one in body["plan"]["steps"] if "operator" in one["by"]]
        return by_kernel, _by_op(body["choices"])

    assert planned()[0] == [[0], [1], [2], [3]]
    assert planned(most_error=3)[0] == [[0], [1], [2]]
    by_kernel, why = planned(most_error=2)
    assert by_kernel == [[1]] and why["Exp"]["by"] == "kernel"
    assert why["Relu"]["reason"] == (
        "Its kernel's error is 2.5 times ONNX Runtime's: at most 2 times is asked for."
    )
    assert "Nobody knows how exact" in why["Neg"]["reason"]
    assert api.post("plans", {"model": given.pk, "most_error": 0.5}).status_code == 400
    out = StringIO()
    call_command("plan", "chain", "--most-error", "2", stdout=out)
    assert ", 1 by kernels" in out.getvalue()


def test_a_plan_of_the_service_gives_what_onnx_runtime_gives(given: Model, known: None) -> None:
    graph = ModelGraph(_chain())
    made = planning.make_plan(
        planning.structure_of_model(given), given.target, given.setting, given.organisation
    )
    plan = ModelPlan.from_json(json.loads(json.dumps(made.plan.to_json())))
    assert len(plan.kernels) == 2
    runs = executor(graph, Kernels(graph), plan)
    assert_same(runs.run(FEED), wanted(_chain(), FEED))
    runs.close()


def test_what_nothing_is_known_of_becomes_misses_once(api: Any, given: Model, publish: Any) -> None:
    Miss.objects.all().delete()
    publish("Relu", "cpp", 4.0, kind="c-abi", needs={})
    body = api.post("plans", {"model": given.pk}).json()
    chosen = _by_op(body["choices"])
    assert [(chosen[op]["by"], chosen[op]["state"]) for op in ("Exp", "Neg")] == [("miss", "waiting")] * 2
    assert {one.operator.op_type: one.calls for one in Miss.objects.all()} == {"Exp": 1.0, "Neg": 1.0}
    assert body["unknown_nodes"] == 2 and body["plan"]["steps"][1]["predicted_us"] is None
    assert (body["predicted_us"], body["default_us"]) == (50.0, 200.0)


def test_a_structure_alone_is_planned_without_being_kept(api: Any, given: Model, known: None) -> None:
    structure = structure_of(ModelGraph(_chain())).to_json()
    sent = {"structure": structure, "target": given.target.key, "setting": given.setting.key}
    body = api.post("plans", sent).json()
    assert body["model"] is None and body["plan"] == api.post("plans", {"model": given.pk}).json()["plan"]
    assert StoredStructure.objects.count() == 1
    structure["operators"] = ["o1:" + "0" * 64] * 3
    unseen = api.post("plans", sent).json()
    assert [one["by"] for one in unseen["choices"]] == ["miss"]
    assert "never seen" in unseen["choices"][0]["reason"] and unseen["unknown_nodes"] == 4


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "one of the two"),
        ({"model": 987654}, 404, "There is no model 987654"),
        ({"model": 0}, 400, "greater than or equal to 1"),
        ({"passes": ["magic"]}, 400, "no pass 'magic'; there are: kernels, fusion"),
        ({"fusions": 65}, 400, "less than or equal to 64"),
        ({"passes": "kernels"}, 400, "list"),
        ({"setting": "s1:" + "0" * 64}, 400, "A target is needed"),
        ({"target": "t1:" + "0" * 64}, 404, "target"),
        ({"target": "mars"}, 400, "A target is its key"),
        ({"target": fakes.TARGET.to_json(), "setting": {"threads": 4096}}, 400, "threads"),
        ({"target": catalogue.GPU.to_json()}, 400, "Plans are made for CPUs"),
        ({"model": None, "structure": {"structure": 1}}, 400, "'values' must be a list"),
        ({"model": None, "structure": 5, "target": "here"}, 400, "is a JSON object, not int"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_sentence(
    api: Any, given: Model, body: dict[str, Any], status: int, words: str
) -> None:
    sent = {"model": given.pk} | body if body else {}
    answer = api.post("plans", {name: value for name, value in sent.items() if value is not None})
    assert answer.status_code == status and words in answer.content.decode()
    assert StoredPlan.objects.count() == 0


def test_an_operator_list_and_a_model_from_before_say_why_there_is_no_plan(
    api: Any, given: Model, organisation: Any
) -> None:
    records = json.dumps([{"op": "aten.relu.default", "inputs": [{"shape": [4], "dtype": "float32"}]}])
    place = {"organisation": organisation, "target": given.target, "setting": given.setting}
    listed = ingest.add_model(records.encode(), "list", **place)
    assert "An operator list has no structure" in api.post("plans", {"model": listed.pk}).content.decode()
    StoredStructure.objects.all().delete()
    answer = api.post("plans", {"model": given.pk})
    assert answer.status_code == 400 and "before structures were" in answer.content.decode()


def test_another_tenants_model_and_plan_are_not_there(
    api: Any, tenant_api: Any, given: Model, known: None
) -> None:
    number = api.post("plans", {"model": given.pk}).json()["id"]
    report = {"plan_us": 1, "default_us": 2, "ratio": 2, "ratio_low": 2, "ratio_high": 2, "chosen": True}
    assert tenant_api.post("plans", {"model": given.pk}).status_code == 404
    assert tenant_api.get(f"plans/{number}").status_code == 404
    assert tenant_api.post(f"plans/{number}/measured", report).status_code == 404
    assert api.get(f"plans/{number}").json()["measured"] is None


def test_what_a_plan_came_to_is_kept_beside_it(api: Any, given: Model, known: None) -> None:
    number = api.post("plans", {"model": given.pk}).json()["id"]
    report = {
        "plan_us": 80.0, "default_us": 100.0, "ratio": 1.25, "ratio_low": 1.2, "ratio_high": 1.3,
        "chosen": True,
    }  # fmt: skip
    assert api.post(f"plans/{number}/measured", report).json()["reports"] == 1
    assert api.post(f"plans/{number}/measured", report | {"plan_us": 81.0}).json()["reports"] == 2
    told = api.get(f"plans/{number}").json()["measured"]
    assert (told["plan_us"], told["ratio"], told["reports"]) == (81.0, 1.25, 2)
    for wrong in ({"plan_us": "nan"}, {"ratio": 9.0}, {"ratio": -1}, {"chosen": "perhaps"}):
        assert api.post(f"plans/{number}/measured", report | wrong).status_code == 400
    again = api.post("plans", {"model": given.pk}).json()
    assert again["id"] == number and again["measured"]["reports"] == 2


TIMELINE = {
    "timeline": 1, "rows": ["stream 0", "stream 1"],
    "boxes": [[0, 0.0, 5.0, "Conv", "", "cpp relu"], [1, 2.0, 7.5, "Relu", "", ""]],
    "waits": [[1, 0.0, 2.0, 1.5, "Conv", ""]], "left_out": 0,
}  # fmt: skip


def test_the_last_timeline_of_a_plan_is_kept_for_its_organisation(
    api: Any, tenant_api: Any, given: Model, known: None
) -> None:
    path = f"plans/{api.post('plans', {'model': given.pk}).json()['id']}/timeline"
    assert "Nobody has reported a timeline" in api.get(path).content.decode()
    assert tenant_api.post(path, TIMELINE).status_code == 404
    assert api.get(path).status_code == 404
    told = api.post(path, TIMELINE).json()
    assert told["timeline"] == TIMELINE and told["took_us"] == 9.5
    last = TIMELINE | {"waits": [], "left_out": 3}
    api.post(path, last)
    assert api.get(path).json()["timeline"] == last
    assert tenant_api.get(path).status_code == 404


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"timeline": 2}, "version 1 is read"),
        ({"boxes": []}, "list of 1 to 2000"),
        ({"boxes": [[0, 0.0, 1.0, "a", ""]] * 2001}, "list of 1 to 2000"),
        ({"boxes": [[2, 0.0, 1.0, "a", ""]]}, "from 0 to 1"),
        ({"boxes": [[0, -1.0, 1.0, "a", ""]]}, "microseconds from 0"),
        ({"rows": ["a" * 121]}, "at most 120 characters"),
        ({"waits": {"a": 1}}, "list of 0 to 2000"),
    ],
)
def test_what_is_no_timeline_is_refused_in_a_sentence(
    api: Any, given: Model, known: None, changed: dict[str, Any], words: str
) -> None:
    path = f"plans/{api.post('plans', {'model': given.pk}).json()['id']}/timeline"
    answer = api.post(path, TIMELINE | changed)
    assert answer.status_code == 400 and words in answer.content.decode()
    assert api.post(path, [TIMELINE]).status_code == 400
    assert api.get(path).status_code == 404


def test_plans_are_bounded_and_so_are_queries(
    api: Any, given: Model, known: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    structure = planning.structure_of_model(given)
    place = (given.target, given.setting, given.organisation)
    with CaptureQueriesContext(
        connection,
    ) as taken:
        made = planning.make_plan(structure, *place)
    assert len(taken) <= 6
    monkeypatch.setattr(planning, "MOST_PLANS", 2)
    api.post("plans", {"model": given.pk})
    sent = structure.to_json()
    for changed in range(3):
        sent["model"] = "m1:" + str(changed) * 64
        api.post("plans", {"structure": sent, "target": given.target.key, "setting": given.setting.key})
    kept = list(StoredPlan.objects.order_by("pk").values_list("key", flat=True))
    assert kept == ["m1:" + "1" * 64, "m1:" + "2" * 64]
    assert made.predicted_us == 250.0


def test_the_command_prints_the_plan_and_signs_it(given: Model, known: None, configure: Any) -> None:
    out = StringIO()
    call_command("plan", "chain", stdout=out)
    said = out.getvalue()
    assert "Relu" in said and "cpp" in said and "4.00×" in said
    assert "Predicted 250.0 µs where the defaults take 400.0 µs" in said
    out = StringIO()
    call_command("plan", str(given.pk), "--json", "--sign", stdout=out)
    document = json.loads(out.getvalue())
    row = StoredPlan.objects.get(pk=document["id"])
    from catalog.models import Signer

    key = bytes.fromhex(Signer.objects.get(sha256=row.signer).public_key)
    verify_plan(document["plan"], bytes.fromhex(document["signature"]), [key])
    for wrong in (["nothing"], ["chain", "--setting", "s1:" + "0" * 64], ["chain", "--passes", "magic"]):
        with pytest.raises(CommandError):
            call_command("plan", *wrong)
