"""Uploads taken apart in the test's own process, as soon as a worker would be rung for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuning.graph import apart_main
from tuning.measure.sandbox.tiers import SandboxTier
from tuning.uploads import claims, intake, sandboxed
from tuning.uploads.running import run_upload

WISH = {"memory_bytes": 2 << 30, "nodes": 50_000}


def in_process(body: Path, wish: Mapping[str, Any], *_: Any) -> dict[str, Any]:
    """What the sandboxed child would answer."""
    stdin = SimpleNamespace(buffer=SimpleNamespace(read=body.read_bytes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart_main.sys, "stdin", stdin)
        found = json.loads(json.dumps(apart_main._answer({**wish, **WISH})))
    if "refused" in found:
        raise sandboxed.UploadRefused(found["refused"])
    return dict(found)


def workshop(home: Path, check: Callable[[Any], None] = lambda held: None) -> Any:
    """As much of a worker's as an upload needs."""
    return SimpleNamespace(home=home, laboratory=SimpleNamespace(tier=SandboxTier("T0")), check=check)


def run_all(home: Path) -> int:
    """Take everything apart that waits; how many those were."""
    done = 0
    while held := claims.claim("w1"):
        done += run_upload(workshop(home), held)
    return done


def at_once(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(sandboxed, "take_apart", in_process)
    monkeypatch.setattr(intake, "ring", lambda: run_all(home))
