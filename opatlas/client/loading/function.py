"""A loaded implementation as a function: arrays in and out, or tensors in and out, on the device where they
are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from opatlas.client.loading.buffers import (
    CallBuffers,
    call_buffers,
    host_array,
    kernel_on_device,
    like_given,
    maker_like,
)
from opatlas.client.loading.ties import CopiedOut, GivenOutputs, brought_first, overlap
from opatlas.errors import CallerError, LoadError, first_line
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import empty
from opatlas.load.c_abi import KernelCode
from opatlas.load.cuda.resident import is_resident
from opatlas.load.default import ANYWHERE, Where, load_default
from opatlas.load.kernel import (
    Bound,
    BoundOnDevice,
    KeptOutputs,
    LoadedKernel,
    binds_outputs,
)
from opatlas.load.manifest import Manifest

if TYPE_CHECKING:
    from opatlas.client.loading.failing import FailureWatch


class KernelFunction:
    """``y = function(x, w)``, with the inputs as named at the lookup; the fastest known implementation.

    Give weights once (``function.prepare({1: w})``) and leave them out of calls; given with a call, they are
    packed each time. A call with the same arrays as the last one is not bound again. Outputs belong to the
    caller. PyTorch's CPU tensors are read in place (DLPack) and give tensors. One call runs at a time; others
    wait. With a ``watch``, a kernel that fails is replaced by the operator's default, which repeats the call
    from the same inputs and stays for the rest of the process; ``failure`` says why (empty: nothing has
    failed). ``kernel`` None: it failed on this machine before, and the default runs from the start.
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
        self.kernel = kernel if kernel is not None else load_default(manifest, None, ANYWHERE)
        self.operator = operator
        self.manifest = manifest
        self.failure = failure
        self._watch = watch if kernel is not None else None
        self._untried = self._watch is not None
        self._places = dict(zip(operator.tensor_inputs, places or operator.tensor_inputs, strict=True))
        self._names = {number: f"input {place}" for number, place in self._places.items()}
        self._constants: dict[int, np.ndarray] | None = None if operator.constant_inputs else {}
        self._prepared = 0  # how often: what was bound before is another's
        # With the arrays: their addresses stay theirs.
        self._bound: tuple[Any, Bound | BoundOnDevice, CallBuffers] | None = None
        self._closed = False
        self._lock = threading.RLock()

    def prepare(self, weights: Mapping[int, Any]) -> None:
        """Take copies of the weights, by the caller's numbers: later changes to them have no effect."""
        constants = {}
        for number in self.operator.constant_inputs:
            place = self._places[number]
            if place not in weights:
                raise CallerError(f"Input {place} is a weight of this operator: prepare() needs it.")
            constants[number] = self._own(weights[place], number)
        with self._lock:
            self._prepared, self._bound = self._prepared + 1, None
            self._constants = constants if self._watch is not None else None  # for the default
            self._safely(lambda: self.kernel.prepare(constants), ANYWHERE)

    def __call__(self, *inputs: Any, stream: Any = None) -> Any:
        """One run: the output, or a tuple if the operator has several."""
        given = self._named(inputs)
        weights = [self._places[number] for number in self.operator.constant_inputs]
        with self._lock:  # weights, buffers and outputs are one call's until it has its copy
            if fresh := {place: given[place] for place in weights if place in given}:
                self.prepare(fresh)  # whoever gives them with a call may have written into them since
            buffers = self._buffers(given, None, stream)
            bound = self._safely(lambda: self._ran(buffers), self._default_of(buffers))
            if buffers.there:
                results = bound.fresh_outputs(self._maker(buffers))
            else:
                like = next(iter(inputs), None)
                results = [like_given(like, np.array(output)) for output in bound.outputs()]
        return results[0] if len(results) == 1 else tuple(results)

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any] | None = None, *, stream: Any = None) -> Any:
        """Bind the caller's buffers: the result is a call that runs and does nothing else. ``outputs()`` are
        overwritten by each run: the given ones, tensors as tensors (compiled kernels write there; a library's
        results are copied), else its own buffers. A device's outputs are there, with ``stream`` as in a call;
        ``synchronize()`` then waits for its runs."""
        given = self._named(inputs)
        buffers = self._buffers(given, outputs, stream)
        if self.operator.constant_inputs and not self._prepared:
            raise CallerError("The operator has weights: prepare() comes before bind().")
        if buffers.there and outputs is None:
            make, kernel = self._maker(buffers), kernel_on_device(self.kernel, "an input")
            buffers = buffers._replace(outputs=[make(value) for value in kernel.results])
        with self._lock:
            bound = self._safely(lambda: self._tied(buffers), self._default_of(buffers))
            if self._watch is not None:
                bound = WatchedBound(self, bound, buffers)
        if buffers.there or all(isinstance(one, np.ndarray) for one in outputs or ()):
            return bound
        return GivenOutputs(bound, outputs)

    def by_address(self) -> Callable[[Sequence[int]], None] | None:
        """The kernel as a call by addresses of buffers that fit (:class:`opatlas.load.c_abi.AddressedCall`),
        until the next ``prepare``. None if it has not run yet, has failed, or is a library's: repeat a call
        that raises with :meth:`bind`."""
        make = getattr(self.kernel, "by_address", None)
        return None if make is None or self._untried or self.failure else make()

    def code(self) -> KernelCode:
        """Its functions, for callers that are code themselves; they then report to :attr:`watch`. Raises
        :class:`opatlas.errors.LoadError` if it is a library's, or has failed."""
        make = getattr(self.kernel, "code", None)
        if make is None or self.failure:
            raise LoadError(self.failure or "it is no compiled kernel")
        code: KernelCode = make()
        return code

    @property
    def watch(self) -> FailureWatch | None:
        """Gets told of failures; None for the default."""
        return self._watch

    def blame(self, message: str) -> None:
        """Report that it gives wrong values: no further process of the machine runs it."""
        if self._watch is not None:
            self._watch.failed("run", "OtherValues", message)

    def close(self) -> None:
        self._bound, self._closed = None, True
        self.kernel.close()

    # ---- what fails ---------------------------------------------------------------------------------

    def _safely(self, step: Callable[[], Any], where: Sequence[Where]) -> Any:
        """A step of the kernel; if it fails, the default replaces the kernel and repeats the step."""
        if self._watch is None:
            return step()
        try:
            with self._watch.trying() if self._untried else nullcontext():
                return step()
        except Exception as error:
            self._fall_back(error, where)
            return step()

    def _default_of(self, buffers: CallBuffers) -> Sequence[Where]:
        """Where a call's default computes: after a fault this process may have lost the device."""
        return ("device",) if buffers.there else ("host",)

    def _fall_back(self, error: Exception, where: Sequence[Where]) -> None:
        """Replace the kernel by the default; raises the error if it is the caller's, or there is no
        default."""
        if self._watch is None or self._closed:
            raise error
        try:
            default = load_default(self.manifest, self._constants, where)
        except LoadError as nothing:
            self._watch.failed("run", type(error).__name__, first_line(error))
            raise LoadError(f"the kernel failed ({first_line(error)}), and {nothing}") from error
        self.failure = f"{type(error).__name__}: {first_line(error)}"
        self._watch.failed("run", type(error).__name__, first_line(error))
        # The kernel that failed is not closed: what is bound to it may be running in another thread.
        self.kernel, self._bound, self._watch = default, None, None

    def _again(self, one: WatchedBound, error: Exception) -> Bound:
        """The default bound to the buffers of a kernel that has failed."""
        with self._lock:
            if one.prepared != self._prepared:
                raise error  # it has other weights than the function has by now
            if not self.failure:
                self._fall_back(error, self._default_of(one.buffers))
            buffers = one.buffers
            if buffers.outputs is None and isinstance(one.bound, KeptOutputs):
                buffers = buffers._replace(outputs=list(one.bound.outputs()))  # which the caller may hold
            bound = self._tied(buffers)
            bound()
            return bound

    # ---- inputs and outputs -------------------------------------------------------------------------

    def _ran(self, buffers: CallBuffers) -> Any:
        if self._bound is None or self._bound[0] != buffers.addresses:
            self._bound = buffers.addresses, self._tied(buffers), buffers
        bound = self._bound[1]
        bound()
        if self._untried:
            self._first_went_well(buffers, bound)
        return bound

    def _first_went_well(self, buffers: CallBuffers, bound: Any) -> None:
        if self._untried and self._watch is not None:
            if buffers.there:
                bound.synchronize()  # whether a kernel works on a device is not known before
            self._untried = False
            self._watch.went_well()

    def _tied(self, buffers: CallBuffers) -> Any:
        arrays, taken = buffers.inputs, buffers.outputs
        if buffers.there:
            kernel = kernel_on_device(self.kernel, "an input", self.failure)
            return kernel.bind(arrays, taken, stream=buffers.stream)
        if taken is None:
            return brought_first(self.kernel.bind(arrays))
        if binds_outputs(self.kernel) and not overlap(taken, arrays.values()):
            return self.kernel.bind(arrays, taken)
        return CopiedOut(brought_first(self.kernel.bind(arrays)), taken)

    def _named(self, inputs: Sequence[Any]) -> dict[int, Any]:
        """Inputs by the caller's numbers; prepared weights may be left out."""
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

    def _buffers(self, given: Mapping[int, Any], outputs: Sequence[Any] | None, stream: Any) -> CallBuffers:
        inputs = {number: given[self._places[number]] for number in self.operator.runtime_inputs}
        return call_buffers(self.operator, self.kernel, inputs, self._names, outputs, stream, self.failure)

    def _maker(self, buffers: CallBuffers) -> Callable[[Value], Any]:
        kernel = kernel_on_device(self.kernel, "an input", self.failure)
        return maker_like(next(iter(buffers.inputs.values())), kernel, buffers.stream)

    def _own(self, given: Any, number: int) -> np.ndarray:
        """A copy in the layout that the kernel wants, so that it makes none itself."""
        value, name = self.operator.inputs[number], self._names[number]
        if is_resident(given):
            given = kernel_on_device(self.kernel, name, self.failure).fetched(given, value, name)
        copy = empty(value, self.manifest.alignment)
        copy[...] = host_array(given, value, name)
        return copy


class WatchedBound:
    """A binding with a default: a run that fails is repeated by the default."""

    def __init__(
        self,
        function: KernelFunction,
        bound: Any,
        buffers: CallBuffers,
    ) -> None:
        self.bound, self.buffers = bound, buffers
        self.prepared = function._prepared
        self._function = function
        self._run: Callable[[], Any] = self._first if function._untried else bound

    def __call__(self) -> None:
        try:
            self._run()
        except Exception as error:
            self.bound = self._run = self._function._again(self, error)

    def outputs(self) -> Any:
        return self.bound.outputs()

    def poison(self) -> None:
        self.bound.poison()

    def synchronize(self) -> None:
        """Wait until all runs on a device have ended."""
        self.bound.synchronize()

    def _first(self) -> None:
        """Writes down first that a run might kill the process."""
        function, watch = self._function, self._function._watch
        with watch.trying() if watch is not None else nullcontext():
            self.bound()
            function._first_went_well(self.buffers, self.bound)
        self._run = self.bound
