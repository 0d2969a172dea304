"""What can be said to a bench."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from opatlas.conf import process, variable


@dataclass(frozen=True, kw_only=True)
class BenchConf:
    budget_s: float | None = variable(
        None, "seconds", "the time that a bench may take", name="BUDGET_S", shown="each bench's own", least=1
    )
    sample: str = variable(
        "",
        "file",
        "measure these operators: `open`, `heavy` or a file. `coverage` takes several files or folders, "
        "separated by colons",
        name="SAMPLE",
        shown="the bench's own",
    )
    per_operator_s: float | None = variable(
        None,
        "seconds",
        "`contest`: exploring time for each operator",
        name="PER_OPERATOR_S",
        shown="65 % of BUDGET_S for all",
        least=0.1,
    )
    limit: int = variable(
        0,
        "operators",
        "`contest`: how many operators of the list, always the same ones; 0: all",
        name="LIMIT",
        least=0,
    )
    after_s: float = variable(
        1800.0,
        "seconds",
        "`reproduced`: the least age of a best that is timed again",
        name="AFTER_S",
        least=0,
    )
    rival: Path | None = variable(
        None,
        "folder",
        "`contest`: the home of another version's contest; its choices run in the races of this one",
        name="RIVAL",
        shown="none",
    )
    fresh: bool = variable(
        False, "1 or 0", "1: measure everything again instead of going on", name="FRESH", shown="0"
    )
    keep: bool = variable(
        False,
        "1 or 0",
        "1: `contest` explores on from where the last complete one ended, and measures everything again",
        name="KEEP",
        shown="0",
    )
    max_autotune: bool = variable(
        True,
        "1 or 0",
        "0: `contest` leaves torch.compile's max-autotune out, which compiles as long as all the rest takes",
        name="MAX_AUTOTUNE",
        shown="1",
    )
    sittings: int = variable(
        9, "sittings", "`sandbox`: how often each operator is measured", name="SITTINGS", least=1
    )
    models: Path | None = variable(
        None,
        "folder",
        "ONNX files to take instead of the `onnx` package's own, in `client`, `models` and `graph`",
        name="MODELS",
        shown="none",
    )
    bench_rounds: int = variable(7, "rounds", "`pages`: rounds over every page", least=1)
    bench_implementations: int = variable(
        1_000_000, "rows", "rows of implementations in `pages`, and at most in `lookup`", least=1
    )
    catalogue: tuple[str, ...] = variable(
        "1k,1M",
        "sizes",
        "`wire`: implementations in each catalogue, with `k` and `M`",
        name="CATALOGUE",
        read=lambda text: tuple(part.strip() for part in text.split(",") if part.strip()),
    )
    bench_usage: int = variable(10_000_000, "rows", "`pages`: rows of usage", least=1)
    bench_explorations: int = variable(100_000, "rows", "`pages`: rows of explorations", least=1)


def conf() -> BenchConf:
    return process(BenchConf)
