"""Every mapped aten call computes what PyTorch's own call computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from opatlas.graph.aten import RULES, map_aten, read_record
from opatlas.identity import canonicalise, to_onnx
from tests import by_day
from tests.opatlas.graph.aten.samples import Sample, samples


def _array(text: str, random: np.random.Generator) -> tuple[np.ndarray, bool]:
    """An array for a sample's tensor, and whether it is stored transposed."""
    words = text.split()
    dtype, shape = np.dtype(words[0]), tuple(int(word) for word in words[1:] if word.isdigit())
    marks = [word for word in words[1:] if not word.isdigit()]
    below = next((int(mark[1:]) for mark in marks if mark.startswith("<")), 9)
    if dtype.kind == "b":
        array = random.random(shape) < 0.5
    elif dtype.kind in "iu":
        array = random.integers(-9 if "-" in marks else 1 if ">0" in marks else 0, below, shape)
    else:
        array = random.standard_normal(shape)
        array = np.abs(array) + 0.2 if ">0" in marks else np.tanh(array) if "|" in marks else array
    return np.asarray(array, dtype=dtype), "~" in marks


def _record(sample: Sample, arrays: dict[str, tuple[np.ndarray, bool]]) -> dict[str, Any]:
    op, _, attrs = sample
    inputs = []
    for name, (array, turned) in arrays.items():
        item: dict[str, Any] = {"name": name, "shape": list(array.shape), "dtype": array.dtype.name}
        if turned:
            item["stride"] = _torch(array, turned).stride()
            item["stride"] = list(item["stride"])
        inputs.append(item)
    return {"op": f"aten.{op}" if "." in op else f"aten.{op}.default", "attrs": attrs, "inputs": inputs}


def _torch(array: np.ndarray, turned: bool) -> torch.Tensor:
    tensor = torch.from_numpy(array.copy())
    return tensor.mT.contiguous().mT if turned else tensor


def _call_torch(sample: Sample, arrays: dict[str, tuple[np.ndarray, bool]]) -> list[np.ndarray]:
    op, _, attrs = sample
    base, _, overload = op.partition(".")
    if base == "contiguous":
        return [arrays["self"][0]]
    overload = {"SymInt": "dim_IntList"}.get(overload, overload)  # as older lists call it
    function = getattr(getattr(torch.ops.aten, base), overload or "default")
    given: dict[str, Any] = {name: float(v) if v == "-inf" else v for name, v in attrs.items()}
    if "dtype" in given:
        given["dtype"] = getattr(torch, given["dtype"])
    for name, (array, turned) in arrays.items():
        if "[" in name:
            name, place = name[:-1].split("[")
            items = given.setdefault(name, [])
            items.extend([None] * (int(place) + 1 - len(items)))
            items[int(place)] = _torch(array, turned)
        else:
            given[name] = _torch(array, turned)
    arguments, named = [], {}
    for argument in function._schema.arguments:
        if argument.name in given:
            if argument.kwarg_only:
                named[argument.name] = given[argument.name]
            else:
                arguments.append(given[argument.name])
        elif not argument.kwarg_only:
            if not argument.has_default_value() and "Optional" not in str(argument.type):
                break
            arguments.append(argument.default_value)
    results = function(*arguments, **named)
    results = results if isinstance(results, tuple | list) else [results]
    return [result.numpy() for result in results]


def _call_mapped(sample: Sample, arrays: dict[str, tuple[np.ndarray, bool]]) -> list[np.ndarray]:
    """The canonical operator's outputs, run by ONNX Runtime."""
    mapped = map_aten(read_record(_record(sample, arrays), "record"))
    canonical = canonicalise(mapped.model, mapped.constants, mapped.strides)
    values = {name: arrays[tensor.name][0] for name, tensor in mapped.feeds.items()}
    values |= {t.name: _initializer(t) for t in mapped.model.graph.initializer}
    operator = canonical.operator
    constants = {i: values[str(canonical.inputs[i])] for i in operator.constant_inputs}
    model = to_onnx(operator, constants)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {f"in{i}": values[str(canonical.inputs[i])] for i in operator.runtime_inputs}
    by_name = dict(zip(canonical.outputs, session.run(None, feeds), strict=True))
    return [by_name[output.name] for output in mapped.model.graph.output]


def _initializer(tensor: Any) -> np.ndarray:
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor)


def _name(sample: Sample) -> str:
    return f"{sample[0]}-{'-'.join(v.replace(' ', '_') for v in sample[1].values())}"


@pytest.mark.parametrize("sample", by_day.one_of_each(lambda sample: sample[0], samples()), ids=_name)
def test_mapped_call_computes_what_torch_computes(sample: Sample) -> None:
    random = np.random.default_rng(7)
    arrays = {name: _array(text, random) for name, text in sample[1].items()}
    expected, actual = _call_torch(sample, arrays), _call_mapped(sample, arrays)
    assert 1 <= len(actual) <= len(expected)
    for ours, theirs in zip(actual, expected, strict=False):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        wide = np.float64 if ours.dtype.kind == "f" else ours.dtype
        tolerance = 4e-3 if ours.dtype == np.float16 else 1e-4
        np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=tolerance, atol=tolerance)


def test_a_batch_norm_in_training_mode_makes_the_batch_s_own_statistics() -> None:
    """PyTorch hands on 1 / sqrt(variance + eps) where the operator hands on the variance."""
    tensors = {"input": "float32 4 6 5 3", "weight": "float32 6", "bias": "float32 6"}
    tensors |= {"running_mean": "float32 6", "running_var": "float32 6 >0"}
    sample = ("native_batch_norm", tensors, {"training": True, "momentum": 0.1, "eps": 1e-3})
    random = np.random.default_rng(7)
    arrays = {name: _array(text, random) for name, text in tensors.items()}
    made, mean, variance = _call_mapped(sample, arrays)
    expected, expected_mean, inverse = _call_torch(sample, arrays)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(1 / np.sqrt(variance + 1e-3), inverse, rtol=1e-4)


def test_every_rule_is_checked_against_torch() -> None:
    """A rule counts as checked where a sample has its name, or its name's other form (in place, overload)."""
    checked = {sample[0].split(".")[0].rstrip("_") for sample in samples()}
    assert {name for name in RULES if name.split(".")[0].rstrip("_") not in checked} == set()


@pytest.mark.parametrize("name", sorted(RULES))
def test_parameters_are_those_of_torch(name: str) -> None:
    """``argN`` in operator lists counts PyTorch's parameters, so their order matters."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None or (overload or "default") not in packet.overloads():
        pytest.skip("no such overload in this PyTorch: older lists have it")
    schema = [argument.name for argument in getattr(packet, overload or "default")._schema.arguments]
    ours = list(RULES[name].parameters)
    places = {"dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format"}
    if base != "_to_copy":
        assert ours == schema[: len(ours)] or [p for p in ours if p in schema] == [
            p for p in schema if p in ours
        ]
    assert all(p in schema for p in ours)
    assert set(schema) - set(ours) <= places | {"generator", "training", "eps"}
