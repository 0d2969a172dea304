"""Which operators a device, and a library of kernels for it, can run. PURE, and the device is data."""

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
    """A library whose rules are for other devices."""


@dataclass(frozen=True)
class ExecutionDevice:
    """What a device can run: operator types, and element types of inputs and outputs. ``kind``: that of
    targets. Everything else stays on the CPU."""

    name: str
    kind: str
    types: frozenset[str]
    dtypes: frozenset[str]

    def refusal(self, operator: Operator) -> str:
        """Why it cannot run an operator; empty if it can."""
        if unknown := [op for op in operator.op_types if op not in self.types]:
            return f"{self.name} has no {unknown[0]}"
        read = (operator.inputs[number] for number in operator.tensor_inputs)
        dtypes = {value.dtype for value in (*read, *operator.produced)}
        if foreign := sorted(dtypes - self.dtypes):
            return f"{self.name} has no {foreign[0]}"
        return ""


@dataclass(frozen=True)
class LibraryRules:
    """A library's rules. ``kinds``: of the devices that it is for; ``accepts``: true for operators that it
    has; otherwise its result has a ``reason``."""

    name: str
    kinds: tuple[str, ...]
    accepts: Callable[[Operator], object]

    @classmethod
    def of_route(cls, route: Route, setting: Setting) -> LibraryRules:
        """The rules of a route's ``supports``, asked once for each operator."""
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
        """Why the library lacks the operator; empty if it has it. A rule that fails counts as a refusal."""
        try:
            said = self.accepts(operator)
        except Exception as error:  # a rule is a route's code: one operator runs unfused for it, no more
            return f"the rule of {self.name} failed: {first_line(error)}"
        return "" if said else str(getattr(said, "reason", "")) or f"{self.name} does not have it"


def by_compiled_kernels(kind: str, marks: Sequence[str]) -> ExecutionDevice:
    """A CPU as far as compilers' kernels go: the types that one of them has, as marked in
    :mod:`opatlas.identity.operator_types`, in every element type."""
    types = frozenset().union(*(types_with(mark) for mark in marks))
    return ExecutionDevice(f"compiled kernels on {kind}", kind, types, frozenset(CODES))
