"""Where ONNX Runtime cuts off 8-bit products a session gives its values; the exact ones for the asking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import opatlas
import opatlas.session.session  # before anything of it is replaced
from opatlas.client import Client
from opatlas.identity import Setting
from opatlas.load.onnxruntime_recipe import EXACTNESS
from opatlas.plan import choosing, regions, saturating, trying
from opatlas.plan.saturating import cuts_off
from opatlas.session.recorded import calls_of
from tests.installed import needs
from tests.opatlas.plan.making import wanted
from tests.opatlas.plan.standings import the_more_kernels_the_better
from tests.opatlas.plan.test_saturating import WEIGHTS, product
from tests.tuning.graph.making import model

needs("openvino", "torch")
DATA = np.random.default_rng(1).integers(0, 256, (8, 64)).astype(np.uint8)
EXACT = DATA.astype(np.int32) @ WEIGHTS.astype(np.int32)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., opatlas.Session]]:
    def session(data: bytes, frameworks: Any = ("pytorch",), **named: Any) -> opatlas.Session:
        return opatlas.Session(data, client=client, frameworks=frameworks, try_s=0.0, **named)

    with Client(offline=True, cache=tmp_path, setting=Setting(threads=1)) as client:
        yield session


@pytest.fixture
def others_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "line_up", the_more_kernels_the_better)
    monkeypatch.setattr(choosing, "foretold_us", lambda run: 99e3)


def test_a_session_gives_onnx_runtimes_values_also_where_these_are_cut_off(
    make: Any, others_win: None
) -> None:
    data = product("MatMulInteger")
    session = make(data, ["openvino"], example={"x": DATA % 2})  # over which everybody agrees
    [found] = session.run(None, {"x": DATA})
    assert (found == wanted(data, {"x": DATA})[0]).all()
    if cuts_off():
        assert "exact=True asks for the exact ones" in session.refused["OpenVINO"]


@pytest.mark.parametrize("is_cut", [False, True])
def test_others_take_part_where_nothing_is_cut_off(
    make: Any, others_win: None, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """On any processor, by saying which it is."""
    monkeypatch.setattr(saturating, "cuts_off", lambda: is_cut)
    data = product("MatMulInteger", WEIGHTS if is_cut else WEIGHTS // 2)  # half of them no processor cuts
    session = make(data, ["openvino"], example={"x": DATA % 2})
    runs = [step.by.framework for step in session.plan.steps]
    assert runs == ["onnxruntime" if is_cut else "openvino"]
    assert bool(session.refused) == is_cut


@pytest.mark.parametrize("kind", ["MatMulInteger", "QDQ Conv", "QLinearConv"])
def test_exact_values_are_given_for_the_asking(make: Any, kind: str) -> None:
    data = product(kind)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    plain = ort.InferenceSession(data, options)
    [given] = plain.get_inputs()
    random = np.random.default_rng(2)
    is_float = given.type == "tensor(float)"
    feed = random.standard_normal(given.shape).astype(np.float32) if is_float else None
    feed = {"x": random.integers(0, 256, given.shape).astype(np.uint8) if feed is None else feed}
    session = make(data, frameworks=(), exact=True)
    [found] = session.run(None, feed)
    if kind == "MatMulInteger":
        assert (found == feed["x"].astype(np.int32) @ WEIGHTS.astype(np.int32)).all()
    elif kind == "QDQ Conv":  # without optimisations it computes in float32
        np.testing.assert_allclose(found, plain.run(None, feed)[0], atol=5.01)
        assert (found == plain.run(None, feed)[0]).mean() > 0.99
    else:
        assert session.refused == {} and found.dtype == np.uint8


def fed() -> bytes:
    """Weights that only a run knows, which ONNX Runtime's exact way does not reach."""
    made = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "product",
        [
            helper.make_tensor_value_info("x", TensorProto.UINT8, [8, 64]),
            helper.make_tensor_value_info("w", TensorProto.INT8, [64, 32]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [8, 32])],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(made, opset_imports=opset, ir_version=8).SerializeToString()


