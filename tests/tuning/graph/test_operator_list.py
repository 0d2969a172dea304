"""Operator lists: every record becomes an operator or is counted under a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opatlas.errors import InvalidModel
from opatlas.graph import extract
from opatlas.graph.aten import RULES, CannotMap, TensorArgument, map_aten, read_record
from opatlas.graph.aten.call import bind
from opatlas.identity import canonicalise
from tuning.graph import sample_graph
from tuning.graph.operator_list import extract_list

DATA = Path(__file__).parents[2] / "data"
ATEN = json.loads((DATA / "aten_calls.json").read_text())["records"]
BENCHMARKS = json.loads((DATA / "benchmark_calls.json").read_text())
FORWARD = [record for record in ATEN if record["phase"] != "backward"]


def _mm(**changes: Any) -> dict[str, Any]:
    a = {"shape": [4, 5], "dtype": "float16", "name": "self"}
    b = {"shape": [5, 6], "dtype": "float16", "name": "mat2"}
    return {"op": "aten.mm.default", "attrs": {}, "inputs": [a, b], "count": 3, **changes}


def _extract(*records: Any, **options: Any) -> Any:
    return extract_list(json.dumps(list(records)).encode(), **options)


def test_no_call_is_lost() -> None:
    extraction = _extract(*ATEN)
    assert extraction.calls == sum(record["count"] for record in ATEN)
    assert all(extraction.unmapped)


def test_most_forward_calls_map_and_the_others_say_why() -> None:
    extraction = _extract(*FORWARD)
    mapped = sum(found.calls for found in extraction.operators)
    assert mapped > 0.95 * extraction.calls
    assert set(extraction.unmapped) == {
        "a view given by raw strides",
        "allocates memory: nothing is computed",
        "bags of embeddings: their sizes depend on data",
        "complex tensors",
        "im2col",
        "in-place indexed write",
        "indexing by several tensors at once",
        "makes a constant: nothing is computed from an input",
        "random numbers",
        "sparse tensors",
    }


def test_backward_calls_are_counted_as_such() -> None:
    backward = [record for record in ATEN if record["phase"] == "backward"]
    assert set(_extract(*backward).unmapped) == {"backward"}


def _meta(value: Any) -> Any:
    """An argument as PyTorch takes it, tensors without data."""
    if isinstance(value, TensorArgument):
        shape = [int(dim) for dim in value.shape]
        dense = torch.empty(shape, dtype=getattr(torch, value.dtype), device="meta")
        return dense if value.strides is None else dense.new_empty_strided(shape, value.strides)
    if isinstance(value, list):
        return [_meta(item) for item in value]
    return float(value) if value in ("-inf", "inf") else value


def _torch_results(record: Any) -> list[torch.Tensor]:
    name = record.op.removeprefix("aten.").removesuffix(".default")
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base)
    function = getattr(packet, {"SymInt": "dim_IntList"}.get(overload, overload) or "default")
    given = bind(RULES[name].parameters, record)
    positional, named = [], {}
    for argument in function._schema.arguments:
        value = _meta(given.get(argument.name, argument.default_value))
        if argument.name == "dtype" and value is not None:
            value = getattr(torch, value)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    results = function(*positional, **named)
    return list(results) if isinstance(results, tuple | list) else [results]


@pytest.mark.parametrize(
    "document", FORWARD, ids=lambda d: f"{d['op'][5:]}{'-strided' * ('stride' in str(d['inputs']))}"
)
def test_shapes_and_dtypes_are_those_of_torch_at_full_size(document: Any) -> None:
    record = read_record(document, "record")
    try:
        mapped = map_aten(record)
    except CannotMap as reason:
        pytest.skip(f"not mapped: {reason}")
    canonical = canonicalise(mapped.model, mapped.constants, mapped.strides)
    values = dict(zip(canonical.outputs, canonical.operator.output_values, strict=True))
    for output, theirs in zip(mapped.model.graph.output, _torch_results(record), strict=False):
        ours = values[output.name]
        assert (ours.shape, ours.dtype) == (tuple(theirs.shape), str(theirs.dtype).removeprefix("torch."))


def test_strides_belong_to_the_operator() -> None:
    turned = _mm()
    turned["inputs"] = [turned["inputs"][0], {**turned["inputs"][1], "stride": [1, 5]}]
    dense = _mm()
    dense["inputs"] = [dense["inputs"][0], {**dense["inputs"][1], "stride": [6, 1]}]
    extraction = _extract(_mm(), dense, turned)
    assert sorted(found.calls for found in extraction.operators) == [3, 6]
    assert {value.strides for found in extraction.operators for value in found.operator.inputs} == {
        None,
        (1, 5),
    }


def test_half_precision_is_kept_unless_asked_otherwise() -> None:
    kept, widened = _extract(_mm()), _extract(_mm(), as_float32=True)
    assert [found.operator.inputs[0].dtype for found in kept.operators] == ["float16"]
    assert [found.operator.inputs[0].dtype for found in widened.operators] == ["float32"]


def test_parameters_can_be_marked_as_known() -> None:
    names = ("input", "weight", "bias")
    shapes = ([1, 3, 8, 8], [4, 3, 3, 3], [4])
    inputs = [{"shape": s, "dtype": "float32", "name": n} for n, s in zip(names, shapes, strict=True)]
    record = {"op": "aten.conv2d.default", "inputs": inputs}
    as_logged, as_inference = _extract(record), _extract(record, const_weights=True)
    assert len(as_logged.operators[0].operator.constant_inputs) == 0
    assert len(as_inference.operators[0].operator.constant_inputs) == 2


def test_a_list_and_a_graph_of_the_same_model_give_the_same_operators() -> None:
    """All of AlexNet's records but the Reshape, whose shape the list does not hold."""
    listed = _extract(*[record for record in BENCHMARKS if record["op"].startswith("onnx.")])
    graph = {found.operator.key: found.calls for found in extract(sample_graph("alexnet")).operators}
    assert {found.operator.key: found.calls for found in listed.operators}.items() <= graph.items()
    assert (len(listed.operators), listed.calls) == (20, 24)
    assert sum(listed.unmapped.values()) == 1


