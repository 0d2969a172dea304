"""What a device with memory of its own needs beside a kernel's runs; on the host there is nothing to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opatlas.load import Manifest
from opatlas.load.cuda import allowance
from opatlas.load.package import BUILT_FOR

GUARD_BYTES = 1024
"""On both sides of every buffer on a device."""


class OnHost:
    """Kernels that read and write this process's own memory, and are done when their call returns."""

    def guard(self, kernel: Any) -> None:
        """Before anything is bound."""

    def bound_memory(self, most_bytes: int, total_bytes: int) -> None:
        """Before anything is loaded: so much of the device's memory for this process's allocators."""

    def bring(self, bound: Any) -> None:
        """Its inputs were filled anew."""

    def wait(self, bound: Any) -> None:
        """Until all runs have ended, whoever's."""

    def fetch_inputs(self, bound: Any) -> None:
        """Its inputs as the runs left them."""

    def send_outputs(self, bound: Any) -> None:
        """Its outputs were changed."""

    def trespassed(self, bound: Any) -> bool:
        """Whether it wrote beside its buffers, where this can tell."""
        return False

    def device_us(self, bound: Any, runs: Callable[[], None]) -> float | None:
        """Microseconds that ``runs`` take by the clock of a device, where there is one."""
        runs()
        return None

    def each_us(self, bound: Any, calls: int, evict_bytes: int, lead_in: bool) -> list[float]:
        """Microseconds of each of so many calls by the clock of a device, where there is one, each after its
        caches were emptied; a processor's are emptied from outside (``timing.caches``)."""
        return []


class OnDevice(OnHost):
    """Kernels whose calls only launch, on copies (:class:`opatlas.load.cuda.module.CudaBound`,
    :class:`opatlas.load.torch.on_device.DeviceTorchBound`)."""

    def guard(self, kernel: Any) -> None:
        kernel.guard_bytes = GUARD_BYTES

    def bound_memory(self, most_bytes: int, total_bytes: int) -> None:
        allowance.allow(most_bytes)

    def bring(self, bound: Any) -> None:
        bound.upload()

    def wait(self, bound: Any) -> None:
        bound.synchronize()

    def fetch_inputs(self, bound: Any) -> None:
        bound.fetch_inputs()

    def send_outputs(self, bound: Any) -> None:
        bound.send_outputs()

    def trespassed(self, bound: Any) -> bool:
        return bool(bound.trespassed())

    def device_us(self, bound: Any, runs: Callable[[], None]) -> float | None:
        return float(bound.device_us(runs))

    def each_us(self, bound: Any, calls: int, evict_bytes: int, lead_in: bool) -> list[float]:
        return [float(us) for us in bound.each_us(calls, evict_bytes, lead_in)]


class OnDeviceInTorch(OnDevice):
    """Where PyTorch's own allocator hands the memory out."""

    def bound_memory(self, most_bytes: int, total_bytes: int) -> None:
        import torch

        if total_bytes and torch.cuda.is_available():
            torch.cuda.set_per_process_memory_fraction(min(1.0, most_bytes / total_bytes))


def transfers(manifest: Mapping[str, Any]) -> OnHost:
    """For the kernel of this artifact."""
    recipe = manifest.get("recipe") or {}
    if recipe.get("device") == "cuda":
        return OnDeviceInTorch() if recipe["library"] == "torch" else OnDevice()
    if BUILT_FOR in manifest["files"]:
        return OnDeviceInTorch()
    return OnDevice() if manifest["kind"] == "cuda-module" else OnHost()


def runs_on_device(manifest: Manifest) -> bool:
    """Whether its calls only launch."""
    return isinstance(transfers(manifest.to_json()), OnDevice)
