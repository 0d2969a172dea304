"""Contenders begin their turns when the threads of those before them sleep."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime as ort
import pytest

from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan import predicting, resting
from opatlas.plan.line_up import WARMING, line_up
from opatlas.plan.resting import OtherThreads
from tests.opatlas.plan.test_hard_models import build, of, tensor


class Tasks:
    """A folder like the kernel's; ``looks``: what each thread's state is at one look after another, a
    millisecond later each, and no other time goes by."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **looks: str) -> None:
        self.folder, self._looks, self.pauses = folder, looks, 0
        self._show()
        clock = SimpleNamespace(sleep=self._pause, perf_counter=lambda: 1e-3 * self.pauses)
        monkeypatch.setattr(resting, "time", clock)

    def _pause(self, seconds: float) -> None:
        self.pauses += 1
        self._show()

    def _show(self) -> None:
        for name, states in self._looks.items():
            place = self.folder / name.removeprefix("t")
            place.mkdir(exist_ok=True)
            state = states[min(self.pauses, len(states) - 1)]
            (place / "stat").write_text(f"{place.name} (a) R (b) {state} 1 1 1 0 -1\n")


def test_all_others_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(tmp_path, monkeypatch, t1="RRS", t2="RRRRS", t3="SSDZ")
    others = OtherThreads(tmp_path)
    assert others.at_work() == {"1", "2"}
    others.wait()
    assert tasks.pauses == 4 and others.at_work() == set()


def test_the_thread_that_waits_and_those_that_end_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(tmp_path, monkeypatch, **{f"t{threading.get_native_id()}": "R"})
    (tmp_path / "5").mkdir()  # its file is gone already
    OtherThreads(tmp_path).wait()
    assert tasks.pauses == 0


def test_who_never_rests_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(tmp_path, monkeypatch, t1="R", t2="RRSRRS")
    others = OtherThreads(tmp_path)
    others.wait(patience_s=0.01)
    waited = tasks.pauses
    assert 10 <= waited <= 11
    others.wait(patience_s=60)
    assert tasks.pauses == waited
    assert OtherThreads(tmp_path / "none").at_work() == set()


def test_threads_that_spin_are_seen_and_no_turn_begins_before_they_sleep() -> None:
    """ONNX Runtime's: they spin for tens of milliseconds after each run."""
    data = build([of("MatMul", "x x", "y")], [tensor("x", (512, 512))], "y")
    before = threads_here()
    session = ort.InferenceSession(data, quiet_options(2), providers=["CPUExecutionProvider"])
    its_own = threads_here() - before  # those of other tests may begin to work at any time
    others, feed = OtherThreads(), {"x": np.ones((512, 512), np.float32)}

    def seen_after_a_run() -> set[str]:
        session.run(None, feed)
        return others.at_work() & its_own

    assert its_own and any(seen_after_a_run() for _ in range(20))
    seen: list[set[str]] = []
    runs = {"spins": seen_after_a_run, "sees": lambda: seen.append(others.at_work() & its_own)}
    line_up(runs, seconds=0.0)
    assert len(seen) > WARMING and not any(seen[WARMING:])


def threads_here() -> set[str]:
    return {one.name for one in Path("/proc/self/task").iterdir()}


def test_what_is_predicted_is_timed_when_others_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(predicting.OtherThreads, "wait", lambda self: order.append("wait"))
    predicting.alone_us(lambda: order.append("run"), 1)
    assert order == ["wait", *["run"] * (predicting.WARM_RUNS + 1)]


def test_a_whole_model_is_foretold_in_turns_that_begin_when_others_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    monkeypatch.setattr(resting.OtherThreads, "wait", lambda self: order.append("wait"))
    monkeypatch.setattr(predicting, "TURNS_S", 0.0)
    predicting.foretold_us(lambda: order.append("run") or time.sleep(0.01))  # type: ignore[func-returns-value]
    assert order == ["run"] * WARMING + ["wait", "run", "run"] * predicting.LEAST_TURNS
