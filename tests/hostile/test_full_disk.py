"""The disk on which the database lies is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import ROOT, new_sqlite
from tests.disks import small_disk

pytestmark = pytest.mark.slow

FULL = "The disk is full"


def test_it_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 6 * 1024) as disk:
        new_sqlite(disk / "opatlas.sqlite3")
        done = subprocess.run(
            [sys.executable, "-m", "tests.hostile.full_disk", str(disk)],
            cwd=ROOT, capture_output=True, text=True, timeout=120,
            env={**os.environ, "OPATLAS_HOME": str(disk), "DJANGO_SETTINGS_MODULE": "dashboard.settings"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    lookups = [(status, said) for what, status, said in told if what == "lookup"]
    before, during, after = lookups[:60], lookups[60:120], lookups[120:]
    assert {status for status, _ in before} == {status for status, _ in after} == {200}
    refused = [said for status, said in during if status != 200]
    assert {status for status, _ in during} <= {200, 503} and len(refused) > 20
    assert all(said.startswith(FULL) for said in refused), set(refused)
    assert any(said.startswith(f"{FULL}: nothing was changed.") for said in refused), "the database's own"
    pages = [(status, FULL in said) for what, status, said in told if what == "page"]
    assert (503, True) in pages and {status for status, said in pages if not said} <= {200}
