"""Recipes of library ``torch``: an operator's nodes as eager calls, in one of several layouts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from opatlas.errors import LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.load.allocator import take_large_from_heap
from opatlas.load.buffers import check_arrays, element_strides
from opatlas.load.dtypes import extreme
from opatlas.load.kernel import KernelFailed
from opatlas.load.torch.graph import GraphPlan, Unsupported, missing
from opatlas.load.torch.ops.types import to_array, to_tensor


def open_kernel(operator: Operator, recipe: Mapping[str, Any]) -> TorchKernel:
    """The kernel of an allowed torch recipe."""
    if reason := missing(operator):
        raise LoadError(reason)
    if recipe["memory"] == "heap":
        take_large_from_heap()
    return TorchKernel(operator, recipe)


class TorchKernel:
    """An operator run by PyTorch as its users would: eager calls, weights as plain contiguous parameters."""

    def __init__(self, operator: Operator, recipe: Mapping[str, Any]) -> None:
        self.operator, self.recipe = operator, recipe
        self._plan: GraphPlan | None = None
        self._constants: list[torch.Tensor] = []
        self._wrap: Callable[[Callable], Callable] = _wrapper(recipe)

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        check_arrays(self.operator, self.operator.constant_inputs, constants)
        # Tensors made in inference mode carry no autograd keys: every call on them later, in whatever mode
        # the process is, takes the way that a user's call under inference_mode takes.
        with torch.inference_mode(), self._where():
            known = {number: self._constant(array) for number, array in constants.items()}
            self._constants = list(known.values())
            self._plan = self._build(known)

    def plan(self) -> GraphPlan:
        """The plan to bind; made now if there is nothing to prepare."""
        if self._plan is None:
            if self.operator.constant_inputs:
                raise LoadError("the operator has constant inputs: call prepare before bind")
            self.prepare({})
        assert self._plan is not None
        return self._plan

    def _constant(self, array: np.ndarray) -> torch.Tensor:
        return to_tensor(array).clone()

    def _where(self) -> AbstractContextManager[Any]:
        """The device for tensors that the calls make themselves."""
        return nullcontext()

    def _build(self, known: Mapping[int, torch.Tensor]) -> GraphPlan:
        from opatlas.load.torch import variants as torch_variants

        try:
            return torch_variants.plan(self.operator, known, self.recipe)
        except Unsupported as error:
            raise LoadError(str(error)) from error

    def bind(self, inputs: Mapping[int, np.ndarray]) -> TorchBound:
        plan = self.plan()
        check_arrays(self.operator, self.operator.runtime_inputs, inputs)
        with torch.inference_mode():
            tensors = {number: to_tensor(array).view_as(to_tensor(array)) for number, array in inputs.items()}
        call = self._wrap(plan.bind(tensors))
        given = [*tensors.values(), *self._constants]
        return TorchBound(self.operator, call, given, keep=self.recipe.get("buffers") == "kept")

    def close(self) -> None:
        self._plan, self._constants = None, []


class TorchBound:
    """Eager calls on tensors that share the inputs' memory; ``given``: these and the constants."""

    def __init__(
        self,
        operator: Operator,
        call: Callable[[], list[Any]],
        given: Sequence[torch.Tensor],
        keep: bool = False,
    ) -> None:
        self._operator, self._plain_call, self._keep = operator, call, keep
        self._call = self._first_call
        self._values = operator.output_values
        self._given = {tensor.untyped_storage().data_ptr() for tensor in given}
        self._result: list[torch.Tensor] | None = None

    def __call__(self) -> None:
        # Give the last outputs back first, so that the allocator can hand the same, warm memory out again:
        # in a model, too, an activation is gone by the time its operator runs again.
        self._result = None
        try:
            self._result = self._call()
        except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
            raise KernelFailed(f"PyTorch failed: {first_line(error)}") from error

    def _first_call(self) -> list[Any]:
        """See in which layout PyTorch leaves the outputs; later calls convert only what needs it."""
        first = self._plain_call()
        fixes = _layout_fixes(self._operator, first, self._keep)
        self._call = _fixed(self._plain_call, fixes) if fixes else self._plain_call
        for index, fix in fixes.items():
            first[index] = fix(first[index])
        return first

    def outputs(self) -> Sequence[np.ndarray]:
        return [
            to_array(tensor, value.dtype) for tensor, value in zip(self._results(), self._values, strict=True)
        ]

    def _results(self) -> list[torch.Tensor]:
        if self._result is None:
            raise KernelFailed("the kernel was not called yet")
        return self._result

    def poison(self) -> None:
        # An output that is a view of an input or a constant is not the kernel's to overwrite.
        for tensor, value in zip(self._result or (), self._values, strict=False):
            if tensor.untyped_storage().data_ptr() not in self._given and tensor.numel():
                array = to_array(tensor, value.dtype)
                array[...] = extreme(array.dtype)
        self._result = None


Fix = Callable[[torch.Tensor], torch.Tensor]


def _layout_fixes(operator: Operator, outputs: Sequence[torch.Tensor], keep: bool) -> dict[int, Fix]:
    """Conversions to the stated layout of outputs, where PyTorch's own differs. If an activation is strided
    and the output's layout is not stated, PyTorch's own stands."""
    strided = any(operator.inputs[number].strides is not None for number in operator.runtime_inputs)
    fixes = {}
    for index, (tensor, value) in enumerate(zip(outputs, operator.output_values, strict=True)):
        if tuple(tensor.shape) != value.shape:
            raise KernelFailed(
                f"PyTorch makes shape {list(tensor.shape)} where {list(value.shape)} is stated"
            )
        if not _lies_as(tensor, value) and not (strided and value.strides is None):
            fixes[index] = _relayout_kept(value, tensor.dtype) if keep else _relayout(value)
    return fixes


def _fixed(call: Callable[[], list[Any]], fixes: Mapping[int, Fix]) -> Callable[[], list[Any]]:
    def run() -> list[Any]:
        results = call()
        for index, fix in fixes.items():
            results[index] = fix(results[index])
        return results

    return run


def _lies_as(tensor: torch.Tensor, value: Value) -> bool:
    if tensor.numel() == 0:
        return True
    return all(
        size == 1 or stride == want
        for size, stride, want in zip(tensor.shape, tensor.stride(), element_strides(value), strict=True)
    )


def _relayout(value: Value) -> Callable[[torch.Tensor], torch.Tensor]:
    if value.strides is None:
        return torch.Tensor.contiguous
    shape, strides = value.shape, value.strides

    def fix(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    return fix


def _relayout_kept(value: Value, dtype: torch.dtype) -> Fix:
    with torch.inference_mode(mode=False):
        buffer = torch.empty_strided(value.shape, element_strides(value), dtype=dtype)
    return buffer.copy_


def _wrapper(recipe: Mapping[str, Any]) -> Callable[[Callable], Callable]:
    """Put the recipe's process-wide switches around a call: number of threads, oneDNN on or off."""
    threads = int(recipe["threads"])
    wrapped = functools.partial(with_threads, threads)
    if recipe.get("onednn", True):
        return wrapped
    return lambda call: wrapped(_without_onednn(call))


def with_threads(threads: int, call: Callable[[], Any]) -> Callable[[], Any]:
    def run() -> Any:
        # Asked each time (33 ns): kernels of other settings run in this process, and its owner may set it.
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        return call()

    return run


def _without_onednn(call: Callable[[], Any]) -> Callable[[], Any]:
    switch = torch._C._set_mkldnn_enabled

    def run() -> Any:
        switch(False)
        try:
            return call()
        finally:
            switch(True)

    return run
