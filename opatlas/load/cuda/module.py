"""Kernels on a device: their constants prepared, bound to device buffers; and modules, loaded from verified
bytes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator, Value
from opatlas.identity.strides import storage_elements
from opatlas.load.buffers import check_array, check_layout, check_numbers, element_strides, empty
from opatlas.load.cuda.allowance import capped_driver
from opatlas.load.cuda.driver import CudaDriver
from opatlas.load.cuda.plan import Launch, LaunchArgument, LaunchPlan
from opatlas.load.dtypes import numpy_dtype
from opatlas.load.kernel import KernelFailed
from opatlas.load.manifest import Manifest

POISON = 0xFF  # in every byte: NaN in every floating type
GUARD = 0xA5
HOST_ALIGNMENT = 64


class DeviceKernel:
    """What a kernel on a device has, whoever computes it: its constants there, and what is bound to it.

    ``guard_bytes``: so many on both sides of every buffer that is made from then on, to see who writes
    beyond its own (:meth:`CudaBound.trespassed`). ``packed_bytes`` are buffers that its preparation fills
    from the constants; ``workspace_bytes`` are nobody's between runs.
    """

    guard_bytes = 0
    workspace_bytes = 0
    packed_bytes: tuple[int, ...] = ()

    def __init__(
        self, operator: Operator, driver: CudaDriver | None, *, graphs: bool, alignment: int
    ) -> None:
        self.operator = operator
        self.graphs = graphs
        self._alignment = alignment
        self.driver = driver or capped_driver(graphs=graphs)
        self._constants: dict[int, DeviceBuffer] | None = {} if not operator.constant_inputs else None
        self._packed: list[DeviceBuffer] = []
        self._bound: weakref.WeakSet[CudaBound] = weakref.WeakSet()
        self._closed = False

    def run_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        """What a run launches, in order: each launches and returns."""
        raise NotImplementedError

    def prepare_launches(self, tensors: LaunchTensors) -> list[Callable[[], None]]:
        """The same of what packs the constants."""
        return []

    def prepare(self, constants: Mapping[int, Any]) -> None:
        """Bring the constants to the device and pack them, if the plan does. Given new constants, a kernel
        must be bound anew."""
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

    def bind(self, inputs: Mapping[int, Any]) -> CudaBound:
        """Tie the inputs. What lies on the device already (``__cuda_array_interface__``: PyTorch, CuPy,
        Numba) is read where it is; a NumPy array is copied there, now and whenever :meth:`CudaBound.upload`
        says so, which is no part of a run."""
        if self._constants is None:
            raise LoadError("the operator has constant inputs: call prepare before bind")
        self._must_be_open()
        numbers = self.operator.runtime_inputs
        check_numbers(numbers, inputs)
        bound = CudaBound(self, {number: self._input(number, inputs[number]) for number in numbers})
        self._bound.add(bound)
        return bound

    def tensors(self, inputs: Mapping[int, DeviceBuffer], outputs: Sequence[DeviceBuffer]) -> LaunchTensors:
        """What a run's arguments are taken from."""
        workspace = self.buffer(self.workspace_bytes)
        return LaunchTensors({**inputs, **(self._constants or {})}, outputs, self._packed, workspace)

    def buffer(self, nbytes: int, host: np.ndarray | None = None) -> DeviceBuffer:
        """Memory of its own on the device."""
        return DeviceBuffer(self.driver, nbytes, host, self.guard_bytes)

    def close(self) -> None:
        """Free the constants and what was loaded; its bound kernels can no longer be called."""
        if not self._closed:
            self._forget_constants()
            self._unload()
            self._closed = True

    def _unload(self) -> None:
        """Give back what was loaded."""

    def _input(self, number: int, given: Any) -> DeviceBuffer:
        value, name = self.operator.inputs[number], f"input {number}"
        if isinstance(given, np.ndarray):
            check_array(given, value, name)
            buffer = self.buffer(_nbytes(value), given)
            buffer.upload()
            return buffer
        buffer = DeviceBuffer.of_device(self.driver, given, value, name)
        if buffer.address % self._alignment:
            raise LoadError(f"{name} does not lie on a multiple of {self._alignment} bytes on the device")
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
    """A kernel tied to its inputs. Its outputs are its own, on the device, and overwritten by every call.

    A call launches and returns; :meth:`synchronize` waits. Copies to and from the host are never part of a
    call."""

    def __init__(self, kernel: DeviceKernel, inputs: Mapping[int, DeviceBuffer]) -> None:
        self._driver = kernel.driver
        self._inputs = inputs
        self._values = kernel.operator.output_values
        self._outputs = [
            kernel.buffer(_nbytes(value), empty(value, HOST_ALIGNMENT)) for value in self._values
        ]
        self._tensors = kernel.tensors(inputs, self._outputs)
        self._launches = kernel.run_launches(self._tensors)
        if kernel.graphs:
            self._launches = [self._driver.capture(self)]

    def __call__(self) -> None:
        for launch in self._launches:
            launch()

    def synchronize(self) -> None:
        """Wait until all calls have ended. Raises :class:`~opatlas.load.cuda.driver.DeviceFailed` for what
        went wrong in any of them."""
        self._driver.synchronize()

    def device_us(self, runs: Callable[[], None]) -> float:
        """What the device took for all that ``runs`` launches, by its own clock: microseconds. Waits."""
        first = self._driver.record()
        runs()
        last = self._driver.record()
        self._driver.synchronize()
        return self._driver.elapsed_us(first, last)

    def evict(self, nbytes: int) -> None:
        """Write so much memory that is nobody's: what the device's caches held is gone. Waits."""
        room = DeviceBuffer(self._driver, nbytes)  # written when it is made
        self._driver.synchronize()
        del room

    def upload(self) -> None:
        """Bring the inputs that were given as NumPy arrays to the device again, as they are now."""
        for buffer in self._inputs.values():
            buffer.upload()

    def outputs(self) -> Sequence[np.ndarray]:
        """Outputs of the latest call as NumPy arrays, which the next ``outputs`` overwrites."""
        return [buffer.download() for buffer in self._outputs]

    def device_outputs(self) -> Sequence[DeviceArray]:
        """The same where they lie, for ``torch.as_tensor`` and its like; wait for the call yourself."""
        return [DeviceArray(buffer, value) for buffer, value in zip(self._outputs, self._values, strict=True)]

    def poison(self) -> None:
        """Spoil the outputs, and the workspace too: it is nobody's between runs."""
        for buffer in (*self._outputs, self._tensors.workspace):
            buffer.spoil()

    def fetch_inputs(self) -> None:
        """Read the inputs back into the NumPy arrays that were given: what the runs left of them."""
        for buffer in self._inputs.values():
            buffer.download()

    def send_outputs(self) -> None:
        """Write what :meth:`outputs` gave, and its reader changed, to the device."""
        for buffer in self._outputs:
            buffer.upload()

    def trespassed(self) -> bool:
        """Whether anything was written beside the buffers (``CudaKernel.guard_bytes``)."""
        return not self._tensors.intact()

    def unbind(self) -> None:
        """From now on a call raises instead of launching what was unloaded."""
        self._launches = [_closed]


