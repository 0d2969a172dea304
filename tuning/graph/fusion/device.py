"""Who can run an operator: a device, and a library of kernels for it. PURE, and the device is data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opatlas.errors import CallerError, first_line
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import Operator
from opatlas.identity.operator_types import types_with
from opatlas.identity.place.setting import Setting
from tuning.routes.base import Route


class RulesContradict(CallerError):
    """A library whose rules are not for the device that it is asked for."""


@dataclass(frozen=True)
class ExecutionDevice:
    """What a device can run at all: operator types, and element types of what they read and make. ``kind`` is
    that of targets. What it cannot run stays with the general processor."""

    name: str
    kind: str
    types: frozenset[str]
    dtypes: frozenset[str]

    def refusal(self, operator: Operator) -> str:
        """Why it cannot run an operator; empty where it can."""
        if unknown := [op for op in operator.op_types if op not in self.types]:
            return f"{self.name} has no {unknown[0]}"
        read = (operator.inputs[number] for number in operator.tensor_inputs)
        dtypes = {value.dtype for value in (*read, *operator.produced)}
        if foreign := sorted(dtypes - self.dtypes):
            return f"{self.name} has no {foreign[0]}"
        return ""


@dataclass(frozen=True)
class LibraryRules:
    """A library's own word on each operator. ``kinds``: of the devices that it is for; ``accepts``: anything
    that is true where it has the operator, and has a ``reason`` where it has not."""

    name: str
    kinds: tuple[str, ...]
    accepts: Callable[[Operator], object]

    @classmethod
    def of_route(cls, route: Route, setting: Setting) -> LibraryRules:
        """What a route's ``supports`` says, asked once for each operator."""
        known: dict[str, object] = {}

        def accepts(operator: Operator) -> object:
            if operator.key not in known:
                known[operator.key] = route.supports(operator, setting)
            return known[operator.key]

        return cls(route.name, tuple(route.kinds), accepts)

    def check_for(self, device: ExecutionDevice) -> None:
        """Raises :class:`RulesContradict` for a library that is not for the device at all."""
        if device.kind not in self.kinds:
            raise RulesContradict(
                f"The library {self.name} is for devices of kind {' or '.join(self.kinds)}; "
                f"{device.name} is of kind {device.kind}. Give the rules of a library for it."
            )

    def refusal(self, operator: Operator) -> str:
        """Why the operator is not in it; empty where it is. A rule that fails says nothing for it."""
        try:
            said = self.accepts(operator)
        except Exception as error:  # a rule is a route's code: one operator runs unfused for it, no more
            return f"the rule of {self.name} failed: {first_line(error)}"
        return "" if said else str(getattr(said, "reason", "")) or f"{self.name} does not have it"


def by_compiled_kernels(kind: str, marks: Sequence[str]) -> ExecutionDevice:
    """A processor as far as compilers' kernels go: the types that one of them has, by its mark in
    :mod:`opatlas.identity.operator_types`, in every element type."""
    types = frozenset().union(*(types_with(mark) for mark in marks))
    return ExecutionDevice(f"compiled kernels on {kind}", kind, types, frozenset(CODES))
