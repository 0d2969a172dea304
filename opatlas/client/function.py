"""A loaded implementation as a function: arrays in, arrays out; tensors in, tensors out."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opatlas.errors import CallerError
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import check_array
from opatlas.load.c_abi import CKernel
from opatlas.load.kernel import Bound, LoadedKernel
from opatlas.load.manifest import Manifest


class KernelFunction:
    """``y = function(x, w)``, with the inputs as they were named at the lookup; the fastest that is known.

    Weights are better given once (``function.prepare({1: w})``) and then left out: given with a call, they
    are packed anew for it. A call of the same arrays as the last one is not bound again. What is given back
    is the caller's own. Tensors of PyTorch on the CPU are read in place (DLPack) and give tensors. One call
    runs at a time; others wait.
    """

    def __init__(
        self,
        kernel: LoadedKernel,
        operator: Operator,
        manifest: Manifest,
        places: Sequence[int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.operator = operator
        self.manifest = manifest
        self._places = dict(zip(operator.tensor_inputs, places or operator.tensor_inputs, strict=True))
        self._prepared = False
        self._bound: tuple[Any, Bound, Any] | None = None  # with the arrays: their addresses stay theirs
        self._lock = threading.RLock()

    def prepare(self, weights: Mapping[int, Any]) -> None:
        """Take the weights, by the caller's numbers: copies, so what is written into them later changes
        nothing."""
        constants = {}
        for number in self.operator.constant_inputs:
            place = self._places[number]
            if place not in weights:
                raise CallerError(f"Input {place} is a weight of this operator: prepare() needs it.")
            constants[number] = np.array(self._array(weights[place], number), order="K", copy=True)
        with self._lock:
            self.kernel.prepare(constants)
            self._prepared, self._bound = True, None

    def __call__(self, *inputs: Any) -> Any:
        """One run: the output, or a tuple where the operator has several."""
        given = self._named(inputs)
        weights = [self._places[number] for number in self.operator.constant_inputs]
        with self._lock:  # weights, buffers and outputs are one call's until it has its copy
            if fresh := {place: given[place] for place in weights if place in given}:
                self.prepare(fresh)  # whoever gives them with a call may have written into them since
            bound = self._bind(self._runtime(given))
            bound()
            made = [np.array(output) for output in bound.outputs()]
        like = next(iter(inputs), None)
        results = [_like(like, array) for array in made]
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Bound:
        """Tie the caller's buffers: calling what comes back is one run and nothing else. ``outputs()`` are
        overwritten by each run: those given (compiled kernels write there; of a library call they are copied
        into), else buffers of its own."""
        arrays = self._runtime(self._named(inputs))
        if outputs is None:
            return self.kernel.bind(arrays)
        values = self.operator.output_values
        if len(outputs) != len(values):
            raise CallerError(f"The operator has {len(values)} outputs; {len(outputs)} are given.")
        taken = [
            _array(one, value, f"output {number}")
            for number, (one, value) in enumerate(zip(outputs, values, strict=True))
        ]
        if isinstance(self.kernel, CKernel):
            return self.kernel.bind(arrays, taken)
        return CopiedOut(self.kernel.bind(arrays), taken)

    def close(self) -> None:
        self._bound = None
        self.kernel.close()

    def _named(self, inputs: Sequence[Any]) -> dict[int, Any]:
        """Inputs by the caller's number; where weights were prepared, they may be left out."""
        weights = {self._places[number] for number in self.operator.constant_inputs}
        every = sorted(self._places.values())
        runtime = [place for place in every if place not in weights]
        if self._prepared and len(inputs) == len(runtime):
            return dict(zip(runtime, inputs, strict=True))
        if every and max(every) < len(inputs):
            return {place: inputs[place] for place in every}
        raise CallerError(
            f"The operator reads the inputs {', '.join(map(str, every))}; {len(inputs)} are given."
        )

    def _runtime(self, given: Mapping[int, Any]) -> dict[int, np.ndarray]:
        numbers = self.operator.runtime_inputs
        return {number: self._array(given[self._places[number]], number) for number in numbers}

    def _bind(self, arrays: Mapping[int, np.ndarray]) -> Bound:
        where = tuple((number, array.ctypes.data) for number, array in arrays.items())
        if self._bound is None or self._bound[0] != where:
            self._bound = where, self.kernel.bind(dict(arrays)), arrays
        return self._bound[1]

    def _array(self, given: Any, number: int) -> np.ndarray:
        return _array(given, self.operator.inputs[number], f"input {self._places[number]}")


def _array(given: Any, value: Value, name: str) -> np.ndarray:
    """What was given as an array, which is as the operator wants it."""
    array = given if isinstance(given, np.ndarray) else _in_place(given, value.dtype)
    check_array(array, value, name)
    return array


class CopiedOut:
    """Bound to outputs of the caller's, where the kernel has its own."""

    def __init__(self, bound: Bound, outputs: Sequence[np.ndarray]) -> None:
        self._bound, self._taken = bound, outputs

    def __call__(self) -> None:
        self._bound()
        for taken, made in zip(self._taken, self._bound.outputs(), strict=True):
            taken[...] = made

    def outputs(self) -> Sequence[np.ndarray]:
        return self._taken

    def poison(self) -> None:
        self._bound.poison()


def _in_place(given: Any, dtype: str) -> np.ndarray:
    """A CPU tensor's memory as an array: PyTorch's, of every type; another library's by DLPack."""
    if not hasattr(given, "detach"):
        return np.from_dlpack(given)
    from opatlas.load.torch.ops.types import to_array

    return to_array(given.detach(), dtype)


def _like(given: Any, array: np.ndarray) -> Any:
    """A tensor where tensors were given."""
    if not hasattr(given, "detach"):
        return array
    from opatlas.load.torch.ops.types import to_tensor

    return to_tensor(array)
