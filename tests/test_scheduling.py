"""A run ends though a test kills its process: that test has failed, every other one was run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
KILLERS = """
import os, signal, subprocess, time
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.xdist_group("some")
def test_of_a_group(number):
    time.sleep(0.02)
    if number == 2:
        subprocess.Popen(["sleep", "60"])  # which outlives the process, as servers of tests may
        os._exit(9)

@pytest.mark.parametrize("number", range(20))
def test_alone(number):
    time.sleep(0.02)
    if number == 11:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("processes", [1, 2])
def test_what_kills_its_process_has_failed_and_the_others_are_run(processes: int, tmp_path: Path) -> None:
    (tmp_path / "test_killers.py").write_text(KILLERS)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-p", "tests.scheduling"),
            *("-n", str(processes), "--dist", "loadgroup", "--no-loadscope-reorder", str(tmp_path)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "2 failed, 24 passed" in run.stdout
    for killer in ("test_of_a_group[2]", "test_alone[11]"):
        assert f"crashed while running 'test_killers.py::{killer}" in run.stdout
