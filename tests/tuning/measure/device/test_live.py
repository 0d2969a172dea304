"""A watched device through the laboratory: its memory, its faults, its rounds (simulated)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.catalog.making import GPU
from tests.tuning.measure.busy import decided
from tests.tuning.measure.device.simulated import CALM, NO_GPU, SimulatedMonitor
from tests.tuning.measure.kernels import relu_operator
from tests.tuning.measure.simulated_device import SETTING, SimulatedRoute, artifact
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.measure.scrutiny import fresh_sets

pytest.importorskip("torch", reason="references are PyTorch's")
pytestmark = [pytest.mark.slow, pytest.mark.alone]

TESTS = Path(__file__).resolve().parents[3]
LIMITS = Limits(memory_bytes=1 << 30, disk_bytes=64 << 20, run_s=8.0)


class NewestHogs(SimulatedMonitor):
    """Whoever came last uses all of the device, once ``hogs`` is set."""

    watch: DeviceWatch
    hogs = False
    uses = 1 << 20  # of it, by each of the others

    def used_by(self) -> dict[int, int]:
        pids = list(self.watch._claims)
        return {pids[-1]: 79 << 30} if self.hogs and len(pids) > 1 else dict.fromkeys(pids, self.uses)


@pytest.fixture(scope="module")
def monitor() -> NewestHogs:
    return NewestHogs()


@pytest.fixture
def calm(monitor: NewestHogs) -> Iterator[None]:
    yield
    monitor.now, monitor.hogs, monitor.uses = CALM, False, NewestHogs.uses


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory, monitor: NewestHogs) -> Iterator[Laboratory]:
    watch = monitor.watch = DeviceWatch(NO_GPU, monitor)
    with Laboratory(tmp_path_factory.mktemp("lab"), GPU, readable=[TESTS], device=watch) as lab:
        lab.warm((SimulatedRoute(),))
        yield lab


@pytest.fixture
def bench(laboratory: Laboratory, tmp_path: Path) -> Iterator[Bench]:
    default = artifact(tmp_path / "default", relu_operator(), "relu", 500, route="eager")
    with laboratory.bench(relu_operator(), SETTING, default) as bench:
        assert bench.default.ok, bench.default
        yield bench


def measure(bench: Bench, folder: Path, does: str, **limits: float) -> Outcome:
    made = artifact(folder / does, relu_operator(), does, 200)
    return bench.measure(made, replace(LIMITS, **limits))


@pytest.mark.usefixtures("calm")
def test_clocks_and_temperature_are_kept_with_the_times(
    bench: Bench, monitor: NewestHogs, tmp_path: Path
) -> None:
    monitor.now = replace(CALM, sm_mhz=1980, slowed=("power cap",))
    outcome = decided(lambda: measure(bench, tmp_path, "relu"), lambda outcome: outcome.ok)
    assert outcome.ok, outcome
    seen = outcome.facts["device"]
    assert seen["sm_mhz"] == [1980, 1980] and seen["slowed"] == {"power cap": seen["looks"]}
    assert seen["looks"] == outcome.facts["rounds"], "once a round, while it works"


@pytest.mark.usefixtures("calm")
def test_no_time_is_taken_on_a_device_that_is_slowed_down(
    bench: Bench, monitor: NewestHogs, tmp_path: Path
) -> None:
    monitor.now = replace(CALM, slowed=("hardware slowdown",))
    outcome = measure(bench, tmp_path, "relu")
    assert outcome.status is Status.NOISY, outcome
    assert "the device was slowed down in" in outcome.detail


@pytest.mark.usefixtures("calm")
def test_who_takes_more_of_the_device_than_its_claim_is_ended(
    bench: Bench, monitor: NewestHogs, tmp_path: Path
) -> None:
    monitor.hogs = True
    outcome = measure(bench, tmp_path, "hanging")
    monitor.hogs = False
    assert outcome.status is Status.OUT_OF_MEMORY, outcome
    assert "of the device's memory; at most" in outcome.detail
    assert len(monitor.watch._claims) == 1, "the default's alone: who was ended has left"


def test_references_of_what_takes_the_host_long_are_the_devices(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the sandbox's own children; to PyTorch the simulated device is the processor."""
    monkeypatch.setattr(fresh_sets, "HEAVY_FLOPS", 0)
    monkeypatch.setattr(laboratory.device, "torch_device", "cpu")
    default = artifact(tmp_path / "default", relu_operator(), "relu", 500, route="eager")
    with laboratory.bench(relu_operator(), SETTING, default) as bench:
        assert bench.default.ok, bench.default
        assert bench.default.facts["reference_on"] == "cuda:0"
    monkeypatch.setattr(laboratory.device, "torch_device", "no such device")
    laboratory.kept.close()
    with laboratory.bench(relu_operator(), SETTING, default) as bench:
        assert bench.default.ok, bench.default
        assert "no such device" in bench.default.facts["reference_not_on_device"]


def test_an_allocator_hands_out_no_more_than_the_claim(
    laboratory: Laboratory, monitor: NewestHogs, calm: None, tmp_path: Path
) -> None:
    assert laboratory.device is not None
    monitor.uses = 0  # or whoever watches the device ends the process first
    default = artifact(tmp_path / "default", relu_operator(), "relu", 500, route="eager")
    laboratory.device.total_bytes = 1 << 13  # of which half is a process's, and none is left for guards
    try:
        outcome = laboratory.check(relu_operator(), SETTING, default)
    finally:
        laboratory.device.total_bytes = CALM.total_bytes
    assert outcome.status is Status.OUT_OF_MEMORY, outcome
    assert "of the device's memory beside" in outcome.detail


def test_after_a_fault_the_device_proves_itself_before_the_next_trial(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    default = artifact(tmp_path / "default", relu_operator(), "relu", 500, route="eager")
    assert laboratory.device is not None
    with laboratory.bench(relu_operator(), SETTING, default) as bench:
        crashed = measure(bench, tmp_path, "beyond")
        assert crashed.status is Status.CRASHED, crashed
        after = decided(lambda: measure(bench, tmp_path, "relu"), lambda outcome: outcome.ok)
        assert after.ok, after
        assert measure(bench, tmp_path, "beyond").status is Status.CRASHED
        # From now on the device computes wrongly, as far as anybody can see.
        (tmp_path / "default/relu.cubin").write_text('{"functions": {"relu": "half"}, "us": 500}')
        refused = measure(bench, tmp_path, "relu")
    assert refused.status is Status.UNSUPPORTED, refused
    assert "cuda:0 does not compute correctly after a fault" in refused.detail
    assert laboratory.device.unwell
