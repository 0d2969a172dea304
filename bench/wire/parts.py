"""Where the slow path's time goes, part by part, and what the memory takes: in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from dashboard.run.stack import ROOT


def measure_parts() -> dict[str, dict[str, float]]:
    """Microseconds of one ``GET …/best`` that nothing remembers, in the mean, by part: ``before`` and
    ``now``, in turns in one process."""
    parts: dict[str, dict[str, float]] = _in_a_process("slow_path")
    for name, us in parts.items():
        print(f"  {name:24} {us['before']:8.1f} → {us['now']:7.1f} µs")
    return parts


def measure_memory() -> dict[str, float]:
    """Bytes that 100,000 remembered hits take."""
    return _in_a_process("memory")


def _in_a_process(what: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="opatlas-wire-") as home:
        done = subprocess.run(
            [sys.executable, "-m", f"bench.wire.{what}"],
            cwd=ROOT,
            env={**os.environ, "OPATLAS_HOME": home, "OPATLAS_LOG": "WARNING"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(done.stdout.strip().splitlines()[-1])
