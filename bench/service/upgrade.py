"""Lookups that are lost while a service is upgraded by one version, by engine: a part of ``make bench
ONLY=service``. The test of it is ``tests/compatibility/test_upgrade.py``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.service.databases import databases
from bench.service.upgrading import tree_before, upgrade


def measure_upgrade(engine: str) -> dict[str, Any]:
    """``engine``: sqlite or postgres. How many were lost, and of how many that jobs asked meanwhile."""
    with tempfile.TemporaryDirectory(prefix="opatlas-bench-") as folder, databases(engine) as (variables,):
        done = upgrade(tree_before(Path(folder)), Path(folder) / "home", **variables)
    lost = len(done.lost) + abs(done.answered - done.counted)
    return {"lookups_lost": lost, "lookups_during_upgrade": done.answered + len(done.lost)}
