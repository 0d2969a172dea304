"""What can be said to a bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import process, variable


@dataclass(frozen=True, kw_only=True)
class BenchConf:
    budget_s: float | None = variable(
        None, "seconds", "that it may take", name="BUDGET_S", shown="each bench's own", least=1
    )
    sample: str = variable(
        "",
        "file",
        "the operators instead of the bench's own; of `coverage` several, folders too, separated by colons",
        name="SAMPLE",
        shown="the bench's own",
    )
    fresh: bool = variable(
        False, "1 or 0", "1: measure all of it again instead of going on", name="FRESH", shown="0"
    )
    sittings: int = variable(9, "sittings", "of each operator in `sandbox`", name="SITTINGS", least=1)
    workloads: Path = variable(
        Path(__file__).parents[2] / "shared" / "workloads",
        "folder",
        "where the open logs lie",
        shown="`shared/workloads` beside this tree",
    )
    bench_rounds: int = variable(7, "rounds", "over every page in `pages`", least=1)
    bench_implementations: int = variable(
        1_000_000, "rows", "of implementations in `pages`, and at most in `lookup`", least=1
    )
    bench_usage: int = variable(10_000_000, "rows", "of usage in `pages`", least=1)
    bench_explorations: int = variable(100_000, "rows", "of explorations in `pages`", least=1)


def conf() -> BenchConf:
    return process(BenchConf)
