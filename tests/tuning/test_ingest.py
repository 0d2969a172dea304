"""Models as input: operators with counts, looked up, and a report of what is known."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from onnx import helper

from catalog.charging import charging
from catalog.models import Miss, Model, ModelOperator, Operator, Organisation, StoredStructure
from opatlas.errors import InvalidModel
from opatlas.graph.normal import ModelGraph
from opatlas.graph.structure import ModelStructure
from opatlas.identity import Setting
from tests.catalog import making as catalogue
from tests.tuning import fakes
from tests.tuning.graph import making
from tuning import ingest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_folders(configure: Any, tmp_path: Path) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home", store=tmp_path / "store")


@pytest.fixture
def add(organisation: Any, target_row: Any) -> Callable[..., Model]:
    """``add(bytes, name="m")``: a model given for a target that is served."""

    def add_one(data: bytes, name: str = "m", **options: Any) -> Model:
        return ingest.add_model(
            data, name, organisation=organisation, target=target_row, setting=Setting(threads=2), **options
        )

    return add_one


@pytest.fixture
def publish(target_row: Any) -> Callable[..., Any]:
    """``publish(report_row, "onednn", 2.0)``: a verified result for a model's operator."""

    def publish_one(row: ingest.ReportedOperator, route: str, ratio: float, **changes: Any) -> Any:
        from catalog.best.publishing import publish
        from catalog.registry import register_setting

        setting = register_setting(Setting(threads=2))
        operator = Operator.objects.get(pk=row.operator.pk)
        place = {"operator": operator, "target": target_row, "setting": setting}
        return publish(catalogue.new_result(place, route, ratio, **changes))

    return publish_one


def _three() -> bytes:
    """Relu → Exp → Relu → Neg on [4]: three operators, one of them called twice."""
    ops = ("Relu", "Exp", "Relu", "Neg")
    nodes = [helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i, op in enumerate(ops)]
    return making.model(nodes, {"v0": [4]}, ["v4"]).SerializeToString()


def _rows(report: ingest.ModelReport) -> dict[str, ingest.ReportedOperator]:
    return {row.operator.op_type: row for row in report.rows}


def test_a_models_operators_are_asked_for_and_missed(add: Callable[..., Model]) -> None:
    model = add(_three())
    report = ingest.model_report(model)
    assert (model.form, model.calls, model.hits_before, model.unmapped) == ("onnx", 4, 0.0, {})
    assert {op: (row.calls, row.status) for op, row in _rows(report).items()} == {
        "Relu": (2, "miss"), "Exp": (1, "miss"), "Neg": (1, "miss"),
    }  # fmt: skip
    assert {miss.operator.op_type: miss.calls for miss in Miss.objects.all()} == {
        "Relu": 2,
        "Exp": 1,
        "Neg": 1,
    }
    assert (report.totals.hit_share, report.totals.speedup_weighted, report.totals.speedup_geomean) == (
        0,
        None,
        None,
    )


def test_the_report_tells_what_was_found(add: Callable[..., Model], publish: Callable[..., Any]) -> None:
    model = add(_three())
    rows = _rows(ingest.model_report(model))
    publish(rows["Relu"], "eager", 1.0)
    publish(rows["Relu"], "onednn", 4.0)
    publish(rows["Exp"], "eager", 1.0)
    report = ingest.model_report(model)
    rows = _rows(report)
    relu = rows["Relu"]
    assert (relu.status, relu.route, relu.default_us, relu.median_us) == ("hit", "onednn", 100.0, 25.0)
    assert relu.ratio_low is not None and relu.ratio_high is not None
    assert relu.ratio_low < 4.0 == relu.ratio < relu.ratio_high
    assert relu.share == pytest.approx(2 / 3)
    assert (rows["Exp"].ratio, rows["Exp"].share) == (1.0, pytest.approx(1 / 3))
    assert (rows["Neg"].status, rows["Neg"].share) == ("miss", None)
    totals = report.totals
    assert (totals.hit_calls, totals.hit_share) == (3, 0.75)
    assert (totals.default_us, totals.best_us) == (300.0, 150.0)
    assert totals.speedup_weighted == pytest.approx(math.exp(2 / 3 * math.log(4)))
    assert totals.speedup_geomean == pytest.approx(4 ** (1 / 3))  # Neg, not covered, counts as 1
    assert report.rows[0].operator.op_type == "Relu"  # the largest share first


def test_what_no_route_supports_says_so(add: Callable[..., Model]) -> None:
    model = add(_three())
    Miss.objects.filter(operator__op_type="Exp").update(state="unsupported", reason="No route knows Exp.")
    Miss.objects.filter(operator__op_type="Neg").update(state="failed", reason="Every candidate crashed.")
    Miss.objects.filter(operator__op_type="Relu").update(state="postponed", reason="The queue is full.")
    rows = _rows(ingest.model_report(model))
    assert (rows["Exp"].status, rows["Exp"].reason) == ("unsupported", "No route knows Exp.")
    assert (rows["Neg"].status, rows["Neg"].reason) == ("failed", "Every candidate crashed.")
    assert (rows["Relu"].status, rows["Relu"].reason) == ("miss", "postponed: The queue is full.")


