"""Device code measured through the laboratory, on a simulated device: honest, faulty and cheating kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import Setting, Target
from tests.catalog.making import GPU
from tests.opatlas.load.cuda.simulated import CACHE_BYTES
from tests.tuning.measure.busy import decided
from tests.tuning.measure.kernels import relu_operator
from tests.tuning.measure.simulated_device import SETTING, SimulatedRoute, artifact
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome, Status

pytest.importorskip("torch", reason="references are PyTorch's")
pytestmark = [pytest.mark.slow, pytest.mark.alone]

TESTS = Path(__file__).resolve().parents[2]
LIMITS = Limits(memory_bytes=1 << 30, disk_bytes=64 << 20, run_s=8.0)
DEFAULT_US, HONEST_US = 500, 200
"""Long against what the simulation itself computes: 12 us a launch, and several times that on a slow host."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    target = Target.from_json({**GPU.to_json(), "cache_bytes": {"l2": CACHE_BYTES}})
    with Laboratory(tmp_path_factory.mktemp("device"), target, readable=[TESTS]) as lab:
        lab.warm((SimulatedRoute(),))
        yield lab


@pytest.fixture(scope="module")
def bench(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    operator = relu_operator()
    default = artifact(tmp_path_factory.mktemp("default"), operator, "relu", DEFAULT_US, route="eager")
    with lab.bench(operator, SETTING, default) as bench:
        assert bench.default.ok, bench.default
        yield bench


@pytest.fixture
def measure(bench: Bench, tmp_path: Path) -> Callable[..., Outcome]:
    def run(does: str, us: float = HONEST_US, **limits: Any) -> Outcome:
        made = artifact(tmp_path / does, relu_operator(), does, us)
        return bench.measure(made, replace(LIMITS, **limits))

    return run


def test_an_honest_kernel_is_timed_by_the_devices_clock(measure: Callable[..., Outcome]) -> None:
    outcome = decided(lambda: measure("relu"), lambda outcome: outcome.ok)
    assert outcome.ok, outcome
    assert outcome.timing is not None
    # Launches alone take a tenth of it; the simulation runs on the host, and may be kept waiting there.
    assert 0.98 * HONEST_US < outcome.timing.median_us < 2 * HONEST_US
    ratios = outcome.timing.ratios
    # What the simulation itself computes is a larger share of the shorter of the two.
    assert 0.95 * ratios.low < DEFAULT_US / HONEST_US < 1.1 * ratios.high, ratios
    assert ratios.ratio == pytest.approx(DEFAULT_US / HONEST_US, rel=0.3)
    clocks = outcome.facts["clocks"]
    assert 0.5 * clocks["parent_us"] <= clocks["device_us"] <= clocks["parent_us"] + 30
    for copies in ("upload_us", "download_us"):
        assert 0 < outcome.of_device[copies] < 1e6, "copies are no part of what is timed"
    assert clocks["device_us"] >= 2000, "a batch that is long against what asking for it takes"


@pytest.mark.parametrize(
    ("cache", "takes_us"), [pytest.param("warm", 200, marks=pytest.mark.nightly), ("cold", 800)]
)
def test_a_cold_cache_is_one_of_the_devices(
    lab: Laboratory, tmp_path: Path, cache: Any, takes_us: float
) -> None:
    operator, setting = relu_operator(), Setting(cache=cache)

    def default() -> Outcome:
        made = artifact(tmp_path / "default", operator, "cached", 0, route="eager", setting=setting)
        with lab.bench(operator, setting, made) as bench:
            return bench.default

    outcome = decided(default, lambda outcome: outcome.ok)
    assert outcome.timing is not None, outcome
    # Far enough from the other: the simulation's own work may run while the cache is being emptied.
    assert takes_us / 2 < outcome.timing.median_us < 2 * takes_us


BY_DAY = ("beyond", "overrunning", "kept", "on_another_stream")
"""One for each way in which a device tells: a fault, what lies around its buffers, what its memory keeps, its
clock. How outputs are judged is the same wherever they come from."""


@pytest.mark.parametrize(
    ("does", "status", "words"),
    [
        pytest.param(*case, id=case[0], marks=[pytest.mark.nightly] * (case[0] not in BY_DAY))
        for case in (
            ("half", (Status.NOT_FINITE, Status.WRONG_RESULT), ""),
            ("beyond", (Status.CRASHED,), "CUDA_ERROR_ILLEGAL_ADDRESS"),
            ("uncorrectable", (Status.CRASHED,), "CUDA_ERROR_ECC_UNCORRECTABLE"),
            ("overrunning", (Status.CHEATED,), "outside of its buffers on the device"),
            ("into_the_input", (Status.WROTE_INPUT,), "changed its inputs"),
            ("hanging", (Status.TIMED_OUT,), "longer than it may"),
            ("kept", (Status.CHEATED,), "wrong when timed"),
            ("on_another_stream", (Status.CHEATED,), "its device's clock says"),
            ("not_waited_for", (Status.NOT_FINITE, Status.WRONG_RESULT), ""),
            ("left_over", (Status.NOT_FINITE, Status.WRONG_RESULT), ""),
            ("rounded", (Status.WRONG_RESULT,), ""),
        )
    ],
)
def test_what_goes_wrong_on_the_device_has_its_status(
    measure: Callable[..., Outcome], does: str, status: tuple[Status, ...], words: str
) -> None:
    limits = {"run_s": 1.0} if does == "hanging" else {}

    def told(outcome: Outcome) -> bool:
        return outcome.status in status and words in outcome.detail

    outcome = decided(lambda: measure(does, **limits), told)
    assert told(outcome), outcome
    if outcome.status in (Status.NOT_FINITE, Status.WRONG_RESULT):
        return  # nothing is broken by it
    computes = (Status.OK, Status.NOISY)
    again = decided(lambda: measure("relu"), lambda outcome: outcome.status in computes)
    assert again.status in computes, again


@pytest.mark.nightly
def test_a_kernel_that_remembers_gains_nothing(measure: Callable[..., Outcome]) -> None:
    outcome = decided(lambda: measure("remembering"), lambda outcome: outcome.status is Status.CHEATED)
    assert outcome.status is Status.CHEATED, outcome
    assert "new values" in outcome.detail
