"""Every operator of the open ONNX graphs and of a transformer encoder has a default and library routes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from opatlas.graph import extract
from opatlas.identity import Operator, Setting, detect_target
from tests import by_day
from tuning.graph import sample_graph
from tuning.routes.registry import default_candidate, routes_for

SETTING = Setting(threads=2)


def check(operators: Iterable[Operator]) -> None:
    target = detect_target()
    for operator in operators:
        found = default_candidate(operator, target, SETTING)
        assert found is not None and found[0].name == "eager", operator.op_types
        able = [
            one.name
            for one in routes_for("cpu")
            if one.method == "library" and one.supports(operator, SETTING)
        ]
        assert {"eager", "onnxruntime"} <= set(able), operator.op_types


@pytest.mark.parametrize(
    "name", by_day.first(1, ["squeezenet", "resnet50", "vgg19", "densenet121", "shufflenet"])
)
def test_open_graphs_are_covered(name: str) -> None:
    extraction = extract(sample_graph(name))
    assert not extraction.unmapped
    check(entry.operator for entry in extraction.operators)


@pytest.mark.slow
def test_a_transformer_encoder_is_covered() -> None:
    pytest.importorskip("torch")
    from tests.tuning.graph.encoder import encoder_model

    extraction = extract(encoder_model())
    assert not extraction.unmapped
    check(entry.operator for entry in extraction.operators)
