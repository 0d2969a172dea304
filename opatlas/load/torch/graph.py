"""A canonical operator as PyTorch calls: one torch function per node, run eagerly, one after another."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opatlas.identity.operator import Operator
from opatlas.load.torch.ops.names import FAMILY_OF, limit
from opatlas.load.torch.ops.site import TorchSite, Unsupported

if TYPE_CHECKING:
    import torch

Step = tuple[Any, tuple[int, ...], tuple[int, ...]]
"""A function (or :class:`Kept`), the value numbers it takes (-1: None) and those it makes (-2: dropped)."""

_DROPPED = -2


def missing(operator: Operator) -> str | None:
    """Why PyTorch cannot express the operator, or None if it can. Imports no torch."""
    for node in operator.nodes:
        if node.domain or node.op not in FAMILY_OF:
            return f"no PyTorch call is known for {node.domain + '.' if node.domain else ''}{node.op}"
        if reason := limit(operator, node):
            return reason
    return None


def run_graph(operator: Operator, inputs: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
    """The operator's outputs for ``inputs`` (all tensor inputs by number, constants included).

    Floating inputs may come in another floating type than the operator's: a float64 reference is computed by
    giving float64 inputs. Raises :class:`Unsupported` for what PyTorch cannot express.
    """
    known = {number: inputs[number] for number in operator.constant_inputs}
    return GraphPlan(operator, known, _widening(operator, inputs)).run(inputs)


def _widening(operator: Operator, inputs: Mapping[int, torch.Tensor]) -> torch.dtype | None:
    for number, tensor in inputs.items():
        declared = operator.inputs[number].dtype
        if tensor.is_floating_point() and str(tensor.dtype) != f"torch.{declared}":
            return tensor.dtype
    return None


class Kept:
    """A step with buffers of its own: ``fresh`` makes the function for one binding, so that no binding
    overwrites another's outputs."""

    def __init__(self, fresh: Callable[[], Callable[..., Any]]) -> None:
        self.fresh = fresh


class GraphPlan:
    """An operator's nodes as a list of steps, with all attributes read. ``known``: constant inputs by number;
    what they fix (the bounds of a Clip, say) is read now, and they need not be given again. ``replace``:
    other callables for nodes by position (packed weights, say), with the same arguments."""

    def __init__(
        self,
        operator: Operator,
        known: Mapping[int, torch.Tensor],
        widen: torch.dtype | None = None,
        replace: Mapping[int, Callable[..., Any]] | None = None,
    ) -> None:
        self.operator = operator
        self._known = dict(known)
        self._data = {number for number, value in enumerate(operator.inputs) if value.data is not None}
        self.steps: list[Step] = []
        for position, node in enumerate(operator.nodes):
            function = (replace or {}).get(position) or _build(TorchSite(operator, node, known, widen))
            takes = tuple(-1 if number in self._data else number for number in node.inputs)
            makes = tuple(_DROPPED if number < 0 else number for number in node.outputs)
            self.steps.append((function, takes, makes))

    def run(self, inputs: Mapping[int, torch.Tensor]) -> list[torch.Tensor]:
        """Run once on the runtime inputs."""
        return self.bind(inputs)()

    def use_whole_call(self, function: Callable[..., Any] | Kept, takes: tuple[int, ...]) -> None:
        """Compute all outputs by one call instead of the steps."""
        self.steps = [(function, takes, self.operator.outputs)]

    def bind(self, inputs: Mapping[int, torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
        """A callable without arguments that runs every step on these tensors."""
        values: list[Any] = [None] * (len(self.operator.inputs) + len(self.operator.produced) + 2)
        for number, tensor in {**self._known, **inputs}.items():
            values[number] = tensor
        steps = [(f.fresh() if isinstance(f, Kept) else f, takes, makes) for f, takes, makes in self.steps]
        if len(steps) == 1 and len(steps[0][2]) == 1:
            function, takes, _ = steps[0]
            return _one_call(function, [values[number] for number in takes])
        return many_calls(steps, values, self.operator.outputs)


def _one_call(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], list[Any]]:
    """The common case of one node with one output, without bookkeeping."""
    while arguments and arguments[-1] is None:
        arguments = arguments[:-1]
    if len(arguments) == 1:
        (first,) = arguments
        return lambda: [function(first)]
    if len(arguments) == 2:
        first, second = arguments
        return lambda: [function(first, second)]
    return lambda: [function(*arguments)]


def many_calls(steps: list[Step], values: list[Any], outputs: tuple[int, ...]) -> Callable[[], list[Any]]:
    """All steps over ``values`` by number, with two extra slots at the end: for None, and for dropped
    results."""
    last_use = {number: index for index, (_, takes, _) in enumerate(steps) for number in takes}
    made = {number for _, _, makes in steps for number in makes}
    # Free an intermediate as soon as nobody needs it, as a user's own local variables would be.
    frees = [
        tuple(n for n in made if last_use.get(n) == index and n not in outputs) for index in range(len(steps))
    ]
    plan = [
        (function, takes, makes, free) for (function, takes, makes), free in zip(steps, frees, strict=True)
    ]

    def run() -> list[Any]:
        slots = values.copy()
        for function, takes, makes, free in plan:
            result = function(*[slots[number] for number in takes])
            if len(makes) == 1:
                slots[makes[0]] = result
            else:
                for number, tensor in zip(makes, result, strict=False):
                    slots[number] = tensor
            for number in free:
                slots[number] = None
        return [slots[number] for number in outputs]

    return run


def _build(site: TorchSite) -> Callable[..., Any]:
    family = FAMILY_OF.get(site.node.op)
    if family is None or site.node.domain:
        raise Unsupported(f"no PyTorch call is known for {site.node.op}")
    if reason := limit(site.operator, site.node):
        raise Unsupported(reason)
    module = importlib.import_module(f"opatlas.load.torch.ops.{family}")
    function: Callable[..., Any] = module.BUILDERS[site.node.op](site)
    return function


__all__ = ["GraphPlan", "Kept", "Step", "Unsupported", "many_calls", "missing", "run_graph"]
