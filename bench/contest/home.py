"""The contest's catalogue on disk, and what its last run that ended wrote."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from bench.contest import RESULT


def set_up(folder: Path, *, new: bool = False) -> Path:
    """Django over the catalogue in this folder, migrated; emptied before where it is to be ``new``."""
    home = folder.resolve()
    if new:
        shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, exist_ok=True)
    os.environ["OPATLAS_HOME"] = str(home)
    os.environ.setdefault("OPATLAS_LOG", "WARNING")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, interactive=False)
    return home


def last_result() -> dict[str, Any] | None:
    """``var/bench/contest.json``, where a contest of this version has ended."""
    found: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    return found if "identity" in found else None
