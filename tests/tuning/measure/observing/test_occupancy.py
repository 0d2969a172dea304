"""How much of a multiprocessor a launch fills at most."""

from __future__ import annotations

import pytest

from tuning.measure.observing.occupancy import least_occupancy, occupancy


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared_bytes", "share"),
    [
        ("sm_80", 256, 32, 0, 1.0),
        ("sm_80", 256, 33, 0, 0.75),  # registers come in units of 256 a warp: 40 a thread
        ("sm_80", 256, 128, 0, 0.25),
        ("sm_80", 256, 32, 48 << 10, 0.375),
        ("sm_90", 256, 32, 48 << 10, 0.5),
        ("sm_80", 32, 16, 0, 0.5),  # no more blocks than 32
        ("sm_89", 1024, 32, 0, 2 / 3),  # no more threads than 1,536
        ("sm_80", 33, 16, 0, 1.0),  # the second warp has a place of its own
        ("sm_90", 256, 32, 228 << 10, 0.0),  # CUDA keeps 1 KiB of it: such a launch fails
        ("sm_90a", 256, 32, 0, 1.0),
    ],
)
def test_whatever_runs_out_first_decides(
    arch: str, threads: int, registers: int, shared_bytes: int, share: float
) -> None:
    assert occupancy(arch, threads, registers, shared_bytes) == pytest.approx(share)


def test_of_an_architecture_that_is_not_written_down_nothing_is_said() -> None:
    assert occupancy("sm_130", 256, 32, 0) is None


def test_of_several_launches_the_one_that_fills_least_is_told() -> None:
    one = {"function": "f", "block": [256, 1, 1], "shared_bytes": 0}
    plan = {
        "arch": "sm_80",
        "prepare": [{**one, "block": [32, 1, 1]}],
        "run": [{**one, "shared_bytes": 40 << 10}, {**one, "function": "g"}],
    }
    least = least_occupancy(plan, "f", {"registers": 32, "shared_bytes": 8 << 10})
    assert least == pytest.approx(18 / 64), "18 blocks of one warp, with 9 KiB each; the run has 3 of eight"
    assert least_occupancy(plan, "g", {"registers": 32}) == 1.0
    assert least_occupancy(plan, "h", {"registers": 32}) is None
