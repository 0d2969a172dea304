"""Strided inputs: functions get the dense array behind each (:mod:`opatlas.load.storage`) and read it where
it lies, by a permuted index or, where there are gaps or repeats, by the strides themselves."""

from __future__ import annotations

from typing import Any

from opatlas.identity import Operator
from opatlas.identity.operator import Value
from opatlas.identity.strides import storage_elements
from opatlas.load.storage import storage_of
from tuning.routes.compiler.tvm.lean import ir, relax, tvm

_READ = "read_"
_BROADCAST, _REDUCTION, _OPAQUE = 1, 3, 8
"""Of TVM's ``OpPatternKind``: the first is fused into the second, nothing into or out of the third."""


def read_stored(module: Any, operator: Operator) -> Any:
    """Make the Relax ``main`` take inputs as they are stored, with a function in front for each strided one;
    a module without strided inputs as it is."""
    values = {f"in{number}": operator.inputs[number] for number in operator.tensor_inputs}
    old = module["main"]
    if all(values[var.name].strides is None for var in old.params):
        return module
    builder = relax.BlockBuilder()
    inner = builder.add_func(old.without_attr("global_symbol"), "inner")
    stored = [relax.Var(var.name, _stored_type(values[var.name], var.ty.dtype)) for var in old.params]
    with builder.function("main", stored):
        with builder.dataflow():
            given = [_read(builder, var, values[var.name]) for var in stored]
            results = builder.emit_output(builder.emit(ir.Call(inner, given)))
        builder.emit_func_output(results)
    return relax.transform.InlinePrivateFunctions()(builder.get())


def fuse_reads(module: Any, operator: Operator) -> Any:
    """Let products, convolutions and sums read strided inputs themselves: TVM's own fusion gives them a copy.
    What is constant stays a copy of its own, made once; so does what several functions read."""
    names = {var.name_hint for var in module.functions}
    if not any(name.startswith(_READ) for name in names):
        return module
    constant = {f"{_READ}in{number}" for number in operator.constant_inputs}
    for var, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            read = var.name_hint.startswith(_READ)
            kind = _BROADCAST if read else _REDUCTION
            kind = _OPAQUE if var.name_hint in constant else kind
            module.update_func(var, function.with_attr("op_pattern", kind))
    return tvm.transform.Sequential([relax.transform.FuseOps(), relax.transform.FuseTIR()])(module)


def _stored_type(value: Value, dtype: Any) -> Any:
    return relax.TensorType(_stored_shape(value), dtype)


def _stored_shape(value: Value) -> tuple[int, ...]:
    """Of a dense array that shares the value's memory; of what overlaps, all elements from first to last."""
    storage = storage_of(value)
    overlaps = storage.form == "copied"
    return (storage_elements(value.shape, value.strides),) if overlaps else storage.shape


def _read(builder: Any, var: Any, value: Value) -> Any:
    """The value itself, from how it is stored."""
    from tvm import te

    storage, strides = storage_of(value), value.strides
    if storage.form == "dense" or strides is None:
        return var

    def element(source: Any, *index: Any) -> Any:
        if storage.form == "turned":
            return source(*(index[storage.order.index(axis)] for axis in range(len(index))))
        return source(sum(at * stride for at, stride in zip(index, strides, strict=True) if stride))

    def whole(source: Any) -> Any:
        return te.compute(value.shape, lambda *index: element(source, *index))

    return builder.emit_te(whole, var, primfunc_name_hint=f"{_READ}{var.name}")
