"""ONNX's own conformance cases: the canonical form computes what the case says."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opatlas.errors import InvalidOperator
from opatlas.identity import Canonical, canonicalise, parse_operator, to_onnx
from opatlas.identity.statics import STATIC

# ONNX's reference evaluator reads pads that differ at both ends in another order than ONNX's page says.
WRONG_REFERENCE = {"test_maxpool_2d_same_upper", "test_maxpool_2d_same_lower"}


def cases() -> Iterator[tuple[str, onnx.ModelProto, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Name, model with the inputs that shape the computation as initializers, inputs, outputs."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        if case.model is None or not case.data_sets or "expanded" in case.name:
            continue
        try:
            inputs, outputs = ([_array(item) for item in group] for group in case.data_sets[0])
            feeds = {info.name: item for info, item in zip(case.model.graph.input, inputs, strict=False)}
            wanted = {info.name: item for info, item in zip(case.model.graph.output, outputs, strict=False)}
            yield case.name, _with_statics(case.model, feeds), feeds, wanted
        except TypeError:
            continue  # sequences and optionals


def _array(item: Any) -> np.ndarray:
    value = numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError
    return np.asarray(value)


def _with_statics(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    shaping = {**STATIC, "Dropout": {1: "ratio", 2: "training_mode"}}
    static = {
        node.input[position]
        for node in made.graph.node
        for position in shaping.get(node.op_type, {})
        if position < len(node.input) and node.input[position]
    }
    inputs = [info for info in made.graph.input if info.name not in static]
    for info in made.graph.input:
        if info.name in static:
            made.graph.initializer.append(numpy_helper.from_array(feeds[info.name], info.name))
    for info in inputs:
        shape = helper.make_tensor_type_proto(1, feeds[info.name].shape).tensor_type.shape
        info.type.tensor_type.shape.CopyFrom(shape)
    del made.graph.input[:]
    made.graph.input.extend(inputs)
    return made


def agrees(canonical: Canonical, feeds: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    operator = canonical.operator
    values = {f"in{i}": feeds[canonical.inputs[i] or ""] for i in operator.tensor_inputs}
    made = ReferenceEvaluator(to_onnx(operator)).run(None, values)
    for name, value in zip(canonical.outputs, made, strict=True):
        one, other = np.asarray(value), wanted[name]
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        wide = np.complex128 if np.iscomplexobj(one) else np.float64
        if not np.allclose(one.astype(wide), other.astype(wide), rtol=1e-3, atol=1e-5, equal_nan=True):
            return False
    return True


# By day operators of every type compute what ONNX says in tests/opatlas/load.
@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_canonical_form_computes_what_the_case_says() -> None:
    computed, different, unstable = 0, [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model, feeds, wanted in cases():
            try:
                canonical = canonicalise(model)
            except InvalidOperator:
                continue
            operator = canonical.operator
            if canonicalise(to_onnx(operator)).operator != operator:
                unstable.append(name)
            if parse_operator(operator.to_json()) != operator:
                unstable.append(name)
            if name in WRONG_REFERENCE:
                continue
            computed += 1
            if not agrees(canonical, feeds, wanted):
                different.append(name)
    assert not different
    assert not unstable
    assert computed >= 900
