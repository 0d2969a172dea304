"""A bench's figures on disk, part by part, so that a run that was cut off goes on where it stopped."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.conf import conf

FOLDER = Path("var/bench")


class BenchRecord:
    """Parts that were measured, in ``var/bench/NAME.parts.json``; ``FRESH=1`` begins anew."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = FOLDER / f"{name}.parts.json"
        FOLDER.mkdir(parents=True, exist_ok=True)
        kept = self.path.exists() and not conf().fresh
        self.parts: dict[str, Any] = json.loads(self.path.read_text()) if kept else {}

    def part(self, name: str, measure: Callable[[], Any]) -> Any:
        """The part's figures: from the last run if it got that far, else measured now."""
        if name in self.parts:
            print(f"{name}: kept from the run before (FRESH=1 measures again)", flush=True)
            return self.parts[name]
        print(f"{name}: measuring …", flush=True)
        self.keep(name, measure())
        return self.parts[name]

    def keep(self, name: str, figures: Any) -> None:
        """Keep a part that was measured, whole or not at all."""
        self.parts[name] = figures
        scratch = self.path.with_suffix(".tmp")
        scratch.write_text(json.dumps(self.parts, indent=1))
        scratch.replace(self.path)

    def finish(self, result: dict[str, Any], shown: Sequence[str] | None = None) -> None:
        """Write the result and print it (or what is named of it); the parts are dropped, since the next run
        is a new one."""
        path = FOLDER / f"{self.name}.json"
        path.write_text(json.dumps(result, indent=1))
        self.path.unlink(missing_ok=True)
        print(json.dumps(result if shown is None else {name: result[name] for name in shown}, indent=1))
        print(f"Written to {path}")


def spread(samples_ms: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, as they are printed."""
    low, middle, high = statistics.quantiles(samples_ms, n=4)
    return {"median": round(middle, 3), "q1": round(low, 3), "q3": round(high, 3), "samples": len(samples_ms)}