def test_where_onnx_runtime_cannot_whoever_computes_exactly_runs_the_model(make: Any) -> None:
    feed = {"x": DATA, "w": WEIGHTS}
    session = make(fed(), ["openvino"], exact=True, example=feed)
    [found] = session.run(None, feed)
    assert (found == EXACT).all()
    if cuts_off():
        assert [step.by.framework for step in session.plan.steps] == ["openvino"]
        assert session.refused["ONNX Runtime"] == trying.DIFFERS_FROM_EXACT
        assert session.checks is None  # held against what is wrong
        later = make(fed(), ["openvino"], exact=True, example=feed)
        assert later.checks is None and (later.run(None, feed)[0] == EXACT).all()


def test_without_an_example_the_default_is_tried_over_numbers_that_show_it(make: Any) -> None:
    session = make(fed(), ["openvino"], exact=True)
    assert (session.run(None, {"x": DATA, "w": WEIGHTS})[0] == EXACT).all()
    if cuts_off():
        assert session.refused["ONNX Runtime"] == trying.DIFFERS_FROM_EXACT


def test_where_nobody_computes_exactly_a_session_says_so(make: Any) -> None:
    feed = {"x": DATA, "w": WEIGHTS}
    session = make(fed(), (), exact=True, example=feed)
    assert session.refused == ({"ONNX Runtime": trying.DIFFERS_FROM_EXACT} if cuts_off() else {})


@pytest.mark.parametrize("kind", ["no options", "options", "own threads", "asked already"])
def test_a_session_that_becomes_plain_onnx_runtime_stays_exact(
    make: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = None if kind == "no options" else ort.SessionOptions()
    said = []
    if options is not None:
        options.add_session_config_entry("session.disable_prepacking", "1")  # what no plan does
        options.intra_op_num_threads = int(kind == "own threads")
        if kind == "asked already":
            options.add_session_config_entry(EXACTNESS, "1")
        said = list(calls_of(options) or ())
    monkeypatch.setattr(opatlas.session.session, "read_model", raising)  # for whatever reason
    session = make(product("MatMulInteger"), exact=True, sess_options=options)
    assert session.refused and not hasattr(session, "_executor")
    assert (session.run(None, {"x": DATA})[0] == EXACT).all()
    session.set_providers(["CPUExecutionProvider"])
    assert (session.run(None, {"x": DATA})[0] == EXACT).all()
    if options is not None:
        assert options.get_session_config_entry(EXACTNESS) == str(int(kind == "asked already"))
        added = [one for one in calls_of(options) or () if one[0] == "add_session_config_entry"]
        assert added == said


def raising(*given: Any) -> Any:
    raise RuntimeError("It cannot be read.")


def doubling() -> bytes:
    made = model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": (3, 4)}, ["y"])
    made.ir_version = 8
    return made.SerializeToString()


def test_so_is_it_where_onnx_runtime_is_wrong_in_any_other_way(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor on which it is right, by a stand-in."""

    class Wrong(regions.OnnxRuntimeRegion):
        def run(self, inputs: Any) -> Any:
            return [made + 1 for made in super().run(inputs)]

        def run_within(self, inputs: Any, seconds: float) -> Any:
            return self.run(inputs)

    monkeypatch.setattr(regions, "OnnxRuntimeRegion", Wrong)
    example = {"x": np.ones((3, 4), np.float32)}
    session = make(doubling(), exact=True, example=example)
    assert (session.run(None, example)[0] == 2).all()
    assert [step.by.framework for step in session.plan.steps] == ["pytorch"]
    assert session.refused["ONNX Runtime"] == trying.DIFFERS_FROM_EXACT


def test_exact_and_usual_choices_are_remembered_apart(make: Any, others_win: None) -> None:
    data, example = product("MatMulInteger"), {"x": DATA % 2}
    for exact in (False, True, False, True):
        [found] = make(data, exact=exact, example=example).run(None, {"x": DATA})
        expected = EXACT if exact else wanted(data, {"x": DATA})[0]
        assert (found == expected).all()
