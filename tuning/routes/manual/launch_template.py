"""A launch plan for every operator that a kernel serves: its numbers are expressions over the macros.

PURE.

``{"grid": ["ceil(IN0_SIZE, 256)", 1, 1], …}`` becomes a plan by the macros of ``opatlas_operator.h``: names,
whole numbers, ``+ - * // %``, ``min``, ``max`` and ``ceil(a, b)``, which is a ÷ b rounded up. Nothing else is
evaluated, and every number stays small.
"""

from __future__ import annotations

import ast
import operator as op
from collections.abc import Callable, Mapping
from typing import Any

from opatlas.errors import CallerError
from opatlas.identity import Operator
from opatlas.load.cuda.plan import LaunchPlan

FIELDS = ("run", "prepare", "workspace_bytes", "packed_bytes")
LEAST_DRIVER = 12000
"""Cubins load with any driver that knows their architecture; this is the oldest one that was thought of."""
MAX_CHARACTERS = 200
MAX_DEPTH = 6  # {run: [{arguments: [{input: 0}]}]}
MOST = 2**63 - 1
_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: op.add,
    ast.Sub: op.sub,
    ast.Mult: op.mul,
    ast.FloorDiv: op.floordiv,
    ast.Mod: op.mod,
}
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"min": min, "max": max, "ceil": lambda a, b: -(-a // b)}


class InvalidLaunch(CallerError):
    """A launch template that says nothing that can be launched; where, and what would be right."""

    where = "launch"


def fill(
    template: Mapping[str, Any], names: Mapping[str, int], operator: Operator, module: str, arch: str
) -> LaunchPlan:
    """The plan for one operator. Raises :class:`InvalidLaunch`, or LoadError for a plan that cannot be."""
    check_template(template)
    defaults: dict[str, Any] = {"prepare": [], "workspace_bytes": 0, "packed_bytes": []}
    filled = _filled(defaults | dict(template), names, "launch")
    for part in ("prepare", "run"):
        for launch in filled[part] if isinstance(filled[part], list) else ():
            if isinstance(launch, dict):
                launch.setdefault("shared_bytes", 0)
    return LaunchPlan.from_json({**filled, "module": module, "arch": arch, "driver": LEAST_DRIVER}, operator)


def check_template(template: Any) -> dict[str, Any]:
    """What can be said of a template before any operator is known. Raises :class:`InvalidLaunch`."""
    launches = template.get("run") if isinstance(template, Mapping) else None
    if not isinstance(launches, list) or not launches or not set(template) <= set(FIELDS):
        raise InvalidLaunch(
            f"launch is an object with 'run', a list of launches, and perhaps {', '.join(FIELDS[1:])}."
        )
    level: list[Any] = [template]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _within(outer)]
    if level:
        raise InvalidLaunch("launch is nested more deeply than launches, their arguments and numbers are.")
    return dict(template)


def _within(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _filled(value: Any, names: Mapping[str, int], where: str) -> Any:
    """The same with every expression worked out; a function's name stays what it is."""
    if isinstance(value, Mapping):
        return {
            key: inner if key == "function" else _filled(inner, names, f"{where}.{key}")
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_filled(inner, names, f"{where}[{number}]") for number, inner in enumerate(value)]
    return _number(value, names, where) if isinstance(value, str) else value


def _number(text: str, names: Mapping[str, int], where: str) -> int:
    if len(text) > MAX_CHARACTERS:
        raise InvalidLaunch(f"{where} has more than {MAX_CHARACTERS} characters.")
    try:
        return _value(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, TypeError) as error:
        raise InvalidLaunch(f"{where}: {text!r} is no number here: {error}.") from error


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            found = number
        case ast.Name(id=name):
            if name not in names:
                raise ValueError(f"there is no macro {name} that is a whole number")
            found = names[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            found = -_value(operand, names)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            found = _BINARY[type(sign)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            found = _FUNCTIONS[name](*(_value(argument, names) for argument in arguments))
        case _:
            raise ValueError(f"only + - * // % and {', '.join(_FUNCTIONS)} of whole numbers and macros")
    if abs(found) > MOST:
        raise ValueError("it is too large")
    return found
