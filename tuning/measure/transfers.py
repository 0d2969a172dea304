"""What a device with memory of its own needs beside a kernel's runs; on the host there is nothing to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GUARD_BYTES = 1024
"""On both sides of every buffer on a device."""


class OnHost:
    """Kernels that read and write this process's own memory, and are done when their call returns."""

    def guard(self, kernel: Any) -> None:
        """Before anything is bound."""

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


class OnDevice(OnHost):
    """Kernels whose calls only launch, on copies (:class:`opatlas.load.cuda.module.CudaBound`,
    :class:`opatlas.load.torch.on_device.DeviceTorchBound`)."""

    def guard(self, kernel: Any) -> None:
        kernel.guard_bytes = GUARD_BYTES

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


def transfers(manifest: Mapping[str, Any]) -> OnHost:
    """For the kernel of this artifact."""
    called_there = (manifest.get("recipe") or {}).get("device") == "cuda"
    return OnDevice() if called_there or manifest["kind"] == "cuda-module" else OnHost()
