"""How long a backup of a large service takes, and restoring it: a part of ``make bench ONLY=service``.

An invented catalogue of 1M implementations (``OPATLAS_BENCH_IMPLEMENTATIONS``) with a little usage; each
command is a process of its own, as an operator runs it. The restored database is the same engine's.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.lookup import manage
from bench.record import FOLDER
from bench.service.databases import databases

HOME = FOLDER / "backup"
USAGE, EXPLORATIONS = 1_000, 1_000


def measure_backup(engine: str, implementations: int | None = None) -> dict[str, Any]:
    """``engine``: sqlite or postgres. Seconds of ``manage.py backup`` and ``restore``, and its MB."""
    count = implementations or conf().bench_implementations
    home, new, backup = (HOME / engine / name for name in ("home", "new", "backup"))
    shutil.rmtree(HOME / engine, ignore_errors=True)
    home.mkdir(parents=True)
    with databases(engine, 2) as (full, empty):
        settings = {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "OPATLAS_LOG": "WARNING"}
        before = {"OPATLAS_HOME": str(home.resolve()), **settings, **full}
        manage(before, "migrate", "--verbosity", "0")
        size = ["--implementations", str(count), "--usage", str(USAGE), "--explorations", str(EXPLORATIONS)]
        manage(before, "-m", "bench.seed", "service", *size)
        backup_s = _seconds(before, "backup", backup)
        restore_s = _seconds({**before, "OPATLAS_HOME": str(new.resolve()), **empty}, "restore", backup)
    stored = sum(path.stat().st_size for path in backup.rglob("*") if path.is_file())
    shutil.rmtree(HOME / engine)
    return {
        "implementations": count,
        "backup_s": backup_s,
        "restore_s": restore_s,
        "backup_mb": round(stored / 1e6, 1),
    }


def _seconds(environment: dict[str, str], command: str, backup: Path) -> float:
    began = time.monotonic()
    manage(environment, command, str(backup.resolve()))
    return round(time.monotonic() - began, 1)
