"""Kernels on a device: constants prepared, device buffers bound, modules loaded from verified bytes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value
from opatlas.load.buffers import check_array, check_numbers, empty, laid_out, storage_bytes
from opatlas.load.cuda.allowance import capped_driver
from opatlas.load.cuda.device_buffer import DeviceArray, DeviceBuffer, flat
from opatlas.load.cuda.driver import CudaDriver
from opatlas.load.cuda.plan import Launch, LaunchArgument, LaunchPlan
from opatlas.load.kernel import KernelFailed
from opatlas.load.manifest import Manifest


class DeviceKernel:
    """The common part of all kernels on a device: its constants there, and what is bound to it.

    ``guard_bytes``: added on both sides of every later buffer, to detect writes beyond it
    (:meth:`CudaBound.trespassed`). ``loads_late``: its first run loads code, which a capture must not.
    ``packed_bytes``: buffers that its preparation fills from the constants; ``workspace_bytes``: not
    preserved between runs. ``results``: the operator's outputs as written, with strides where the operator
    leaves them open.
    """

    guard_bytes = 0
    loads_late = False
    workspace_bytes = 0
    packed_bytes: tuple[int, ...] = ()

    def __init__(
        self, operator: Operator, driver: CudaDriver | None, *, graphs: bool, alignment: int
    ) -> None:
        self.operator = operator
        self.results: tuple[Value, ...] = operator.output_values
        self.graphs = graphs
        self.alignment = alignment
        self.driver = driver or capped_driver()
        self._constants: dict[int, DeviceBuffer] | None = {} if not operator.constant_inputs else None
        self._packed: list[DeviceBuffer] = []
        self._bound: weakref.WeakSet[CudaBound] = weakref.WeakSet()
        self._closed = False

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        """The launches of a run, in order; each returns at once."""
        raise NotImplementedError

    def prepare_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        """The launches that pack the constants."""
        return []

    def prepare(self, constants: Mapping[int, Any]) -> None:
        """Copy the constants to the device, and pack them if the plan does. With new constants, a kernel must
        be bound again."""
        numbers = self.operator.constant_inputs
        check_numbers(numbers, constants)
        self._forget_constants()
        kept = {number: self._input(number, constants[number]) for number in numbers}
        self._packed = [self.buffer(size) for size in self.packed_bytes]
        tensors = LaunchTensors(kept, (), self._packed, self.buffer(self.workspace_bytes))
        for launch in self.prepare_launches(tensors):
            launch()
        self.driver.synchronize()
        self._constants = kept

    @property
    def on_device(self) -> int:
        """The number of its device among the visible ones."""
        return self.driver.number

    def bind(
        self, inputs: Mapping[int, Any], outputs: Sequence[Any] | None = None, *, stream: Any = None
    ) -> CudaBound:
        """Bind the inputs. Arrays on the device (:mod:`opatlas.load.cuda.resident`) are read in place. NumPy
        arrays are copied, now and by :meth:`CudaBound.upload`; that is no part of a run. ``outputs``: arrays
        on the device; the binding's own unless given. ``stream``: a handle of the driver's for launches
        (``torch.cuda.current_stream().cuda_stream``); else the default one."""
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        self._must_be_open()
        numbers = self.operator.runtime_inputs
        check_numbers(numbers, inputs)
        brought = {number: self._input(number, inputs[number], stream) for number in numbers}
        bound = CudaBound(self, brought, outputs, stream)
        self._bound.add(bound)
        return bound

    def fetched(self, given: Any, value: Value, name: str) -> np.ndarray:
        """A copy on the host of an array on the device."""
        copy = empty(value, self.alignment)
        there = DeviceBuffer.of_resident(self.driver, given, value, name, 1)
        if there.nbytes:
            self.driver.synchronize()
            self.driver.to_host(flat(copy, there.nbytes), there.address)
        return copy

    def memory(self, value: Value, stream: Any = None) -> DeviceArray:
        """An array on the device for such a value, in the driver's memory."""
        return DeviceArray(DeviceBuffer(self.driver, storage_bytes(value), spoilt=False), value)

    def resident(self, given: Any, value: Value, name: str, stream: Any = None) -> DeviceBuffer:
        """An array on the device, in the form that a run takes."""
        return DeviceBuffer.of_resident(self.driver, given, value, name, self.alignment, stream)

    def tensors(self, inputs: Mapping[int, DeviceBuffer], outputs: Sequence[DeviceBuffer]) -> LaunchTensors:
        """The tensors from which a run's arguments are taken."""
        workspace = self.buffer(self.workspace_bytes)
        return LaunchTensors({**inputs, **(self._constants or {})}, outputs, self._packed, workspace)

    def buffer(self, nbytes: int, host: np.ndarray | None = None) -> DeviceBuffer:
        """A new buffer on the device."""
        return DeviceBuffer(self.driver, nbytes, host, self.guard_bytes)

    def close(self) -> None:
        """Free the constants and unload the code; its bound kernels can no longer be called."""
        if not self._closed:
            self._forget_constants()
            self._unload()
            self._closed = True

    def _unload(self) -> None:
        """Give back what was loaded."""

    def _input(self, number: int, given: Any, stream: Any = None) -> DeviceBuffer:
        value, name = self.operator.inputs[number], f"input {number}"
        if not isinstance(given, np.ndarray):
            return self.resident(given, value, name, stream)
        check_array(given, value, name)
        buffer = self.buffer(storage_bytes(value), given)
        buffer.upload()
        return buffer

    def _must_be_open(self) -> None:
        if self._closed:
            raise LoadError("the kernel was closed; load it again")

    def _forget_constants(self) -> None:
        for bound in self._bound:
            bound.unbind()
        self._bound.clear()
        self._constants, self._packed = None, []