def test_an_own_miss_comes_before_the_shared_one_and_others_own_ones_say_nothing(
    add: Callable[..., Model], organisation: Any
) -> None:
    model = add(_three())
    other = Organisation.objects.create(name="other")
    for owner, state, reason in (
        (organisation, "failed", "Every candidate crashed."),
        (other, "unsupported", "Nobody else may read this."),
    ):
        place = {"target": model.target, "setting": model.setting, "owner": owner, "scope": f"org:{owner.pk}"}
        for op_type in ("Relu", "Exp") if owner == organisation else ("Exp", "Neg"):
            operator = Operator.objects.get(op_type=op_type)
            Miss.objects.create(operator=operator, state=state, reason=reason, **place)
    rows = _rows(ingest.model_report(model))
    assert {op: (row.status, row.miss_state, row.reason) for op, row in rows.items()} == {
        "Relu": ("failed", "failed", "Every candidate crashed."),
        "Exp": ("failed", "failed", "Every candidate crashed."),
        "Neg": ("miss", "waiting", ""),
    }


def test_the_same_content_is_the_same_model_and_remembers_its_first_hits(
    add: Callable[..., Model], publish: Callable[..., Any]
) -> None:
    first = add(_three())
    for row in ingest.model_report(first).rows:
        publish(row, "eager", 1.0)
    again = add(_three())
    assert again.pk == first.pk
    assert again.hits_before == 0.0
    assert (Model.objects.count(), ModelOperator.objects.count()) == (1, 3)
    other = add(_three(), "other name")
    assert other.pk != first.pk
    assert other.hits_before == 1.0


def test_dimensions_make_another_model(add: Callable[..., Model]) -> None:
    data = making.relu(["batch", 3]).SerializeToString()
    with pytest.raises(InvalidModel, match="batch are symbolic"):
        add(data)
    assert Model.objects.count() == 0
    one, two = add(data, dims={"batch": 1}), add(data, dims={"batch": 2})
    assert one.pk != two.pk
    assert add(data, dims={"batch": 1}).pk == one.pk


def test_an_operator_list_is_a_model_with_what_it_could_not_express(add: Callable[..., Model]) -> None:
    half = {"shape": [8, 8], "dtype": "float16", "name": "self"}
    records = [
        {"op": "aten.relu.default", "inputs": [half], "count": 5},
        {"op": "aten.bernoulli_.float", "inputs": [half], "count": 2},
        {"op": "aten.threshold_backward.default", "inputs": [half, half], "count": 3},
    ]
    data = json.dumps(records).encode()
    model = add(data)
    assert (model.form, model.calls) == ("operator-list", 10)
    assert model.unmapped == {"random numbers": 2, "backward": 3}
    totals = ingest.model_report(model).totals
    assert (totals.calls, totals.operators, totals.unmapped_calls) == (10, 1, 5)
    assert totals.unmapped == {"backward": 3, "random numbers": 2}
    widened = add(data, as_float32=True)
    assert (widened.pk != model.pk, widened.form) == (True, "operator-list-f32")


def test_names_that_nothing_can_store_are_told_without_them(add: Callable[..., Model]) -> None:
    records: list[dict[str, Any]] = [
        {"op": f"aten.odd\ud800\x00{i}.default", "inputs": []} for i in range(300)
    ]
    records.append({"op": "aten.relu.default", "inputs": [{"shape": [4], "dtype": "float32"}]})
    model = add(json.dumps(records).encode())
    assert sum(model.unmapped.values()) == 300
    assert model.unmapped["other reasons"] == 200
    assert all(reason.isprintable() for reason in model.unmapped)


def test_one_giant_operator_does_not_refuse_the_model(add: Callable[..., Model], configure: Any) -> None:
    configure(max_operator_bytes=1 << 20)
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("ReduceMax", ["y"], ["z"])]
    nodes.append(helper.make_node("Exp", ["z"], ["w"]))
    model = add(making.model(nodes, {"x": [1 << 20]}, ["w"]).SerializeToString())
    assert sum(model.unmapped.values()) == 2
    assert all("more memory" in reason for reason in model.unmapped)
    assert [row.operator.op_type for row in ingest.model_report(model).rows] == ["Exp"]


