"""Models that the bench makes, and each framework's column of them."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import opatlas
from bench import models, record
from bench.models import exploring, frameworks, peak, todays_models
from bench.models.exploring import OperatorInPlace, timed_operators, worth_exploring
from bench.models.frameworks import COLUMNS, users
from bench.models.made_models import decoder, encoder
from opatlas.client import Client
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.graph.onnx_model import extract
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan, PlanStep
from tests.installed import needs
from tests.tuning.graph.making import model

needs("openvino", "jax")


def small_encoder() -> bytes:
    return encoder(layers=1, hidden=32, heads=2, length=8)


def test_the_decoders_loop_ends_early_and_otherwise_after_its_most_turns() -> None:
    data = decoder(most=40)
    session = ort.InferenceSession(data)
    lengths = set()
    for seed in range(6):
        tokens, state = session.run(None, random_inputs(ModelGraph(data), seed))
        lengths.add(len(tokens))
        assert np.isfinite(state).all()
        assert (tokens[:-1] < 512 * 9 // 10).all() and (len(tokens) == 40 or tokens[-1] >= 512 * 9 // 10)
    assert len(lengths) > 2


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("mobilenet_v2", 3.50),
        ("mobilenet_v3", 5.48),
        ("efficientnet_b0", 5.29),
        *(
            pytest.param(*one, marks=pytest.mark.nightly)
            for one in (("convnext", 28.6), ("vit_b_16", 86.6), ("bert_base", 108.9), ("gpt2_small", 163.0))
        ),
    ],
)
def test_a_model_of_today_has_its_papers_size_and_runs(name: str, millions: float) -> None:
    """BERT without its pooler, GPT-2 with its logits' matrix apart; a folded batch norm leaves a bias."""
    data = todays_models.MODELS[name]()
    weights = [tensor for tensor in onnx.load_from_string(data).graph.initializer if tensor.data_type == 1]
    assert sum(math.prod(one.dims) for one in weights) / 1e6 == pytest.approx(millions, rel=0.01)
    for made in ort.InferenceSession(data).run(None, random_inputs(ModelGraph(data), 1)):
        assert np.isfinite(made).all() and np.ptp(made) > 0.01


def test_every_framework_that_takes_a_model_gives_the_same_and_the_others_say_why() -> None:
    graph = ModelGraph(small_encoder())
    feed = random_inputs(graph, 1)
    runs, refused = users(graph, feed, 1, compile_s=0.01)
    assert set(runs) == {"onnxruntime", "openvino", "eager", "xla"}
    assert set(refused) == {"compile"} and "takes longer" in refused["compile"]
    expected = runs["onnxruntime"]()[0]
    for run in runs.values():
        np.testing.assert_allclose(run()[0], expected, rtol=1e-3, atol=1e-4)