class CudaKernel(DeviceKernel):
    """A loaded module with its launch plan."""

    def __init__(
        self, manifest: Manifest, files: Mapping[str, bytes], driver: CudaDriver | None = None
    ) -> None:
        operator = Operator.from_json(manifest.operator)
        self.plan = LaunchPlan.from_json(manifest.launch, operator)
        if set(files) != {self.plan.module}:
            raise LoadError(f"a cuda-module artifact has one file, its launch plan's {self.plan.module}")
        graphs = bool(manifest.setting.get("graphs"))
        super().__init__(operator, driver, graphs=graphs, alignment=manifest.alignment)
        self.workspace_bytes, self.packed_bytes = self.plan.workspace_bytes, self.plan.packed_bytes
        self.plan.check_device(self.driver.arch, self.driver.version)
        image = files[self.plan.module]
        self._module: Any = self.driver.load(image + b"\0" if self.plan.is_ptx else image)

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        return self._launchers(self.plan.run, tensors)

    def prepare_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        return self._launchers(self.plan.prepare, tensors)

    def _launchers(self, launches: Sequence[Launch], tensors: LaunchTensors) -> list[Callable[[], None]]:
        self._must_be_open()
        return [
            self.driver.launcher(
                self._module,
                one.function,
                one.grid,
                one.block,
                one.shared_bytes,
                [tensors.argument(argument) for argument in one.arguments],
            )
            for one in launches
        ]

    def _unload(self) -> None:
        self.driver.unload(self._module)
        self._module = None


