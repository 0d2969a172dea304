"""What NVML says of a device, in our words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.tuning.measure.device.simulated import NO_GPU, FakeNvml
from tests.tuning.measure.simulated_device import SimulatedRoute
from tuning.measure.device import driver_versions
from tuning.measure.device.nvml import NoMonitor, NvmlMonitor, Reading, open_monitor


def test_a_look_at_a_device() -> None:
    library = FakeNvml(bits=0x1 | 0x4 | 0x40)
    monitor = NvmlMonitor(NO_GPU, library)
    assert library.asked == ["init", NO_GPU.uuid]
    slowed = ("idle", "power cap", "hardware thermal slowdown")
    held_back = {"hardware thermal slowdown": 20}  # this one does not know of the other
    assert monitor.read() == Reading(1980, 2619, 61, slowed, 3 << 30, 80 << 30, held_back)
    assert monitor.used_by() == {7: 5 << 20}, "who tells nothing uses nothing that could be counted"


def test_the_driver_is_part_of_a_devices_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"nvidia-driver": "580.95.05", "cuda-driver": "13.1"}
    assert driver_versions.driver_versions(tmp_path, FakeNvml()) == told
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert driver_versions.driver_versions(tmp_path) == {}
    file = tmp_path / "proc/driver/nvidia/version"
    file.parent.mkdir(parents=True)
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@buildd)\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)\n"
    )
    assert driver_versions.driver_versions(tmp_path) == {"nvidia-driver": "580.95.05"}
    monkeypatch.setattr(driver_versions, "_here", lambda: told)
    route = SimulatedRoute()
    assert driver_versions.environment_of(route, "cuda") == {"simulated": "1", **told}
    assert driver_versions.environment_of(route, "cpu") == {"simulated": "1"}


def test_a_driver_that_refuses_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(FakeNvml):
        def nvmlInit(self) -> None:
            raise RuntimeError("NVML Shared Library Not Found")

    monkeypatch.setitem(sys.modules, "pynvml", Refusing())
    with pytest.raises(NoMonitor, match=r"nvmlInit fails: .*NVML Shared Library Not Found"):
        open_monitor(NO_GPU)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(NoMonitor, match="nvidia-ml-py is not installed"):
        open_monitor(NO_GPU)
