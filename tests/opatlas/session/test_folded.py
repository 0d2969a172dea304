"""Sessions plan a model's simpler form where its normalisations fold into what they follow."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import opatlas
from opatlas.identity import Setting
from opatlas.session import forms
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.plan.making import assert_same, wanted
from tests.tuning.graph.making import model

FEED = {"x": np.random.default_rng(5).standard_normal((1, 3, 9, 9), np.float32)}


def normalised(first: str = "Conv") -> bytes:
    """A convolution (or a Relu) and what normalises it, as trained models are exported."""
    rng = np.random.default_rng(6)
    constants = {"w": rng.standard_normal((3, 3, 3, 3), np.float32)}
    constants |= {name: rng.random(3, np.float32) + 0.5 for name in ("scale", "shift", "mean", "variance")}
    nodes = [
        helper.make_node(first, ["x", "w"] if first == "Conv" else ["x"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    made = model(nodes, {"x": (1, 3, 9, 9)}, ["y"], constants, opset=13)
    made.ir_version, made.producer_name = 3, "a framework"
    for name, value in constants.items():  # as that version has it
        made.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape))
    return bytes(made.SerializeToString())


def types_of(session: opatlas.Session) -> list[str]:
    return [node.proto.op_type for node in session.graph.nodes]


def test_normalisations_fold_and_the_model_is_said_as_it_was_given(job: object) -> None:
    from catalog.models import Miss

    data = normalised()
    with opatlas.Session(data, client=job(), frameworks=(), try_s=0.1) as session:  # type: ignore[operator]
        assert types_of(session) == ["Conv", "Relu"]
        assert session.get_modelmeta().producer_name == "a framework"
        assert [one.name for one in session.get_inputs()] == ["x"]
        assert [one.name for one in session.get_overridable_initializers()] == [
            "mean", "scale", "shift", "variance", "w",
        ]  # fmt: skip
        assert_same(session.run(None, FEED), wanted(data, FEED))
    asked = set(Miss.objects.filter(related=False).values_list("operator__op_type", flat=True))
    assert asked == {"Conv", "Relu", "Conv+Relu"}


@pytest.mark.parametrize("why", ["told so", "nothing folds", "other values"])
def test_the_model_is_planned_as_it_is_otherwise(
    job: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = normalised("Abs" if why == "nothing folds" else "Conv")
    if why == "other values":
        monkeypatch.setattr(forms, "is_close", lambda *_: False)
    fusions = 0 if why == "told so" else 16
    with opatlas.Session(
        data,
        client=job(),
        frameworks=(),
        try_s=0.1,
        fusions=fusions,  # type: ignore[operator]
    ) as session:
        assert "BatchNormalization" in types_of(session)
        assert_same(session.run(None, FEED), wanted(data, FEED))


def wrongly_simplified(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The simpler form that models have from now on: one that gives other values, which nobody sees."""
    other = onnx.load_from_string(normalised())
    [shift] = [one for one in other.graph.initializer if one.name == "shift"]
    shift.CopyFrom(onnx.numpy_helper.from_array(np.full(3, 9, np.float32), "shift"))
    monkeypatch.setattr(forms, "simplified", lambda model, dims: other)
    monkeypatch.setattr(forms, "is_close", lambda *_: True)
    return bytes(other.SerializeToString())


def test_over_numbers_that_only_onnx_runtime_is_held_to_the_model_runs_as_it_was_given(
    job: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, other = normalised(), wrongly_simplified(monkeypatch)
    feed = {"x": FEED["x"].copy()}
    feed["x"][0, 0, 4, 4] = np.nan
    with opatlas.Session(data, client=job(), frameworks=(), try_s=0.1, check_runs=0) as session:  # type: ignore[operator]
        assert_same(session.run(None, FEED), wanted(other, FEED))
        assert_same(session.run(None, feed), wanted(data, feed))
        assert session.refused == {}


def test_on_engines_of_fewer_threads_too_a_simpler_form_is_held_against_the_given_model(
    job: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _ = normalised(), wrongly_simplified(monkeypatch)
    engines, client = opatlas.Engines(2, threads=1), job(setting=Setting(threads=2))  # type: ignore[operator]
    with opatlas.Session(data, client=client, frameworks=(), try_s=0.1, check_runs=1) as session:
        session.share(engines, "one")
        instead = session._sharing.instead
        assert instead is not None and instead._forms is session._forms
        assert_same(session.run(None, FEED), wanted(data, FEED))
        assert instead._left_out.simpler and "in a simpler form" in next(iter(instead.refused))
    engines.close()
