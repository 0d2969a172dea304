"""What NVML says of a device, in our words."""

from __future__ import annotations

import sys

import pytest

from tests.tuning.measure.device.simulated import NO_GPU, FakeNvml
from tuning.measure.device.nvml import NoMonitor, NvmlMonitor, Reading, open_monitor


def test_a_look_at_a_device() -> None:
    library = FakeNvml(bits=0x1 | 0x4 | 0x40)
    monitor = NvmlMonitor(NO_GPU, library)
    assert library.asked == ["init", NO_GPU.uuid]
    slowed = ("idle", "power cap", "hardware thermal slowdown")
    assert monitor.read() == Reading(1980, 2619, 61, slowed, 3 << 30, 80 << 30)
    assert monitor.used_by() == {7: 5 << 20}, "who tells nothing uses nothing that could be counted"


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