def test_benchmark_lists_map_where_they_are_one_call() -> None:
    extraction = _extract(*[record for record in BENCHMARKS if not record["op"].startswith("onnx.")])
    assert {"+".join(found.operator.op_types) for found in extraction.operators} == {
        "MatMul", "Gemm", "Conv", "ConvTranspose", "Relu",
    }  # fmt: skip
    assert set(extraction.unmapped) == {
        "deepbench: sparse_gemm has no rule yet",
        "deepbench: rnn_vanilla has no rule yet",
        "kernelbench: FrobeniusNorm_ is a program of several calls",
    }


def test_channels_last_benchmarks_keep_their_layout_as_strides() -> None:
    x, weight = {"shape": [1, 8, 6, 3], "dtype": "float32"}, {"shape": [3, 3, 3, 4], "dtype": "float32"}
    record = {"op": "tvm.conv2d_nhwc", "attrs": {"stride": 2, "padding": 1}, "inputs": [x, weight]}
    operator = _extract(record).operators[0].operator
    assert operator.op_types == ("Conv",)
    assert {(value.shape, value.strides) for value in operator.inputs} == {
        ((1, 3, 8, 6), (1, 1, 18, 3)),  # the batch's own stride says nothing: it is one
        ((4, 3, 3, 3), (1, 4, 36, 12)),
    }
    assert operator.output_values[0].shape == (1, 4, 4, 3)


def test_a_transposed_benchmark_product_reads_its_storage_the_other_way_round() -> None:
    stored = {"shape": [6, 4], "dtype": "float32"}, {"shape": [6, 5], "dtype": "float32"}
    record = {"op": "deepbench.gemm", "attrs": {"a_t": True, "b_t": False}, "inputs": list(stored)}
    operator = _extract(record).operators[0].operator
    assert operator.output_values[0].shape == (4, 5)
    assert [value.strides for value in operator.inputs if value.shape == (4, 6)] == [(1, 4)]


def test_symbolic_dimensions_must_be_given() -> None:
    record = _mm()
    record["inputs"][0]["shape"] = ["batch", 5]
    with pytest.raises(InvalidModel, match=r"dimensions batch are symbolic.*batch=1"):
        _extract(record)
    assert _extract(record, dims={"batch": 7}).operators[0].operator.output_values[0].shape == (7, 6)


