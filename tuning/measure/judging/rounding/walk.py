"""The walk over the graph: every node's value in float64, and its errors after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from opatlas.identity import Operator
from opatlas.identity.operator_types import TYPES
from opatlas.load.torch.graph import GraphPlan
from tuning.measure.judging.rounding.choices import RULES as CHOICES
from tuning.measure.judging.rounding.pointwise import cast, exact, is_exact, pointwise
from tuning.measure.judging.rounding.probing import probed
from tuning.measure.judging.rounding.rows import by_definition
from tuning.measure.judging.rounding.step import Errors, Step
from tuning.measure.judging.rounding.sums import RULES as SUMS
from tuning.measure.judging.tolerance import Precision

_POINTWISE_FAMILIES = frozenset({"elementwise", "activation"})


class GraphWalk:
    """One operator with its constants (float64 where floating), ready for many sets of inputs."""

    def __init__(
        self, operator: Operator, constants: Mapping[int, torch.Tensor], precision: Precision
    ) -> None:
        self.operator, self.constants, self.precision = operator, dict(constants), precision
        floats = [value.dtype for value in operator.inputs if value.dtype.startswith(("float", "bfloat"))]
        widen = torch.float64 if any(dtype != "float64" for dtype in floats) or not floats else None
        self.plan = GraphPlan(operator, constants, widen)

    def run(self, inputs: Mapping[int, torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Each output with the errors allowed in it; None where it must be exact."""
        values: dict[int, Any] = {**self.constants, **inputs}
        errors: dict[int, torch.Tensor | None] = {
            number: self._lost(number, tensor) for number, tensor in values.items()
        }
        for node, (function, takes, makes) in zip(self.operator.nodes, self.plan.steps, strict=True):
            arguments = [values.get(number) for number in takes]
            while arguments and arguments[-1] is None:
                arguments.pop()
            made = function(*arguments)
            made = tuple(made) if isinstance(made, tuple | list) else (made,)
            kept = makes[: len(made)]
            own = [errors.get(number) for number in takes][: len(arguments)]
            step = Step(self.operator, node, function, arguments, own, made[: len(kept)], self.precision)
            for number, one, error in zip(kept, step.made, errors_of(step), strict=True):
                values[number], errors[number] = one, error
        return [(values[number], errors.get(number)) for number in self.operator.outputs]

    def _lost(self, number: int, tensor: torch.Tensor) -> torch.Tensor | None:
        """Inputs too small for normal numbers count as zero in some libraries (XLA)."""
        smallest = self.precision.smallest(self.operator.inputs[number].dtype)
        if not tensor.is_floating_point() or self.operator.inputs[number].dtype == "float16":
            return None
        small = (tensor.abs() < smallest) & (tensor != 0)
        return torch.where(small, tensor.abs(), 0.0) if bool(small.any()) else None


def errors_of(step: Step) -> Errors:
    """The errors of one node's outputs, by the rule of its type."""
    operator, node = step.operator, step.node
    if is_exact(operator, node):
        return exact(step)
    if node.op == "Cast":
        return cast(step)
    if node.op in CHOICES:
        return CHOICES[node.op](step)
    if node.op in SUMS:
        return SUMS[node.op](step)
    if (known := by_definition(step)) is not None:
        return known
    kind = TYPES.get(node.op)
    if kind is not None and kind.family in _POINTWISE_FAMILIES:
        return pointwise(step)
    if kind is not None and kind.family == "movement":
        return exact(step)
    return probed(step)
