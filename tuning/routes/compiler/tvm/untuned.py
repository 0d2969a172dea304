"""Schedules without search: which variants an operator gets, and their traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opatlas.identity import Setting, Target
from tuning.routes.base import RouteError
from tuning.routes.compiler.tvm.compile import Traces
from tuning.routes.compiler.tvm.lean import Schedule, Trace, tvm
from tuning.routes.compiler.tvm.machine import machine_of
from tuning.routes.compiler.tvm.schedules import schedule


def apply_variant(module: Any, target: Target, setting: Setting, variant: str) -> tuple[Any, Traces]:
    """Schedule every PrimFunc of the lowered module; returns the new module and the traces made."""
    machine = machine_of(target, setting)
    traces: dict[str, Any] = {}

    def one(name: str, function: Any) -> Any:
        made = schedule(function, machine, variant)
        traces[name] = plain(made.trace.simplified(False).as_json())
        return made.mod["main"]

    return _map_functions(module, one), Traces(traces)


def apply_traces(module: Any, traces: Traces) -> Any:
    """Do again what the traces say; raises RouteError where they belong to another operator."""

    def one(name: str, function: Any) -> Any:
        if name not in traces.functions:
            raise RouteError(f"the schedule says nothing about {name}")
        made = Schedule(function)
        Trace.apply_json_to_schedule(traces.functions[name], made)
        return made.mod["main"]

    return _map_functions(module, one)


def plain(value: Any) -> Any:
    """TVM's JSON of a trace with its boxed numbers and containers made plain."""
    if isinstance(value, str | bool | int | float) or value is None:
        return value if isinstance(value, bool) or value is None else _unboxed(value)
    if hasattr(value, "value"):  # IntImm, FloatImm
        return bool(value.value) if str(value.ty) == "bool" else value.value
    return [plain(item) for item in value]


def _unboxed(value: Any) -> Any:
    """Built-in types instead of TVM's subclasses of them."""
    return next(kind(value) for kind in (str, int, float) if isinstance(value, kind))


def _map_functions(module: Any, transform: Callable[[str, Any], Any]) -> Any:
    """A copy of the module with every PrimFunc replaced by ``transform(name, function)``."""
    changed = {}
    for var, function in module.functions.items():
        if isinstance(function, tvm.tirx.PrimFunc):
            function = transform(var.name_hint, function)
        changed[var] = function
    return tvm.IRModule(changed, attrs=module.attrs)
