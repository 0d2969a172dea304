"""Workers of devices: one that cannot serve its own says so and is not started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dashboard.run.stack import Stack


def test_a_worker_of_a_device_that_is_not_there_ends_with_a_sentence(tmp_path: Path) -> None:
    """It says so once, and with a code that nobody starts it again for."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "tuning", "--quiet", "worker", "--loglevel", "warning"],
        env={**os.environ, "OPATLAS_HOME": str(tmp_path), "OPATLAS_DEVICE": "cuda:7"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == os.EX_CONFIG, done
    assert "This worker cannot serve cuda:7: This machine has no device cuda:7" in done.stderr
    assert "Traceback" not in done.stderr


def test_each_device_has_a_worker_beside_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}

    def start(stack: Stack, name: str, command: list[str], **more: Any) -> None:
        told[name] = more["more"].get("OPATLAS_DEVICE", "not told")

    monkeypatch.setattr(Stack, "_start", start)
    stack = Stack(workers=1, devices=("cuda:0", "cuda:1"))
    for number in range(3):
        stack.start_worker(number)
    assert told == {"worker0": "", "worker1": "cuda:0", "worker2": "cuda:1"}
    Stack().start_worker(0)
    assert told["worker0"] == "not told", "without devices a worker serves what its environment says"
