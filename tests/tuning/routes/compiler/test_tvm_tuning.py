"""Stage 2: slices that resume, candidates that can be built."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.routes.compiler.tvm_cases import ROUTE, TARGET, const, one, random_inputs, reference, run
from tuning.routes.base import Candidate
from tuning.routes.compiler.tvm.trial import in_fork

SETTING = Setting(threads=2)

pytestmark = [
    pytest.mark.skipif(not ROUTE.available(TARGET), reason="TVM is not installed as pinned"),
]


def slices_until_tried(operator: Operator, work: Path) -> tuple[list[Candidate], int]:
    """What short slices find until one has tried something, and how many that took: one, but for a slow
    machine."""
    before = _state(work, "search").get("trials", 0)
    for count in range(1, 10):
        found = list(ROUTE.tune(operator, TARGET, SETTING, work, 2.0))
        if found and _state(work, "search").get("trials", 0) > before:
            return found, count
    raise AssertionError("nothing was tried")


def _state(work: Path, name: str) -> dict[str, Any]:
    path = work / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.slow
def test_a_second_slice_goes_on_from_the_first(tmp_path: Path) -> None:
    operator, setting = one("MatMul", (64, 64), const(64, 96)), SETTING
    work = tmp_path / "work"
    work.mkdir()
    first, slices = slices_until_tried(operator, work)
    tiles_first = _state(work, "tiles")
    second, more = slices_until_tried(operator, work)
    assert _state(work, "search")["slices"] == slices + more
    tiles_second = _state(work, "tiles")
    assert tiles_second["tried"][: len(tiles_first["tried"])] == tiles_first["tried"]
    assert second[0].parameters["search_us"] <= first[0].parameters["search_us"]
    inputs = random_inputs(operator)
    for number, candidate in enumerate(second):
        folder = tmp_path / str(number)
        folder.mkdir()
        copied = Candidate(candidate.route, json.loads(json.dumps(candidate.parameters)), candidate.label)
        artifact = ROUTE.build(operator, TARGET, setting, copied, folder)
        found, wanted = run(artifact, operator, inputs)[0], reference(operator, inputs)[0]
        assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.nightly
def test_an_operator_without_a_product_is_tuned_too(tmp_path: Path) -> None:
    operator, setting = one("Softmax", (64, 128), axis=-1), Setting(threads=2)
    found = list(ROUTE.tune(operator, TARGET, setting, tmp_path, 10.0))
    assert found and "traces" in found[0].parameters


def test_a_hanging_trial_is_killed_in_time() -> None:
    started = time.monotonic()
    assert in_fork(lambda: time.sleep(60) or 1.0, timeout_s=0.3) is None
    assert time.monotonic() - started < 30


def test_a_crashing_trial_is_a_failed_one() -> None:
    assert in_fork(lambda: float(os.kill(os.getpid(), signal.SIGKILL) or 0), timeout_s=60) is None
    assert in_fork(lambda: 1 / 0, timeout_s=60) is None
    assert in_fork(lambda: 0.25, timeout_s=60) == 0.25
