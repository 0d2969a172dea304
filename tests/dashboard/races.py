"""Races as workers write them down, for pages: nothing here was measured."""

from __future__ import annotations

from typing import Any

from tuning import models as t
from tuning.explore.race.report import Entry, RaceReport


def contest_report() -> RaceReport:
    """Two heats; one dropped after each rung, one that failed, some not tried; the final leaves two equal."""
    fastest, second = _final(356.0, 2.14), _final(361.0, 2.11, 0.03)
    entries = [
        Entry("tvm", "untuned CPU schedule", 1, "ok", 12, 1.0, ratio=2.12, final=fastest, won=True),
        Entry("halide", "mullapudi2016, tiles 8×32", 1, "ok", 12, 0.31, ratio=2.02, final=second, equal=True),
        Entry("onnxruntime", "MLAS", 1, "ok", 12, 0.06, ratio=1.83, final=_final(410.0, 1.86)),
        Entry("xla", "as lowered", 1, "ok", 6, 0.004, dropped=True, ratio=1.31),
        Entry("mkl", "channels-last", 1, "ok", 3, 0.0, dropped=True, ratio=0.92),
        Entry("inductor", "C++ GEMM templates", 0, "build_failed"),
        Entry("onednn", "packed weights, nChw16c", 2, "ok", 12, 0.22, ratio=1.95),
        Entry("openblas", "sgemm, transposed second operand", 2, "wrong_result", 2),
        Entry("eager", "channels-last", 2, "ok", 3, 0.003, dropped=True, ratio=1.04),
        Entry("cpp", "fused bias, AVX2", status="ok", held=True, final=_final(432.0, 1.76)),
        Entry("numpy", "matmul of windows", skipped="less than 0.1 % to be faster than 1.83×"),
        Entry("numpy", "einsum", skipped="0.4 % to be faster than 1.83×"),
    ]
    return RaceReport(entries, 2, 3, 8.213, 762.0)


def first_report() -> RaceReport:
    """What was at hand beside the default; who was served stays, though another is as fast."""
    held, level, default = _final(301.0, 1.84), _final(299.0, 1.85, 0.03), _final(553.0, 1.0, 0.0)
    entries = [
        Entry("onnxruntime", "MLAS", status="ok", held=True, final=held, won=True),
        Entry("tvm", "untuned CPU schedule", status="ok", final=level, equal=True),
        Entry("eager", "as called", status="ok", final=default),
    ]
    return RaceReport(entries, 0, 1, 0.42, 553.0)


def keep_race(exploration: t.Exploration, report: RaceReport, **values: Any) -> t.Race:
    """As a worker keeps it."""
    known = {"sittings": report.sittings, "seconds": report.seconds, "default_us": report.default_us}
    known |= {"stage": 1, "worker": "worker-1@node", "report": report.to_json()}
    return t.Race.objects.create(exploration=exploration, **(known | values))


def _final(median_us: float, ratio: float, half_width: float = 0.02) -> dict[str, float]:
    low, high = ratio * (1 - half_width), ratio * (1 + half_width)
    return {"median_us": median_us, "ratio": ratio, "low": low, "high": high}
