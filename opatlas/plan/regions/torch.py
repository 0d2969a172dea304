"""A part of a model in PyTorch: its nodes as eager calls, or compiled by ``torch.compile``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch

from opatlas.conf import conf
from opatlas.errors import LoadError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.types import TensorType
from opatlas.identity.dtypes import CODES
from opatlas.load.kernel import KernelFailed
from opatlas.load.torch.compile import compiled_into, plain_module
from opatlas.load.torch.graph import GraphPlan, Step, Unsupported, many_calls, missing
from opatlas.load.torch.module import buffer_name
from opatlas.load.torch.ops.types import TORCH_TYPES, to_array, to_tensor
from opatlas.load.torch.patterns import whole_call
from opatlas.plan.regions import ModelPart

NAMES = {code: name for name, code in CODES.items()}
_FAILURES = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


class ModelCalls:
    """Nodes of a model as PyTorch calls: ``steps`` over value numbers, and ``constants``. Numbers beyond the
    graph's are values within an operator. Raises :class:`LoadError` naming the first node that PyTorch cannot
    express."""

    def __init__(self, graph: ModelGraph, nodes: Sequence[int], wanted: Sequence[int] = ()) -> None:
        self.size = len(graph.names)
        constants = graph.constants_of(nodes) | {one for one in wanted if graph.is_constant(one)}
        self.constants = {
            number: to_tensor(np.asarray(value, order="C")).clone()
            for number, value in graph.evaluate(sorted(constants)).items()
        }
        self.steps: list[Step] = []
        for number in nodes:
            self._add(graph, number)

    def _add(self, graph: ModelGraph, number: int) -> None:
        node, found = graph.nodes[number], graph.operator(number)
        if found is None:
            raise LoadError(f"PyTorch has no call for node {number} ({node.reason or node.proto.op_type})")
        operator, values = found[0].operator, found[1]
        if reason := missing(operator):
            raise LoadError(f"node {number}: {reason}")
        slots = dict(zip(operator.tensor_inputs, values, strict=True))
        slots |= dict(zip(operator.outputs, (one for one in node.outputs if one >= 0), strict=True))
        known = {local: self.constants[value] for local, value in slots.items() if value in self.constants}
        try:
            plan = GraphPlan(operator, known)
        except Unsupported as error:
            raise LoadError(f"node {number}: {error}") from error
        if (whole := whole_call(operator)) is not None:
            plan.use_whole_call(*whole)
        for function, takes, makes in plan.steps:
            self.steps.append((function, self._placed(takes, slots), self._placed(makes, slots)))

    def _placed(self, numbers: Sequence[int], slots: dict[int, int]) -> tuple[int, ...]:
        for local in numbers:
            if local >= 0 and local not in slots:
                slots[local], self.size = self.size, self.size + 1
        return tuple(slots[local] if local >= 0 else local for local in numbers)

    def bound(
        self,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        constants: Mapping[int, torch.Tensor] | None = None,
    ) -> Callable[..., Sequence[torch.Tensor]]:
        """All steps as one function from inputs to outputs, given by their numbers."""
        slots: list[Any] = [None] * (self.size + 2)
        for number, tensor in (self.constants if constants is None else constants).items():
            slots[number] = tensor
        run = many_calls(self.steps, slots, outputs)

        def call(*tensors: torch.Tensor) -> list[torch.Tensor]:
            for number, tensor in zip(inputs, tensors, strict=True):
                slots[number] = tensor
            made = run()
            for number in inputs:
                slots[number] = None  # the caller's memory is not kept
            return made

        return call


class EagerRegion:
    """Eager calls in inference mode, as users of PyTorch run a model."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        self._threads = threads
        with torch.inference_mode():
            self._calls = ModelCalls(part.graph, part.nodes, part.outputs)
        ends = (part.types(part.inputs), part.types(part.outputs))
        _, self._names = ([name_of(kind) for kind in kinds] for kinds in ends)
        self._compute = self._calls.bound(part.inputs, part.outputs)
        self._constants = {one.untyped_storage().data_ptr() for one in self._calls.constants.values()}

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            with TorchThreads(self._threads), self._mode():
                tensors = [to_tensor(np.asarray(array, order="C")) for array in inputs]
                return self._arrays(self._compute(*tensors), tensors)
        except _FAILURES as error:
            raise KernelFailed(f"PyTorch failed: {first_line(error)}") from error

    def bind(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Callable[[], None]:
        taken, given = tuple(inputs), tuple(outputs)

        def call() -> None:
            for output, made in zip(given, self.run(taken), strict=True):
                output[...] = made

        return call

    def _mode(self) -> AbstractContextManager[Any]:
        return torch.inference_mode()

    def _arrays(self, made: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[np.ndarray]:
        """Outputs for the caller: views of an input, a constant or another output are copied."""
        taken = self._constants | {tensor.untyped_storage().data_ptr() for tensor in given}
        arrays = []
        for tensor, name in zip(made, self._names, strict=True):
            own = tensor.contiguous()
            own = own.clone() if own.untyped_storage().data_ptr() in taken else own
            taken.add(own.untyped_storage().data_ptr())
            arrays.append(to_array(own, name))
        return arrays


class CompiledRegion(EagerRegion):
    """``torch.compile`` over the same calls. It takes seconds to minutes:
    :func:`opatlas.plan.compiling.compile_ahead` fills the folder that this region reads, within a time
    limit."""

    def __init__(self, part: ModelPart, threads: int) -> None:
        super().__init__(part, threads)
        examples = tuple(
            torch.ones(kind.shape, dtype=TORCH_TYPES[name_of(kind)]) for kind in part.types(part.inputs)
        )
        module = _ModelModule(self._calls, part.inputs, part.outputs).eval()
        try:
            with TorchThreads(threads), compiled_into(conf().cache / "inductor"), self._mode():
                self._compute = torch.compile(plain_module(module, examples))
                self._compute(*examples)
        except Exception as error:  # the compiler's errors share no base but Exception
            raise LoadError(f"torch.compile fails: {first_line(error)}") from error

    def _mode(self) -> AbstractContextManager[Any]:
        return torch.no_grad()  # a tensor of inference mode would be compiled for anew


def name_of(kind: TensorType) -> str:
    """The element type as PyTorch's table names it; :class:`LoadError` if it has none."""
    name = NAMES.get(kind.element, "")
    if name not in TORCH_TYPES:
        raise LoadError(f"PyTorch has no element type {name or kind.element}")
    return name


class _ModelModule(torch.nn.Module):
    """A module from inputs in order to a tuple of outputs; constants are its buffers."""

    def __init__(self, calls: ModelCalls, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        super().__init__()
        self._calls, self._inputs, self._outputs = calls, inputs, outputs
        for number, tensor in calls.constants.items():
            self.register_buffer(buffer_name(number), tensor.clone())  # not of inference mode

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        constants = {number: getattr(self, buffer_name(number)) for number in self._calls.constants}
        return tuple(self._calls.bound(self._inputs, self._outputs, constants)(*inputs))


class TorchThreads:
    """Sets PyTorch's number of threads while a region runs, then the user's again."""

    def __init__(self, threads: int) -> None:
        self._wanted = threads

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        if self._before != self._wanted:
            torch.set_num_threads(self._wanted)

    def __exit__(self, *_: object) -> None:
        if self._before != self._wanted:
            torch.set_num_threads(self._before)