class CudaBound:
    """A kernel bound to its inputs. Outputs are on the device, its own unless given, and overwritten by every
    call. A call launches and returns; :meth:`synchronize` waits. Copies to and from the host are never part
    of a call."""

    def __init__(
        self,
        kernel: DeviceKernel,
        inputs: Mapping[int, DeviceBuffer],
        given: Sequence[Any] | None = None,
        stream: Any = None,
    ) -> None:
        self._driver = kernel.driver
        self._stream = stream
        self._inputs = inputs
        self._values = kernel.results
        self._kernel, self._given = kernel, given
        self._outputs = self._own_outputs(kernel) if given is None else self._residents(kernel, given)
        self._tensors = kernel.tensors(inputs, self._outputs)
        self._launches = kernel.run_launches(self._tensors)
        if kernel.graphs:
            if kernel.loads_late:
                self._run_once()
            self._launches = [self._driver.capture(self._launch)]
        if stream is not None:
            self._driver.synchronize()  # buffers were spoilt in the default stream, for which no other waits

    def _run_once(self) -> None:
        self._launch()
        self._driver.synchronize()
        if self._given is None:
            self.poison()  # no call has given a result yet

    def _own_outputs(self, kernel: DeviceKernel) -> list[DeviceBuffer]:
        sizes = [(value, storage_bytes(value)) for value in self._values]
        return [
            kernel.buffer(nbytes, laid_out(self._driver.host_memory(nbytes), value))
            for value, nbytes in sizes
        ]

    def _residents(self, kernel: DeviceKernel, given: Sequence[Any]) -> list[DeviceBuffer]:
        if len(given) != len(self._values):
            raise LoadError(f"the operator has {len(self._values)} outputs; {len(given)} are given")
        return [
            kernel.resident(one, value, f"output {number}", self._stream)
            for number, (one, value) in enumerate(zip(given, self._values, strict=True))
        ]

    def __call__(self) -> None:
        self._in_stream(self._launch)

    def _in_stream(self, launch: Callable[[], None]) -> None:
        if self._stream is None:
            launch()
        else:
            self._driver.launch_in(self._stream, launch)

    def _launch(self) -> None:
        for launch in self._launches:
            launch()

    def synchronize(self) -> None:
        """Wait until all calls have ended. Raises :class:`~opatlas.load.cuda.driver.DeviceFailed` for errors
        in any of them."""
        self._driver.synchronize()

    def device_us(self, runs: Callable[[], None]) -> float:
        """Microseconds that the device took for all that ``runs`` launches, by its own clock. Waits."""
        first = self._driver.record()
        runs()
        last = self._driver.record()
        self._driver.synchronize()
        return self._driver.elapsed_us(first, last)

    def each_us(self, calls: int, evict_bytes: int, lead_in: bool) -> list[float]:
        """Microseconds that the device took for each of so many calls, by its own clock. Before each call so
        much unrelated memory is written, to empty its caches; with ``lead_in`` the call then runs once
        untimed. Launches wait behind the writing, so host time is not included. Waits."""
        room = DeviceBuffer(self._driver, evict_bytes)
        marks = []
        for _ in range(calls):
            self._driver.fill(room.address, evict_bytes, 0)
            if lead_in:
                self()
            first = self._driver.record()
            self()
            marks.append((first, self._driver.record()))
        self._driver.synchronize()
        return [self._driver.elapsed_us(*pair) for pair in marks]

    def upload(self) -> None:
        """Copy the inputs that were given as NumPy arrays to the device again, with their current values."""
        self._wait_for_own_stream()
        for buffer in self._inputs.values():
            buffer.upload()

    def outputs(self) -> Sequence[Any]:
        """The latest outputs as NumPy arrays, which the next ``outputs`` overwrites; given outputs as they
        are."""
        if self._given is not None:
            return self._given
        self._wait_for_own_stream()
        return [buffer.download() for buffer in self._outputs]

    def _wait_for_own_stream(self) -> None:
        """Copies are in the default stream, which waits for no other."""
        if self._stream is not None:
            self._driver.synchronize()

    def device_outputs(self) -> Sequence[DeviceArray]:
        """The outputs on the device, for ``torch.as_tensor`` and the like; the caller waits for the call."""
        return [DeviceArray(buffer, value) for buffer, value in zip(self._outputs, self._values, strict=True)]

    def fresh_outputs(self, make: Callable[[Value], Any]) -> list[Any]:
        """Copies of the outputs for the caller, in device memory that ``make`` gives for each. Launched like
        a call."""
        made = [make(value) for value in self._values]
        sources = [buffer for buffer in self._outputs if buffer.nbytes]
        targets = [one for one in self._residents(self._kernel, made) if one.nbytes]

        def copy() -> None:
            for target, source in zip(targets, sources, strict=True):
                self._driver.copy(target.address, source.address, source.nbytes)

        self._in_stream(copy)
        return made

    def poison(self) -> None:
        """Overwrite the outputs and the workspace with bad values: neither may be relied on between runs."""
        for buffer in (*self._outputs, self._tensors.workspace):
            buffer.spoil()

    def fetch_inputs(self) -> None:
        """Read the inputs back into the given NumPy arrays, with whatever the runs left in them."""
        for buffer in self._inputs.values():
            buffer.download()

    def send_outputs(self) -> None:
        """Copy the arrays of :meth:`outputs`, as changed by the caller, to the device."""
        for buffer in self._outputs:
            buffer.upload()

    def trespassed(self) -> bool:
        """Whether anything was written outside the buffers (``CudaKernel.guard_bytes``)."""
        return not self._tensors.intact()

    def unbind(self) -> None:
        """From now on a call raises instead of launching unloaded code."""
        self._launches = [_closed]


def _closed() -> None:
    raise KernelFailed("the kernel was closed or got new constants; bind it again")


@dataclass(frozen=True)
class LaunchTensors:
    """The tensors that arguments of launches name."""

    inputs: Mapping[int, DeviceBuffer]
    outputs: Sequence[DeviceBuffer]
    packed: Sequence[DeviceBuffer]
    workspace: DeviceBuffer

    def intact(self) -> bool:
        """Whether nothing was written beside any of them."""
        every = (*self.inputs.values(), *self.outputs, *self.packed, self.workspace)
        return all(buffer.intact() for buffer in every)

    def argument(self, argument: LaunchArgument) -> np.generic:
        """An argument's bytes."""
        if not argument.is_address:
            return np.dtype(argument.what).type(argument.value)
        number = int(argument.value)
        if argument.what == "workspace":
            return np.uint64(self.workspace.address + number)
        if argument.what == "input":
            return np.uint64(self.inputs[number].address)
        return np.uint64((self.outputs if argument.what == "output" else self.packed)[number].address)
