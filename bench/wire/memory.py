"""``python -m bench.wire.memory``: what 100,000 hits take in a web process's memory."""

from __future__ import annotations

import gc
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HITS = 100_000


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django

    django.setup()
    from catalog.api.lookup_json import ParsedLookup
    from catalog.api.warm.memory import Lesson, WarmMemory
    from catalog.lookup.recalls import Recalls

    recalls = Recalls()
    memory = WarmMemory(recalls, 4 << 30)
    target = SimpleNamespace(pk=1, key="t1:" + "0" * 64, capability="cpu.zen3")
    setting = SimpleNamespace(pk=1, key="s1:" + "0" * 64)
    key, parsed = SimpleNamespace(organisation_id=1), ParsedLookup(target.key, None, ())
    gc.collect()
    before = resident_bytes()
    for number in range(HITS):
        answer: Any = SimpleNamespace(
            target=target,
            setting=setting,
            results=[invented(number)],
            related=(),
            next=(),
            artifacts=(),
            signers=(),
            without_best=(),
        )
        memory.learn(Lesson(key, parsed, answer), recalls.look)  # type: ignore[arg-type]
    assert len(memory) == HITS
    gc.collect()
    taken = resident_bytes() - before
    weighed = sum(one.weight_bytes for one in memory._hits._young.values())
    print(
        json.dumps(
            {"hits": HITS, "resident_mb": round(taken / 1e6, 1), "counted_mb": round(weighed / 1e6, 1)}
        )
    )


def invented(number: int) -> Any:
    """Texts as long as real ones, each an object of its own, as a database gives them."""
    from catalog.best.served import Hit
    from catalog.lookup.results import Result

    digest = f"{number:064x}"
    said: list[Any] = [f"o1:{digest}", number + 1000, "shared", number + 1000, "onednn", "library"]
    said += [f"onednn, packed weights, {number}", "recipe", digest[::-1], "torch==2.13.0"]
    said += [100.1 + number, 1.5 + number, 200.5 + number, 2.0 + number, 1.9 + number, 2.1 + number]
    said += ["tuned", True, False, False, datetime.now(UTC), 0]
    hit = Hit(*said)
    return Result(hit.key, "hit", hit)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
