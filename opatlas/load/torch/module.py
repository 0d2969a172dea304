"""An operator as a PyTorch module: runtime inputs are its arguments, constants its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import element_strides
from opatlas.load.torch.graph import GraphPlan
from opatlas.load.torch.ops.types import TORCH_TYPES
from opatlas.load.torch.patterns import whole_call


def buffer_name(number: int) -> str:
    """What the module calls the constant input ``number``."""
    return f"c{number}"


class OperatorModule(torch.nn.Module):
    """Maps the runtime inputs, in the operator's order, to a tuple of outputs in the stated layout.
    ``known``: constants whose values the module may read while it is made (the bounds of a Clip). Without
    them no constant's content enters the graph, and :class:`Unsupported` is raised if the graph depends on
    one."""

    def __init__(
        self,
        operator: Operator,
        constants: Mapping[int, torch.Tensor],
        known: Mapping[int, torch.Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.operator = operator
        for number, tensor in constants.items():
            self.register_buffer(buffer_name(number), tensor)
        self._numbers = tuple(constants)
        self._plan = GraphPlan(operator, known or {})
        if (whole := whole_call(operator)) is not None:
            self._plan.use_whole_call(*whole)
        # Where an activation arrives strided and nothing is said about the output, PyTorch's layout stands.
        strided = any(operator.inputs[number].strides is not None for number in operator.runtime_inputs)
        self._layouts = [
            None if strided and value.strides is None else value for value in operator.output_values
        ]

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = dict(zip(self.operator.runtime_inputs, inputs, strict=True))
        values.update({number: getattr(self, buffer_name(number)) for number in self._numbers})
        outputs = self._plan.bind(values)()
        return tuple(_laid_out(tensor, value) for tensor, value in zip(outputs, self._layouts, strict=True))


def example_inputs(
    operator: Operator, numbers: Sequence[int], device: torch.device | None = None
) -> dict[int, torch.Tensor]:
    """Tensors with the dtypes, shapes and strides of these inputs, on the CPU or a device. Values are
    arbitrary: zeros in gaps, else small numbers without special cases."""
    made = {number: _example(operator.inputs[number], number) for number in numbers}
    if device is None:
        return made
    return {number: _brought(tensor, operator.inputs[number], device) for number, tensor in made.items()}


def _brought(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    """On the device with the same strides: ``Tensor.to`` would close gaps."""
    there = torch.empty_strided(value.shape, element_strides(value), dtype=tensor.dtype, device=device)
    return there.copy_(tensor)


def _example(value: Value, seed: int) -> torch.Tensor:
    dtype = TORCH_TYPES[value.dtype]
    tensor = torch.empty_strided(value.shape, element_strides(value), dtype=dtype)
    if dtype.is_floating_point and dtype.itemsize > 1:
        return tensor.uniform_(0.25, 0.75, generator=torch.Generator().manual_seed(seed))
    return tensor.zero_()


def _laid_out(tensor: torch.Tensor, value: Value | None) -> torch.Tensor:
    if value is None or tensor.numel() == 0:
        return tensor
    if value.strides is None:
        return tensor.contiguous()
    pairs = zip(tensor.shape, tensor.stride(), value.strides, strict=True)
    if all(size == 1 or stride == want for size, stride, want in pairs):
        return tensor
    made = torch.empty_strided(value.shape, value.strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
