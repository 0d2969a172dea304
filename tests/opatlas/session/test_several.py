"""``opatlas run a.onnx b.onnx``: several models share engines, alone and at once, each with its row."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from opatlas.cli import app
from opatlas.client import Client
from opatlas.errors import CallerError, OpatlasError
from opatlas.plan.engines import Engines
from opatlas.session import Session, several
from opatlas.session.several import SharingModel, names_of, run_alone, run_together
from opatlas.streams.timeline import MOST_BOXES
from tests.opatlas.plan.test_concurrent import FEED, wide


@pytest.fixture
def command(
    configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    configure(cache=tmp_path / "cache", config=tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "mine.npz", x=FEED["x"])
    np.savez(tmp_path / "small.npz", x=FEED["x"][:3])
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_bytes(wide())

    def run(*words: Any) -> str:
        names = [str(tmp_path / one) if str(one).endswith((".onnx", ".json")) else str(one) for one in words]
        done = CliRunner().invoke(app, ["run", *names, "--offline", "--framework", "none"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.stdout

    return run


def test_two_models_have_a_row_each_and_a_timeline(
    command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, ended = several.run_alone, list[tuple[Engines, float]]()

    def noted(models: list[SharingModel], engines: Engines, *more: Any) -> Any:
        found = alone(models, engines, *more)
        ended.append((engines, time.monotonic()))
        return found

    monkeypatch.setattr(several, "run_alone", noted)
    words = ("a.onnx", "b.onnx", "--seconds", 1.0, "--try-s", 0.1, "--trace", "trace.json")
    told = json.loads(command(*words, "--priority", "a=0.01", "--deadline", "b=60", "--json"))
    assert [one["model"] for one in told["models"]] == ["a", "b"]
    for one in told["models"]:
        assert one["runs"] >= 1 and 0 < one["median_us"] <= one["p95_us"] and one["alone_us"] > 0
        assert one["shared_to_alone"] == pytest.approx(one["median_us"] / one["alone_us"])
        assert one["deadlines_passed"] == 0 and one["error"] == ""
    assert told["waits"] and all(one["count"] > 0 for one in told["waits"])
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {one["cat"] for one in events if one["ph"] == "X"} == {"a", "b"}
    ends = {name: [one["ts"] for one in events if one["ph"] == "X" and one["cat"] == name] for name in "ab"}
    assert min(ends["a"]) < max(ends["b"]) and min(ends["b"]) < max(ends["a"]), "of their runs at once"
    [(engines, together_at)] = ended
    steps = sum(one.placed_at >= together_at for one in engines.waits)
    assert sum(map(len, ends.values())) == min(steps, MOST_BOXES), "and none of those alone"
    said = command("a.onnx", "a.onnx", "--seconds", 0.2, "--try-s", 0.1, "--engines", 1, "--threads", 1)
    assert "1 engines of 1 threads each" in said and "a-2" in said and "engine 0:" in said


def test_a_deadline_that_cannot_be_held_is_counted(command: Callable[..., str]) -> None:
    words = ("a.onnx", "b.onnx", "--seconds", 0.2, "--try-s", 0.1, "--deadline", "a=0.000000001", "--json")
    one, other = json.loads(command(*words))["models"]
    assert one["deadlines_passed"] == one["runs"] >= 1 and one["median_us"] is None
    assert other["deadlines_passed"] == 0 and other["median_us"] > 0


def test_one_models_timeline_is_written_too(command: Callable[..., str], tmp_path: Path) -> None:
    told = json.loads(command("a.onnx", "--try-s", 0.1, "--trace", "trace.json", "--json"))
    assert told["trace"].endswith("trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(one["ph"] == "X" and one["dur"] > 0 for one in events)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["a.onnx", "none.onnx"], "There is no file .*none.onnx"),
        (["a.onnx", "--priority", "a=1"], "are of several models that share engines: name two or more"),
        (["a.onnx", "--engines", 2], "name two or more"),
        (
            ["a.onnx", "b.onnx", "--priority", "c=1"],
            "no model 'c' to give a priority; there are a, b",
        ),
        (["a.onnx", "b.onnx", "--priority", "a"], "A priority looks like a=0.05"),
        (["a.onnx", "b.onnx", "--deadline", "a=-1"], "A deadline looks like a=0.05"),
        (["a.onnx", "b.onnx", "--deadline", "a=nan"], "A deadline looks like"),
        (["a.onnx", "b.onnx", "--seconds", 0], "--seconds must be above zero"),
        (["a.onnx", "b.onnx", "--engines", 99], "There are 1 to 16 engines, not 99"),
        (["a.onnx", "b.onnx", "--compare"], "is of one model"),
        (["a.onnx", "b.onnx", "--inputs", "mine.npz"], "which of a, b they are of: a=inputs.npz, not 'mine"),
        (["a.onnx", "b.onnx", "--inputs", "c=mine.npz"], "which of a, b they are of"),
        (["a.onnx", "b.onnx", "--inputs", "a="], "which of a, b they are of"),
        (
            ["a.onnx", "b.onnx", "--inputs", "a=mine.npz", "--inputs", "a=small.npz"],
            "a takes its inputs from one file, not from mine.npz and small.npz",
        ),
        (["a.onnx", "b.onnx", "--inputs", "b=none.npz"], "none.npz has no arrays by name"),
        (["a.onnx", "b.onnx", "--inputs", "b=small.npz"], "b cannot run on its inputs: .*x"),
        (["a.onnx", "--inputs", "mine.npz", "--inputs", "small.npz"], "from one file, not 2"),
        (["a.onnx", "b.onnx", "--trace", "nowhere/t.json"], "There is no folder .*nowhere"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    command: Callable[..., str], words: list[Any], sentence: str
) -> None:
    with pytest.raises(CallerError, match=sentence):
        command(*words, "--try-s", 0.1)


def test_each_model_runs_on_its_own_inputs(
    command: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fed: dict[str, Any] = {}
    as_it_is = several.run_alone

    def seen(models: list[SharingModel], *more: Any) -> Any:
        fed.update({one.name: one.feed["x"] for one in models})
        return as_it_is(models, *more)

    monkeypatch.setattr(several, "run_alone", seen)
    words = ("a.onnx", "b.onnx", "--inputs", "b=mine.npz", "--seconds", 0.2, "--try-s", 0.1, "--json")
    one, other = json.loads(command(*words))["models"]
    assert one["runs"] and other["runs"] and other["error"] == ""
    assert np.array_equal(fed["b"], FEED["x"]) and fed["a"].shape == FEED["x"].shape
    assert not np.array_equal(fed["a"], fed["b"]), "a has random ones"


def test_names_are_told_apart() -> None:
    paths = [Path("one/model.onnx"), Path("two/model.onnx"), Path("model-2.onnx"), Path("x.onnx")]
    names = names_of(paths)
    assert names[:2] == ["model", "model-2"] and len(set(names)) == 4


def test_a_model_that_fails_stops_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines(2)
    with Client(offline=True, cache=False) as client:
        good, bad = (Session(wide(), client=client, frameworks=[], try_s=0.1) for _ in range(2))
        runs = 0
        as_it_is = bad.run

        def fail(*given: Any, **more: Any) -> Any:
            nonlocal runs
            runs += 1
            if runs > 1 and more["deadline_s"] == 9.0:
                raise OpatlasError("out of luck")
            return as_it_is(*given, **more)

        monkeypatch.setattr(bad, "run", fail)
        models = [SharingModel("good", good, FEED), SharingModel("bad", bad, FEED, deadline_s=9.0)]
        fine, failed = found = run_alone(models, engines, 0.2)
        run_together(models, engines, 0.2, found)
    assert failed.error == "out of luck" and failed.alone_us and not failed.took_us
    assert fine.error == "" and len(fine.took_us) >= 1 and fine.slowdown and math.isfinite(fine.slowdown)
    engines.close()