def test_who_computes_something_else_has_no_column(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = ModelGraph(small_encoder())
    feed = random_inputs(graph, 1)
    shape = (1, 8, 32)
    monkeypatch.setattr(frameworks, "_xla", lambda *_: lambda: [np.zeros(shape, np.float32)])
    monkeypatch.setattr(frameworks, "_openvino", lambda *_: 1 / 0)
    runs, refused = users(graph, feed, 1, compile_s=0.01)
    assert "xla" not in runs and refused["xla"] == "it gives other values than ONNX Runtime"
    assert refused["openvino"] == "division by zero"


def test_a_model_is_timed_beside_its_frameworks(tmp_path: Path) -> None:
    data = decoder(hidden=16, vocabulary=32, most=4)
    graph = ModelGraph(data)
    feed = random_inputs(graph, 1)
    runs, refused = users(graph, feed, 1, compile_s=0.01)
    with (
        Client(offline=True, cache=tmp_path) as client,
        opatlas.Session(data, client=client, example=feed, frameworks=["openvino"], try_s=0.0) as session,
    ):
        found = models._timed(session, feed, runs, refused, 0.0)
    assert json.loads(json.dumps(found)) == found
    assert found["chosen"] in models.row_of("decoder", found)
    for column in COLUMNS:
        assert (found[f"{column}_ms"] is None) == (column in refused) == (column not in runs)
    assert "control flow (Loop)" in found["refused"]["xla"]
    assert found["best"] in runs and found["ratio"][1] <= found["ratio"][0] <= found["ratio"][2]
    assert found["predicted_over_measured"] > 0 and found["max_error"] < 1e-3
    assert 0 <= found["onnxruntime_peak_mb"] < 500
    assert found["chosen"].endswith("the whole model") and found["itself"] in ("onnxruntime", "openvino")
    low, high = found["own_ratio"][1:]
    assert low <= found["own_ratio"][0] <= high
    assert found["itself"] != found["best"] or found["own_ratio"] == found["ratio"]  # one line-up of the two


def measured(itself: str | None, ratio: float, own_ratio: float | None = None, **more: Any) -> dict[str, Any]:
    bounds = [[one, 0.99 * one, 1.01 * one] if one else None for one in (ratio, own_ratio)]
    return {"itself": itself, "ratio": bounds[0], "own_ratio": bounds[1], "standings": []} | more


def test_nobody_is_faster_than_itself_and_slower_is_said() -> None:
    chose_itself, kernels = measured("openvino", 1.5, 1.5), measured(None, 1.5)
    found = models.counted([chose_itself, kernels])
    assert (found["never_slower"], found["faster"], found["of"]) == (2, 1, 2)
    chose_wrongly, lost_on_the_way = measured("openvino", 0.9, 1.0), measured("openvino", 1.0, 0.9)
    found = models.counted([chose_wrongly, lost_on_the_way, measured(None, 0.9)])
    assert (found["never_slower"], found["faster"], found["of"]) == (0, 0, 3)


def test_predictions_are_counted_where_there_are_any_and_so_are_plans_with_kernels() -> None:
    rows = [{"said": "OpenVINO, the whole model"}, {"said": "3 of 9 steps by kernels"}]
    close, off = {"predicted_over_measured": 1.09}, {"predicted_over_measured": 0.88, "standings": rows}
    nothing = {"predicted_over_measured": None}
    found = models.counted([measured(None, 1.0, **more) for more in (close, off, nothing, {})])
    assert found["predicted"] == {"within": 1, "of": 2} and found["tried"] == 1


def timed(kind: str, shape: tuple[int, ...], us: float, **more: Any) -> OperatorInPlace:
    nodes = [helper.make_node(kind, ["x"], ["y"])]
    made = model(nodes, {"x": shape}, ["y"])
    made.ir_version = 8
    [one] = extract(made.SerializeToString()).operators
    return OperatorInPlace(one.operator, us, **more)


def test_operators_in_which_models_lose_most_are_explored_as_far_as_the_seconds_go() -> None:
    """Of three that move as many bytes one does so slowly; one takes nothing of its model's time."""
    quick, slow = timed("Relu", (1000, 100), 100.0), timed("Abs", (1000, 100), 900.0)
    twice, rare = timed("Neg", (1000, 100), 300.0, calls=2.0), timed("Exp", (1000, 100), 0.9)
    first, second = [quick, slow, rare], [twice, quick]
    chosen = worth_exploring([first, second], 1e3)
    assert [one.op_types[0] for one in chosen] == ["Abs", "Neg"]
    assert [one.op_types[0] for one in worth_exploring([first, second], 6.0)] == ["Abs"]
    assert worth_exploring([first, second], 1.0) == worth_exploring([], 1e3) == []


def test_a_models_operators_have_the_time_that_they_take_in_it() -> None:
    graph = ModelGraph(decoder(hidden=16, vocabulary=32, most=4))
    found = timed_operators(graph, random_inputs(graph, 1), 1)
    assert all(one.us > 0 for one in found)
    assert max(one.calls for one in found) > 1  # in the loop's body


def test_exploring_that_was_cut_off_goes_on_with_the_seconds_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    given: list[float] = []

    def cut_off(operators: Any, seconds: float, home: Path, say: Any) -> dict[str, Any]:
        given.append(seconds)
        say("0/2 first results")
        say("1/2 first results")
        if len(given) == 1:
            raise KeyboardInterrupt
        return {"asked": len(operators)}

    monkeypatch.setattr(models, "explore", cut_off)
    clock = iter([7.0, 7.0, 47.0, 47.0, 1.0, 1.0, 21.0, 21.0])
    monkeypatch.setattr(exploring.time, "monotonic", lambda: next(clock))
    with pytest.raises(KeyboardInterrupt):
        models._explored(record.BenchRecord("models"), [], 100.0, tmp_path)
    found = models._explored(record.BenchRecord("models"), [], 100.0, tmp_path)
    assert given == [100.0, 60.0] and found == {"asked": 0, "seconds": 60.0}


def test_a_plan_with_kernels_is_held_against_frameworks_alone() -> None:
    step = PlanStep((0,), (1,), ByFramework("torch.compile"))
    assert models._column_of(ModelPlan("m1:x", "t1:x", "s1:x", (step,))) == "compile"
    kernel = PlanStep((1,), (2,), ByKernel("o1:x", "0" * 64, (1,)))
    for steps in ((step, kernel), (kernel,)):
        assert models._column_of(ModelPlan("m1:x", "t1:x", "s1:x", steps)) is None


def test_a_run_of_onnx_runtime_takes_what_lies_between_its_nodes() -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Neg", ["t"], ["y"])]
    made = model(nodes, {"x": (8192, 1024)}, ["y"])
    made.ir_version = 8
    one_mb = 8192 * 1024 * 4 / 1e6
    peak_mb = peak.onnxruntime_peak_mb(ModelGraph(made.SerializeToString()), 1)
    assert 1.9 * one_mb < peak_mb < 3.5 * one_mb
