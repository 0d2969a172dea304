"""Tests that failed and then passed alone: unsteady, remembered in ``unsteady.toml``, and to be mended.

A run that meets one passes and says so. Whoever reads that line mends the test, or adds it to the list, with
the day and the cause: one that is there already and is unsteady once more fails the run."""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("unsteady.toml")
MOST = 5


def listed(path: Path = LIST) -> list[dict[str, Any]]:
    return list(tomllib.loads(path.read_text()).get("test", []))


def known(names: list[str], path: Path = LIST) -> list[str]:
    """Those of them that were unsteady before."""
    before = {test["name"] for test in listed(path)}
    return [name for name in names if name in before]


def told(names: list[str], path: Path = LIST) -> list[str]:
    """What to say of tests that were unsteady in this run."""
    twice = known(names, path)
    lines = [
        f"=== Unsteady, and {path.name} knows it already, so this run has failed: {name} ==="
        for name in twice
    ]
    if new := [name for name in names if name not in twice]:
        lines.append(f"=== Unsteady: {', '.join(new)}. Mend it now, or commit to {path.name}: ===")
        today = datetime.date.today()
        lines += [f'[[test]]\nname = "{name}"\ndate = {today}\ncause = "…"' for name in new]
    return lines
