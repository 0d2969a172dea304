"""Copies between host and device: through page-locked memory of the loader's, on a simulated device whose
copies happen as late as they may."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from opatlas.load.cuda import staging
from opatlas.load.cuda.driver import DeviceFailed
from opatlas.load.cuda.staging import Wait
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tests.opatlas.load.cuda.test_module import RUN, kernel

X = np.arange(32, dtype=np.float32).reshape(4, 8)
WEIGHTS = np.full((4, 8), 0.5, np.float32)


class Looking(SimulatedDriver):
    """Knows which host memory its copies met."""

    def __init__(self) -> None:
        super().__init__()
        self.met: list[np.ndarray] = []
        self.refuses = False

    def lock_pages(self, nbytes: int) -> np.ndarray:
        if self.refuses:
            raise DeviceFailed("the device answers CUDA_ERROR_OUT_OF_MEMORY to cuMemHostAlloc")
        return super().lock_pages(nbytes)

    def begin_to_device(self, address: int, source: np.ndarray) -> Wait:
        self.met.append(source)
        return super().begin_to_device(address, source)

    def begin_to_host(self, target: np.ndarray, address: int) -> Wait:
        self.met.append(target)
        return super().begin_to_host(target, address)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Looking:
    monkeypatch.setattr(staging, "HALF_BYTES", 100)
    return Looking()


@pytest.mark.parametrize("nbytes", [1, 100, 101, 1000])
@pytest.mark.parametrize("refuses", [False, True])
def test_what_is_copied_arrives_in_halves_that_are_used_again(
    device: Looking, nbytes: int, refuses: bool
) -> None:
    device.refuses = refuses
    given = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    back, address = np.zeros_like(given), device.allocate(nbytes)
    for _ in range(2):
        device.to_device(address, given)
        device.to_host(back, address)
    np.testing.assert_array_equal(back, given)
    assert not any(np.shares_memory(met, mine) for met in device.met for mine in (given, back))
    assert len({met.ctypes.data for met in device.met}) == min(2, -(-nbytes // 100))
    assert device.locked_bytes == (0 if refuses else 200)


def test_outputs_are_fetched_straight_into_page_locked_memory(device: Looking) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: WEIGHTS})
    bound = loaded.bind({0: X})
    assert device.locked_bytes == 2 * 100 + X.nbytes
    bound()
    device.met.clear()
    (first,) = bound.outputs()
    (again,) = bound.outputs()
    assert [np.shares_memory(met, first) for met in device.met] == [True, True]
    np.testing.assert_array_equal(again, X / WEIGHTS)
    bound.send_outputs()
    assert np.shares_memory(device.met[-1], first)
    del bound, first, again, loaded
    device.met.clear()
    gc.collect()
    assert device.locked_bytes == 200


def test_beyond_what_a_process_takes_of_the_host_memory_is_as_any(
    device: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "MOST_LOCKED_BYTES", 200)
    loaded = kernel(device, RUN)
    loaded.prepare({1: WEIGHTS})
    bound = loaded.bind({0: X})
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], X / WEIGHTS)
    assert device.locked_bytes == 200