@pytest.mark.parametrize("data", [b"", b"rubbish", b"[1]", b"{", making.relu(["n"]).SerializeToString()])
def test_what_cannot_be_read_changes_nothing(add: Callable[..., Model], data: bytes) -> None:
    before = catalogue.row_counts()
    with pytest.raises(InvalidModel):
        add(data)
    assert catalogue.row_counts() == before


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\x00b", "two\nlines"])
def test_a_model_needs_a_name_that_can_be_shown(add: Callable[..., Model], name: str) -> None:
    with pytest.raises(InvalidModel, match="name must have"):
        add(_three(), name)


def test_a_report_takes_the_same_number_of_queries_however_large_the_model(
    add: Callable[..., Model], django_assert_num_queries: Any
) -> None:
    small, large = add(_three()), add(ingest.sample_graph("resnet50"), "resnet50")
    for model in (small, large):
        charging().has_prices(1)  # the rules are read every half second, by whoever comes then
        with django_assert_num_queries(3):
            report = ingest.model_report(model)
    assert (report.totals.calls, report.totals.operators) == (176, 56)


def test_one_threads_setting_is_checked_against_the_hardware(target_row: Any) -> None:
    from opatlas.errors import InvalidTarget

    target, setting = ingest.default_place(1)
    assert (target, setting.threads) == (target_row, 1)
    assert ingest.default_place()[1].threads == fakes.TARGET.cores
    with pytest.raises(InvalidTarget, match="cores"):
        ingest.default_place(10_000)


def test_a_worker_whose_clock_is_wrong_finds_what_is_served(
    target_row: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now
    monkeypatch.setattr("django.utils.timezone.now", lambda: now() + timedelta(days=2))
    assert ingest.default_place()[0] == target_row


def _command(*arguments: str) -> str:
    out = StringIO()
    call_command("add_model", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_prints_the_report(target_row: Any, publish: Callable[..., Any]) -> None:
    first = _command("sample:alexnet")
    assert "alexnet: 24 calls, 21 distinct operators; 0 calls hit (0.0 %)." in first
    row = ingest.model_report(Model.objects.get()).rows[0]
    publish(row, "onednn", 2.0)
    second = _command("sample:alexnet")
    assert "2.00× [1.98–2.02]" in second
    assert "100.0 %" in second
    assert Model.objects.count() == 1


def test_the_command_reads_files_and_dimensions(target_row: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(making.relu(["batch", 3]).SerializeToString())
    assert "small: 1 calls" in _command(str(path), "--dims", "batch=4", "--threads", "1")
    for arguments, words in (
        ([str(path)], "batch are symbolic"),
        ([str(path), "--dims", "batch"], "cannot be read"),
        ([str(path), "--dims", "batch=0"], "cannot be read"),
        ([str(tmp_path / "none.onnx")], "There is no file"),
        (["sample:none"], "there are resnet50"),
    ):
        with pytest.raises(CommandError, match=words):
            _command(*arguments)


def _every_cell() -> bytes:
    """All that the catalogue's tables hold, one after the other."""
    from django.apps import apps

    return b"\n".join(
        bytes(cell) if isinstance(cell, bytes | memoryview) else repr(cell).encode()
        for table in apps.get_app_config("catalog").get_models()
        for row in table._base_manager.values_list()
        for cell in row
    )


def test_a_models_structure_is_kept_and_none_of_its_weights(add: Callable[..., Model]) -> None:
    weight = np.random.default_rng(7).standard_normal((48, 48)).astype(np.float32)
    bias = np.full(48, 0.123456789, np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="first"),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    data = making.model(nodes, {"x": (1, 48)}, ["y"], {"w": weight, "b": bias}).SerializeToString()
    assert weight.tobytes()[64:96] in data and bias.tobytes()[:32] in data
    row = add(data)
    kept = ModelStructure.unpacked(bytes(row.structure.packed))
    assert kept.key == row.structure_key == ModelGraph(data).key
    keys = {one.operator.key for one in row.operators.select_related("operator")}
    assert keys == set(kept.operators) and len(keys) == 2
    cells = _every_cell() + json.dumps(kept.to_json()).encode()
    for secret in (weight, bias):
        assert secret.tobytes()[:16] not in cells and base64.b64encode(secret.tobytes())[:16] not in cells
        assert str(float(secret.flat[0])).encode()[:9] not in cells


def test_a_model_from_before_gets_its_structure_when_it_is_given_again(add: Callable[..., Model]) -> None:
    row = add(_three())
    StoredStructure.objects.all().delete()
    Model.objects.update(structure_key="")
    assert add(_three()) == row
    row.refresh_from_db()
    assert (
        row.structure_key
        == ModelGraph(_three()).key
        == ModelStructure.unpacked(bytes(row.structure.packed)).key
    )


def test_what_is_too_large_for_a_structure_is_a_model_all_the_same(
    add: Callable[..., Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opatlas.graph.structure.MOST_NODES", 3)
    row = add(_three())
    assert (row.structure_key, row.calls, StoredStructure.objects.count()) == ("", 4, 0)
