"""The coverage of a small log, worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import coverage
from opatlas.errors import InvalidModel
from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Answer, No, Yes


def tensor(*shape: int, dtype: str = "float32") -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype}


LOG = [
    {"op": "aten.mm.default", "attrs": {}, "inputs": [tensor(4, 5), tensor(5, 6)], "count": 10},
    # The same product in float16: the same operator once it is read as float32.
    {
        "op": "aten.mm.default",
        "attrs": {},
        "inputs": [tensor(4, 5, dtype="float16"), tensor(5, 6, dtype="float16")],
        "count": 20,
    },
    {"op": "aten.relu.default", "attrs": {}, "inputs": [tensor(7)], "count": 5},
    {"op": "aten.bernoulli_.float", "attrs": {"p": 0.5}, "inputs": [tensor(7)], "count": 3},
    {"op": "aten.new_empty.default", "attrs": {"size": [2]}, "inputs": [tensor(7)], "count": 2},
    {
        "op": "aten.tanh_backward.default",
        "attrs": {},
        "inputs": [tensor(7), tensor(7)],
        "count": 9,
        "phase": "backward",
    },
]


class Only:
    """A route that can do one operator type."""

    zygote, preload, builds_in_process = "library", (), True

    def __init__(self, name: str, method: str, op: str, installed: bool = True) -> None:
        self.name, self.method, self.op, self.installed = name, method, op, installed

    def available(self, target: Target) -> Answer:
        return Yes() if self.installed else No("it is not installed")

    def supports(self, operator: Operator, setting: Setting) -> Answer:
        return Yes() if operator.op_types == (self.op,) else No(f"only {self.op}")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "suite" / "model.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LOG))
    return path


def read(path: Path) -> coverage.CoveredCalls:
    calls = coverage.CoveredCalls()
    coverage.Reader().read(path, [calls])
    return calls


def test_a_small_log_by_hand(log: Path) -> None:
    routes = [
        Only("products", "library", "MatMul"),
        Only("relus", "compiler", "Relu"),
        Only("absent", "compiler", "MatMul", installed=False),
    ]
    result = coverage.report(read(log), routes)  # type: ignore[arg-type]
    assert result["calls"] == 40  # 10 + 20 + 5 + 3 + 2: what is backward is left out
    assert result["backward_left_out"] == 9
    assert result["operators"] == 2
    assert result["expressible"] == pytest.approx(35 / 40)
    assert result["expressible_of_compute"] == pytest.approx(35 / 38, abs=1e-5)
    assert result["half_width_read_as_float32"] == pytest.approx(20 / 40)
    assert result["overall"] == pytest.approx(35 / 40)
    assert result["by_method"] == {"library": 0.75, "compiler": 0.125}
    assert result["unmapped"] == [("random numbers", 3), ("allocates memory: nothing is computed", 2)]
    products, relus, absent = (result["routes"][one.name] for one in routes)
    assert (products["share"], products["calls"], products["operators"]) == (0.75, 30, 1)
    assert products["share_of_expressible"] == pytest.approx(30 / 35, abs=1e-5)
    assert products["reasons"] == [("only MatMul", 5)]
    assert relus["share"] == 0.125
    assert (absent["share"], absent["available"], absent["why_not"]) == (0.0, False, "it is not installed")


def test_every_route_is_asked_and_the_report_is_json(log: Path) -> None:
    result = coverage.report(read(log))
    assert json.loads(json.dumps(result))["routes"]["eager"]["share"] == 0.875


def test_the_command_writes_and_prints(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(coverage, "FOLDER", tmp_path / "out")
    monkeypatch.setenv("SAMPLE", str(log.parent))
    coverage.main()
    written = json.loads((tmp_path / "out" / "coverage.json").read_text())
    assert written["suites"] == {"suite": {"calls": 40, "expressible": 0.875}}
    assert "87.5%" in capsys.readouterr().out


def test_a_missing_file_and_a_wrong_one_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="There is no"):
        coverage.logs(str(tmp_path / "nothing.json"))
    wrong = tmp_path / "wrong.json"
    wrong.write_text('"a text"')
    with pytest.raises(InvalidModel, match="is no operator list"):
        read(wrong)
