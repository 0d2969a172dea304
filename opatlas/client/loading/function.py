"""A loaded implementation as a function: arrays in, arrays out; tensors in, tensors out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from opatlas.errors import CallerError, LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import check_array, empty
from opatlas.load.default import load_default
from opatlas.load.kernel import Bound, KeptOutputs, LoadedKernel, binds_outputs
from opatlas.load.manifest import Manifest

if TYPE_CHECKING:
    from opatlas.client.loading.failing import FailureWatch


class KernelFunction:
    """``y = function(x, w)``, with the inputs as they were named at the lookup; the fastest that is known.

    Weights are better given once (``function.prepare({1: w})``) and then left out: given with a call, they
    are packed anew for it. A call of the same arrays as the last one is not bound again. What is given back
    is the caller's own. Tensors of PyTorch on the CPU are read in place (DLPack) and give tensors. One call
    runs at a time; others wait.

    With a ``watch`` a kernel that fails is replaced by the operator's default, which makes the same call
    anew from the same inputs and goes on for the rest of the process; ``failure`` says why (empty: nothing
    has failed). ``kernel`` None: it failed on this machine before, and the default runs from the start.
    """

    def __init__(
        self,
        operator: Operator,
        manifest: Manifest,
        places: Sequence[int] | None = None,
        *,
        kernel: LoadedKernel | None,
        watch: FailureWatch | None = None,
        failure: str = "",
    ) -> None:
        self.kernel = kernel if kernel is not None else load_default(manifest, None)
        self.operator = operator
        self.manifest = manifest
        self.failure = failure
        self._watch = watch if kernel is not None else None
        self._untried = self._watch is not None
        self._places = dict(zip(operator.tensor_inputs, places or operator.tensor_inputs, strict=True))
        self._constants: dict[int, np.ndarray] | None = None if operator.constant_inputs else {}
        self._prepared = 0  # how often: what was bound before is another's
        self._bound: tuple[Any, Bound, Any] | None = None  # with the arrays: their addresses stay theirs
        self._closed = False
        self._lock = threading.RLock()

    def prepare(self, weights: Mapping[int, Any]) -> None:
        """Take the weights, by the caller's numbers: copies, so what is written into them later changes
        nothing."""
        constants = {}
        for number in self.operator.constant_inputs:
            place = self._places[number]
            if place not in weights:
                raise CallerError(f"Input {place} is a weight of this operator: prepare() needs it.")
            constants[number] = self._own(weights[place], number)
        with self._lock:
            self._prepared, self._bound = self._prepared + 1, None
            self._constants = constants if self._watch is not None else None  # for the default
            self._safely(lambda: self.kernel.prepare(constants))

    def __call__(self, *inputs: Any) -> Any:
        """One run: the output, or a tuple where the operator has several."""
        given = self._named(inputs)
        weights = [self._places[number] for number in self.operator.constant_inputs]
        with self._lock:  # weights, buffers and outputs are one call's until it has its copy
            if fresh := {place: given[place] for place in weights if place in given}:
                self.prepare(fresh)  # whoever gives them with a call may have written into them since
            arrays = self._runtime(given)
            bound = self._safely(lambda: self._ran(arrays))
            made = [np.array(output) for output in bound.outputs()]
        like = next(iter(inputs), None)
        results = [_like(like, array) for array in made]
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None) -> Bound:
        """Tie the caller's buffers: calling what comes back is one run and nothing else. ``outputs()`` are
        overwritten by each run: those given, tensors as tensors (compiled kernels write there; of a library
        call they are copied into), else buffers of its own."""
        arrays = self._runtime(self._named(inputs))
        if self.operator.constant_inputs and not self._prepared:
            raise CallerError("The operator has weights: prepare() comes before bind().")
        taken = None
        if outputs is not None:
            values = self.operator.output_values
            if len(outputs) != len(values):
                raise CallerError(f"The operator has {len(values)} outputs; {len(outputs)} are given.")
            taken = [
                _array(one, value, f"output {number}")
                for number, (one, value) in enumerate(zip(outputs, values, strict=True))
            ]
        with self._lock:
            bound = self._safely(lambda: self._tied(arrays, taken))
            if self._watch is not None:
                bound = WatchedBound(self, bound, arrays, taken)
        return bound if _all_arrays(outputs or ()) else GivenOutputs(bound, outputs)

    def by_address(self) -> Callable[[Sequence[int]], None] | None:
        """The kernel for who has addresses of buffers that fit (:class:`opatlas.load.c_abi.AddressedCall`);
        good until the next ``prepare``. None where it has not run yet, has failed, or is no code of ours: a
        call that raises is made anew by what :meth:`bind` gives."""
        make = getattr(self.kernel, "by_address", None)
        return None if make is None or self._untried or self.failure else make()

    def close(self) -> None:
        self._bound, self._closed = None, True
        self.kernel.close()

    # ---- what fails ---------------------------------------------------------------------------------

    def _safely(self, step: Callable[[], Any]) -> Any:
        """A step of the kernel's; where it fails, the default takes its place and the step is made anew."""
        if self._watch is None:
            return step()
        try:
            with self._watch.trying() if self._untried else nullcontext():
                return step()
        except Exception as error:
            self._fall_back(error)
            return step()

    def _fall_back(self, error: Exception) -> None:
        """Let the default take its place; raises the error where it is the caller's, or nothing is there."""
        if self._watch is None or self._closed:
            raise error
        try:
            default = load_default(self.manifest, self._constants)
        except LoadError as nothing:
            self._watch.failed("run", type(error).__name__, first_line(error))
            raise LoadError(f"the kernel failed ({first_line(error)}), and {nothing}") from error
        self.failure = f"{type(error).__name__}: {first_line(error)}"
        self._watch.failed("run", type(error).__name__, first_line(error))
        # The kernel that failed is not closed: what is bound to it may be running in another thread.
        self.kernel, self._bound, self._watch = default, None, None

    def _again(self, one: WatchedBound, error: Exception) -> Bound:
        """What was bound to a kernel that has failed, bound to the default: into the same buffers."""
        with self._lock:
            if one.prepared != self._prepared:
                raise error  # it has other weights than the function has by now
            if not self.failure:
                self._fall_back(error)
            kept = one.taken
            if kept is None and isinstance(one.bound, KeptOutputs):
                kept = list(one.bound.outputs())  # which the caller may hold
            bound = self._tied(one.arrays, kept)
            bound()
            return bound

    # ---- inputs and outputs -------------------------------------------------------------------------

    def _ran(self, arrays: Mapping[int, np.ndarray]) -> Bound:
        bound = self._bind(arrays)
        bound()
        self._went_well()
        return bound

    def _went_well(self) -> None:
        if self._untried and self._watch is not None:
            self._untried = False
            self._watch.went_well()

    def _tied(self, arrays: Mapping[int, np.ndarray], taken: Sequence[np.ndarray] | None) -> Bound:
        if taken is None:
            return self.kernel.bind(arrays)
        if binds_outputs(self.kernel) and not _overlap(taken, arrays.values()):
            return self.kernel.bind(arrays, taken)
        return CopiedOut(self.kernel.bind(arrays), taken)

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

    def _own(self, given: Any, number: int) -> np.ndarray:
        """A copy that lies as the kernel wants it: so it needs none of its own."""
        copy = empty(self.operator.inputs[number], self.manifest.alignment)
        copy[...] = self._array(given, number)
        return copy