def _closed() -> None:
    raise KernelFailed("the kernel was closed or got new constants; bind it again")


class DeviceBuffer:
    """Bytes on the device, freed with this object; or somebody else's, kept alive by it. ``host`` is the
    array that they come from or go to."""

    def __init__(
        self, driver: CudaDriver, nbytes: int, host: np.ndarray | None = None, guard_bytes: int = 0
    ) -> None:
        self.driver = driver
        self.nbytes = nbytes
        self.address = 0
        self._host = host
        self._owner: Any = None
        self._guards: list[tuple[int, int]] = []
        if nbytes:
            start = driver.allocate(nbytes + 2 * guard_bytes)
            weakref.finalize(self, driver.free, start)
            self.address = start + guard_bytes
            self.spoil()  # what lay there before, perhaps in another process, tells nobody anything
            if guard_bytes:
                self._guards = [(start, guard_bytes), (self.address + nbytes, guard_bytes)]
                for address, size in self._guards:
                    driver.fill(address, size, GUARD)

    @classmethod
    def of_device(cls, driver: CudaDriver, given: Any, value: Value, name: str) -> DeviceBuffer:
        """Raises :class:`LoadError` unless it is exactly what the operator states."""
        said = getattr(given, "__cuda_array_interface__", None)
        if not isinstance(said, dict):
            raise LoadError(f"{name} is neither a NumPy array nor one on the device: {type(given).__name__}")
        dtype, shape = np.dtype(said["typestr"]), tuple(said["shape"])
        strides = said.get("strides")
        if strides is None:
            strides = tuple(stride * dtype.itemsize for stride in element_strides(Value(value.dtype, shape)))
        check_layout(dtype, shape, tuple(strides), value, name)
        made = cls(driver, 0)
        made.nbytes, made.address, made._owner = _nbytes(value), int(said["data"][0]), given
        return made

    def spoil(self) -> None:
        if self.nbytes:
            self.driver.fill(self.address, self.nbytes, POISON)

    def intact(self) -> bool:
        """Whether its guards are as they were laid."""
        for address, size in self._guards:
            found = np.empty(size, np.uint8)
            self.driver.to_host(found, address)
            if (found != GUARD).any():
                return False
        return True

    def upload(self) -> None:
        if self._host is not None and self.nbytes:
            self.driver.to_device(self.address, self._flat())

    def download(self) -> np.ndarray:
        assert self._host is not None
        if self.nbytes:
            self.driver.to_host(self._flat(), self.address)
        return self._host

    def _flat(self) -> np.ndarray:
        """All that lies behind the host's array, the gaps between its elements too."""
        assert self._host is not None
        size = self._host.itemsize
        return np.lib.stride_tricks.as_strided(self._host, (self.nbytes // size,), (size,))


@dataclass(frozen=True)
class DeviceArray:
    """An output on the device, to be read without a copy."""

    buffer: DeviceBuffer
    value: Value

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        dtype = numpy_dtype(self.value.dtype)
        strides = self.value.strides
        return {
            "version": 3,
            "typestr": dtype.str,
            "shape": self.value.shape,
            "strides": strides and tuple(stride * dtype.itemsize for stride in strides),
            "data": (self.buffer.address, False),
            "stream": None,
        }


@dataclass(frozen=True)
class LaunchTensors:
    """What arguments of launches name."""

    inputs: Mapping[int, DeviceBuffer]
    outputs: Sequence[DeviceBuffer]
    packed: Sequence[DeviceBuffer]
    workspace: DeviceBuffer

    def intact(self) -> bool:
        """Whether nothing was written beside any of them."""
        every = (*self.inputs.values(), *self.outputs, *self.packed, self.workspace)
        return all(buffer.intact() for buffer in every)

    def argument(self, argument: LaunchArgument) -> np.generic:
        """As its bytes are handed over."""
        if not argument.is_address:
            return np.dtype(argument.what).type(argument.value)
        number = int(argument.value)
        if argument.what == "workspace":
            return np.uint64(self.workspace.address + number)
        if argument.what == "input":
            return np.uint64(self.inputs[number].address)
        return np.uint64((self.outputs if argument.what == "output" else self.packed)[number].address)


def _nbytes(value: Value) -> int:
    if 0 in value.shape:
        return 0
    return storage_elements(value.shape, element_strides(value)) * numpy_dtype(value.dtype).itemsize