def test_symbolic_dimensions_of_what_has_no_rule_need_not_be_given() -> None:
    record = {"op": "aten.mystery.default", "inputs": [{"shape": ["n"], "dtype": "float32"}]}
    assert _extract(record).unmapped == {"mystery has no rule yet": 1}


def test_records_that_contradict_themselves_are_counted_not_raised() -> None:
    wrong = [
        _mm(inputs=[{"shape": [4, 5], "dtype": "float32"}, {"shape": [9, 6], "dtype": "float32"}]),
        _mm(inputs=[{"shape": [4], "dtype": "float32"}]),
        _mm(attrs={"colour": 3}),
        {"op": "aten.sum.dim_IntList", "attrs": {"dim": [7]}, "inputs": [{"shape": [2], "dtype": "float32"}]},
        {"op": "aten.convolution.default", "attrs": {}, "inputs": [{"shape": [], "dtype": "float32"}] * 2},
        {"op": "onnx.Relu", "inputs": []},
        {"op": "onnx.Nothing", "inputs": [{"shape": [2], "dtype": "float32"}]},
        {"op": "tritonbench.gemm", "inputs": []},
    ]
    extraction = _extract(*wrong)
    assert extraction.operators == []
    assert extraction.calls == 3 * 3 + 5
    assert all(len(reason) < 400 for reason in extraction.unmapped)


def test_calls_that_would_come_to_giant_graphs_are_counted_not_built() -> None:
    giant = {"shape": [2**31 - 1, 1], "dtype": "float32"}
    records = [
        {"op": "aten.unbind.int", "attrs": {"dim": 0}, "inputs": [giant]},
        {"op": "aten.split.Tensor", "attrs": {"split_size": 1}, "inputs": [giant]},
        {
            "op": "aten.native_layer_norm.default",
            "attrs": {"normalized_shape": [2**31], "eps": 1e-5},
            "inputs": [giant],
        },
        {"op": "aten.full_like.default", "inputs": [giant]},
    ]
    extraction = _extract(*records)
    assert (extraction.operators, extraction.calls) == ([], 4)


ODD = [
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "-inf",
    "",
    "x",
    [],
    [[]],
    {},
    [-1],
    [10**20],
    {"a": 1},
    "float16",
    2**63,
]


def _mutilated(value: Any, random: np.random.Generator) -> Any:
    if random.random() < 0.06:
        return ODD[random.integers(len(ODD))]
    if isinstance(value, dict):
        return {key: _mutilated(item, random) for key, item in value.items() if random.random() > 0.02}
    return [_mutilated(item, random) for item in value] if isinstance(value, list) else value


def test_mutilated_records_raise_nothing_else() -> None:
    random = np.random.default_rng(11)
    for document in [*ATEN, *BENCHMARKS] * 4:
        try:
            _extract(_mutilated(document, random))
        except InvalidModel:
            continue


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[", "no valid JSON"),
        (b"[" * 100_000, "no valid JSON"),
        (b"[]", "JSON list of records"),
        (b'"text"', "JSON list of records"),
        (b'{"a": 1}', "JSON list of records"),
        (b"[3]", r"records\[0\] must be an object"),
        (b'[{"op": 3}]', r"records\[0\] must be an object"),
        (b'[{"op": "aten.relu", "inputs": 3}]', '"inputs" a list'),
        (b'[{"op": "aten.relu", "count": 0}]', '"count" must be'),
        (b'[{"op": "aten.relu", "count": true}]', '"count" must be'),
        (b'[{"op": "aten.relu", "inputs": [{"shape": [-1], "dtype": "float32"}]}]', "-1 is no dimension"),
        (b'[{"op": "aten.relu", "inputs": [{"shape": [2], "dtype": "float33"}]}]', "not known"),
        (
            b'[{"op": "aten.relu", "inputs": [{"shape": [2], "dtype": "float32", "stride": [1, 1]}]}]',
            "stride",
        ),
        (b'[{"op": "aten.relu", "inputs": [{"dtype": "float32"}]}]', 'must have a "shape"'),
    ],
)
def test_lists_that_cannot_be_read(data: bytes, words: str) -> None:
    with pytest.raises(InvalidModel, match=words):
        extract_list(data)