def _array(given: Any, value: Value, name: str) -> np.ndarray:
    """What was given as an array, which is as the operator wants it."""
    array = given if isinstance(given, np.ndarray) else _in_place(given, value.dtype)
    check_array(array, value, name)
    return array


def _all_arrays(given: Sequence[Any]) -> bool:
    return all(isinstance(one, np.ndarray) for one in given)


def _overlap(outputs: Sequence[np.ndarray], inputs: Any) -> bool:
    """Whether writing an output may change an input: then a kernel that fails would leave nothing to begin
    anew from."""
    return any(np.may_share_memory(output, one) for one in inputs for output in outputs)


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


class GivenOutputs:
    """Bound to tensors of the caller's, which it gives back as they were given."""

    def __init__(self, bound: Bound, outputs: Any) -> None:
        self.bound, self._given = bound, outputs

    def __call__(self) -> None:
        self.bound()

    def outputs(self) -> Any:
        return self._given

    def poison(self) -> None:
        self.bound.poison()


class WatchedBound:
    """Bound by a function that has a default to fall back to: a run that fails is made anew by it."""

    def __init__(
        self,
        function: KernelFunction,
        bound: Bound,
        arrays: Mapping[int, np.ndarray],
        taken: Sequence[np.ndarray] | None,
    ) -> None:
        self.bound, self.arrays, self.taken = bound, arrays, taken
        self.prepared = function._prepared
        self._function = function
        self._run: Callable[[], Any] = self._first if function._untried else bound

    def __call__(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.bound = self._run = self._function._again(self, error)

    def outputs(self) -> Sequence[np.ndarray]:
        return self.bound.outputs()

    def poison(self) -> None:
        self.bound.poison()

    def _first(self) -> None:
        """What may kill the process is written down before."""
        function, watch = self._function, self._function._watch
        with watch.trying() if watch is not None else nullcontext():
            self.bound()
        function._went_well()
        self._run = self.bound


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
