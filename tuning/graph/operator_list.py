"""An operator list (JSON records with counts) as canonical operators; every record is counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx

from opatlas.errors import InvalidModel, InvalidOperator
from opatlas.graph.aten import CallRecord, CannotMap, map_aten, read_record
from opatlas.graph.onnx_model import Extracted, Extraction
from opatlas.identity import OPSET, Operator, canonicalise, check_measurable, parse_operator
from tuning.graph import flashinfer
from tuning.graph.benchmarks import to_aten

MAX_RECORDS = 200_000
_PARAMETERS = frozenset({"weight", "bias", "running_mean", "running_var"})


def extract_list(
    data: bytes,
    dims: Mapping[str, int] | None = None,
    *,
    as_float32: bool = False,
    const_weights: bool = False,
    max_bytes: int = 128 << 20,
) -> Extraction:
    """Map an operator list's records to canonical operators.

    ``as_float32`` maps float16 and bfloat16 tensors to float32 (where only the shapes are wanted);
    ``const_weights`` marks tensors named as parameters as known before the first run, as in inference.
    Raises :class:`InvalidModel` for a list that cannot be read, and for dimensions that are not given.
    """
    if len(data) > max_bytes:
        raise InvalidModel(f"The operator list has {len(data)} bytes; at most {max_bytes} are accepted.")
    try:
        documents = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidModel(f"The operator list is no valid JSON: {error}.") from None
    if isinstance(documents, Mapping):
        documents = documents.get("records", documents.get("operators"))
    if not isinstance(documents, list) or not documents:
        raise InvalidModel('An operator list is a JSON list of records, or an object with "records".')
    if len(documents) > MAX_RECORDS:
        raise InvalidModel(
            f"The operator list has {len(documents)} records; at most {MAX_RECORDS} are accepted."
        )
    records = [read_record(item, f"records[{i}]", dims) for i, item in enumerate(documents)]
    return extract_records(records, as_float32=as_float32, const_weights=const_weights)


def extract_records(
    records: Iterable[CallRecord], *, as_float32: bool = False, const_weights: bool = False
) -> Extraction:
    """Map records that were read. Raises :class:`InvalidModel` naming all dimensions that must be given."""
    found: dict[str, tuple[Operator, int, str]] = {}
    unmapped: Counter[str] = Counter()
    missing: dict[str, None] = {}
    known: dict[Any, Operator | str] = {}
    for record in records:
        record = _adapted(record, as_float32, const_weights)
        signature = repr(replace(record, count=1))
        if signature not in known:
            known[signature] = _map(record, missing)
        result = known[signature]
        if isinstance(result, str):
            unmapped[result] += record.count
            continue
        operator, calls, example = found.get(result.key, (result, 0, record.op))
        found[result.key] = (operator, calls + record.count, example)
    if missing:
        names = ", ".join(missing)
        raise InvalidModel(
            f"The list's dimensions {names} are symbolic: give each a size, as in dims "
            f"{' '.join(f'{name}=1' for name in missing)}."
        )
    return Extraction([Extracted(*row) for row in found.values()], dict(unmapped))


def map_record(record: CallRecord) -> Operator:
    """The canonical operator of one record. Raises :class:`CannotMap` with the reason."""
    try:
        if record.op.startswith("onnx."):
            operator = parse_operator(_onnx_document(record))
        elif record.op.startswith("flashinfer."):
            operator = parse_operator(flashinfer.document(record))
        else:
            mapped = map_aten(record if record.op.startswith("aten") else to_aten(record))
            operator = canonicalise(mapped.model, mapped.constants, mapped.strides).operator
        check_measurable(operator)
        return operator
    except InvalidOperator as error:
        raise CannotMap(f"{record.op.removesuffix('.default')}: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _map(record: CallRecord, missing: dict[str, None]) -> Operator | str:
    """The record's operator or the reason; symbolic dimensions matter only if the rest can be mapped."""
    symbols = record.symbols
    if symbols:
        record = replace(
            record, inputs=tuple(t and replace(t, shape=_numbers(t.shape)) for t in record.inputs)
        )
    try:
        operator = map_record(record)
    except CannotMap as error:
        return str(error)
    missing.update(dict.fromkeys(symbols))
    return operator


def as_inference(record: CallRecord) -> CallRecord:
    """The record as in inference: in float32, with its parameters as constants."""
    return _adapted(record, as_float32=True, const_weights=True)


def _numbers(shape: Iterable[int | str]) -> tuple[int, ...]:
    return tuple(1 if isinstance(dim, str) else dim for dim in shape)


def _adapted(record: CallRecord, as_float32: bool, const_weights: bool) -> CallRecord:
    if not (as_float32 or const_weights):
        return record
    inputs, attrs = list(record.inputs), dict(record.attrs)
    for i, tensor in enumerate(inputs):
        if tensor and as_float32 and tensor.dtype in ("float16", "bfloat16"):
            inputs[i] = tensor = replace(tensor, dtype="float32")
        if tensor and const_weights and tensor.name in _PARAMETERS:
            inputs[i] = replace(tensor, const=True)
    if as_float32 and str(attrs.get("dtype")).removeprefix("torch.") in ("float16", "bfloat16"):
        attrs["dtype"] = "float32"
    return replace(record, inputs=tuple(inputs), attrs=attrs)


def _onnx_document(record: CallRecord) -> dict[str, Any]:
    """The record in the simple form that ``parse_operator`` reads."""
    op = record.op.removeprefix("onnx.")
    inputs: list[dict[str, Any] | None] = []
    for tensor in record.inputs:
        if tensor is None:
            inputs.append(None)
            continue
        item: dict[str, Any] = {"shape": list(tensor.shape), "dtype": tensor.dtype}
        item |= {"const": True} if tensor.const else {}
        item |= {"strides": list(tensor.strides)} if tensor.strides else {}
        item |= {"data": tensor.value} if tensor.value is not None else {}
        inputs.append(item)
    opset = record.opset or _newest_opset(op, set(record.attrs))
    return {"op": op, "attrs": dict(record.attrs), "inputs": inputs, "opset": opset}


def _newest_opset(op: str, attrs: set[str]) -> int:
    """The newest opset in which the operator has these attributes: lists do not name theirs."""
    for version in range(OPSET, 0, -1):
        if onnx.defs.has(op, version, "") and attrs <= set(onnx.defs.get_schema(op, version, "").attributes):
            return version
    return OPSET
