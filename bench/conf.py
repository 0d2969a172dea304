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
        "the operators instead of the bench's own: `open`, `heavy` or a file; of `coverage` several files, "
        "folders too, separated by colons",
        name="SAMPLE",
        shown="the bench's own",
    )
    per_operator_s: float | None = variable(
        None,
        "seconds",
        "of exploring for each operator of `contest`",
        name="PER_OPERATOR_S",
        shown="65 % of BUDGET_S for all",
        least=0.1,
    )
    limit: int = variable(
        0, "operators", "of the list in `contest`, the same ones always; 0: all", name="LIMIT", least=0
    )
    after_s: float = variable(
        1800.0,
        "seconds",
        "that a best is old at least when `reproduced` times it again",
        name="AFTER_S",
        least=0,
    )
    rival: Path | None = variable(
        None,
        "folder",
        "the home of another version's contest, whose choices run in the races of this one",
        name="RIVAL",
        shown="none",
    )
    fresh: bool = variable(
        False, "1 or 0", "1: measure all of it again instead of going on", name="FRESH", shown="0"
    )
    keep: bool = variable(
        False,
        "1 or 0",
        "1: `contest` explores on from what the last one that ended left, and measures all of it again",
        name="KEEP",
        shown="0",
    )
    max_autotune: bool = variable(
        True,
        "1 or 0",
        "0: `contest` leaves torch.compile's max-autotune out, whose compiling takes as long as all the rest",
        name="MAX_AUTOTUNE",
        shown="1",
    )
    sittings: int = variable(9, "sittings", "of each operator in `sandbox`", name="SITTINGS", least=1)
    models: Path | None = variable(
        None,
        "folder",
        "of ONNX files instead of the `onnx` package's own, by which `client` judges predictors and `models` "
        "and `graph` the executor",
        name="MODELS",
        shown="none",
    )
    bench_rounds: int = variable(7, "rounds", "over every page in `pages`", least=1)
    bench_implementations: int = variable(
        1_000_000, "rows", "of implementations in `pages`, and at most in `lookup`", least=1
    )
    catalogue: tuple[str, ...] = variable(
        "1k,1M",
        "sizes",
        "of the catalogues in `wire`: implementations, `k` and `M` of them",
        name="CATALOGUE",
        read=lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
    )
    bench_usage: int = variable(10_000_000, "rows", "of usage in `pages`", least=1)
    bench_explorations: int = variable(100_000, "rows", "of explorations in `pages`", least=1)


def conf() -> BenchConf:
    return process(BenchConf)
