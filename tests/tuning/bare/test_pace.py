"""How many problems a slice yields: the real passes over a laboratory that only takes time, by a clock of its
own."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opatlas.evidence import Evidence
from opatlas.identity import Operator, Setting, Target, parse_operator
from opatlas.load import Manifest
from tests.catalog.making import GPU
from tests.tuning.measure.simulated_device import SimulatedRoute
from tuning.bare import __main__, slices
from tuning.bare import lines as lines_of
from tuning.bare.lines import Lines
from tuning.bare.measuring import PASSES, QUICK, THOROUGH, ProblemTools
from tuning.bare.problems import Problem
from tuning.measure.laboratory import Limits
from tuning.measure.outcome import LineUp, Outcome, Status
from tuning.routes.base import Answer, Budget, BuiltArtifact, Candidate, Route, answer

SET_UP_S, HEAT_S, ALONE_S, SITTING_S = 3.0, 3.0, 3.5, 3.0
"""A process that starts CUDA and a library takes two seconds (the desk check's), all of one race start side
by side on the sixteen cores of such a machine; the rest is references, and races as ``opatlas.noise`` has
them."""
TAKES_S = {"cuda": 0.5, "triton": 1.5, "inductor": 60.0}
"""A build: as the desk check measured them on the machines' software; Inductor's is what its first kernel
takes."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    yield now


class SlowBench:
    def __init__(self, laboratory: SlowLaboratory, default: Outcome) -> None:
        self.laboratory, self.default = laboratory, default

    def heat(self, artifacts: Sequence[BuiltArtifact]) -> list[Outcome]:
        self.laboratory.take(HEAT_S)
        return [timed(2.0) for _ in artifacts]

    def measure(self, artifact: BuiltArtifact) -> Outcome:
        self.laboratory.take(ALONE_S)
        return timed(2.0)

    def line_up(
        self, artifacts: Sequence[BuiltArtifact], limits: Limits | None = None, sittings: int = 1
    ) -> LineUp:
        self.laboratory.take(sittings * SITTING_S)
        return LineUp(tuple(timed(1.5) for _ in artifacts))


def timed(ratio: float) -> Outcome:
    evidence = Evidence(100 / ratio, 1.0, 100.0, ratio, ratio * 0.98, ratio * 1.02)
    return Outcome(Status.OK, timing=evidence)


class SlowLaboratory:
    """What a bench asks of one; nothing is built or run, only time passes."""

    device = None
    target = GPU

    def __init__(self, home: Path, now: list[float]) -> None:
        self.home, self.now = home, now
        self.built: list[str] = []
        self.broken: set[str] = set()

    def take(self, seconds: float) -> None:
        self.now[0] += seconds

    def times_on_device(self, route: Route) -> bool:
        return route.zygote == "inductor"

    def build(
        self, route: Route, operator: Operator, setting: Setting, candidate: Candidate, folder: Path
    ) -> BuiltArtifact:
        return BuiltArtifact(Manifest("recipe", route.name, operator.to_json(), setting.to_json()), folder)

    def build_all(
        self,
        operator: Operator,
        setting: Setting,
        jobs: Sequence[tuple[Route, Candidate, Path]],
        limits: Limits,
    ) -> list[BuiltArtifact | Outcome]:
        """One after the other, ended where their limits are."""
        made: list[BuiltArtifact | Outcome] = []
        for route, candidate, folder in jobs:
            left_s = limits.ends - self.now[0]
            if left_s < TAKES_S.get(route.name, 0.0):
                self.take(max(0.0, left_s) if left_s > 15 else 0.0)
                made.append(Outcome(Status.TIMED_OUT, "took longer than it may"))
                continue
            self.take(TAKES_S.get(route.name, 0.0))
            if not route.builds_in_process:
                self.built.append(route.name)
            made.append(self.build(route, operator, setting, candidate, folder))
        return made

    @contextmanager
    def bench(self, operator: Operator, setting: Setting, default: BuiltArtifact) -> Iterator[SlowBench]:
        if str(operator.inputs[0].shape) in self.broken:
            raise RuntimeError("the device fell off the bus")
        self.take(SET_UP_S)
        yield SlowBench(self, timed(1.0))


class Several(SimulatedRoute):
    def supports(self, operator: Operator, setting: Setting) -> Answer:
        """Somebody's kernel is for one problem in four, as those that ship are."""
        none = self.name == "cuda" and operator.inputs[0].shape[1] % 4
        return answer("no kernel serves it" if none else None)

    def candidates(
        self, operator: Operator, target: Target, setting: Setting, budget: Budget
    ) -> Iterator[Candidate]:
        for number in range(1 if self.name == "cuda" else budget.candidates):
            yield Candidate(self.name, {"number": number}, str(number))


class AllPrebuilt:
    """As a bundle has it."""

    def get(self, route: Route, operator: Operator, *about: Any) -> BuiltArtifact | None:
        if route.name not in ("cuda", "triton"):
            return None
        manifest = Manifest("recipe", route.name, operator.to_json(), Setting().to_json())
        return BuiltArtifact(manifest, about[-1])


EAGER = SimulatedRoute("eager")
ROUTES: tuple[Route, ...] = (
    EAGER,
    *(Several(name) for name in ("cublaslt", "cudnn")),
    Several("triton", builds_in_process=False),
    Several("cuda", builds_in_process=False),
    Several("inductor", builds_in_process=False, zygote="inductor"),
)
WANTED = [
    Problem(
        "made",
        "float32",
        number,
        parse_operator({"op": "Relu", "inputs": [{"shape": [4, 8 + number], "dtype": "float32"}]}),
    )
    for number in range(100)
]


def tools(laboratory: SlowLaboratory, prebuilt: Any = None) -> ProblemTools:
    def default(operator: Operator, target: Target, setting: Setting) -> tuple[Route, Candidate]:
        return EAGER, next(EAGER.candidates(operator, target, setting, Budget(1.0)))

    baseline = SimulatedRoute("torch_compile", method="compiler")
    return ProblemTools(laboratory, ROUTES, default, baseline=baseline, prebuilt=prebuilt)  # type: ignore[arg-type]


def lines(state: Path, passing: str) -> list[dict[str, Any]]:
    return [line for line in Lines(state, "measured") if line["pass"] == passing]


def test_a_slice_has_a_line_of_at_least_forty_problems(tmp_path: Path, clock: list[float]) -> None:
    laboratory, began = SlowLaboratory(tmp_path, clock), clock[0]
    found = slices.bench(tools(laboratory, AllPrebuilt()), WANTED, tmp_path / "state", 460)
    quick = lines(tmp_path / "state", "quick")
    assert len(quick) >= 40 and not any("uncovered" in line for line in quick)
    assert found["left"]["quick"] == len(WANTED) - len(quick)
    tried = {entry["route"] for line in quick for entry in line["entries"]}
    assert tried == {"eager", "cublaslt", "cudnn", "triton", "cuda"}
    assert clock[0] - began <= 460 + QUICK.problem_s
    assert not laboratory.built, "nothing is built on the device's time"
    taken = [entry for line in quick for entry in line["entries"] if entry["route"] in ("cuda", "triton")]
    assert found["prebuilt"] == len(taken) > len(quick)


def test_what_was_not_built_before_is_built_within_each_problems_share(
    tmp_path: Path, clock: list[float]
) -> None:
    laboratory = SlowLaboratory(tmp_path, clock)
    slices.bench(tools(laboratory), WANTED, tmp_path / "state", 460)
    quick = lines(tmp_path / "state", "quick")
    assert len(quick) >= 20, "fewer, and each with what there was time for"
    assert all(any(entry["route"] == "cublaslt" for entry in line["entries"]) for line in quick)


def test_inductors_builds_come_after_all_else_and_end_with_their_share(
    tmp_path: Path, clock: list[float]
) -> None:
    laboratory, began = SlowLaboratory(tmp_path, clock), clock[0]
    few = WANTED[:3]
    found = slices.bench(tools(laboratory, AllPrebuilt()), few, tmp_path / "state", 900)
    assert laboratory.built[0] == "inductor" and found["left"] == {"quick": 0, "thorough": 0}
    passes = [line["pass"] for line in Lines(tmp_path / "state", "measured")]
    assert passes == ["quick"] * 3 + ["thorough"] * 3
    thorough = lines(tmp_path / "state", "thorough")
    assert all("ratio" in line["max_autotune"] and line["again"]["ratio"] == 1.5 for line in thorough)
    assert {entry["route"] for line in thorough for entry in line["entries"]} >= {"eager", "inductor"}
    assert clock[0] - began <= 900
    late = slices.bench(tools(laboratory, AllPrebuilt()), WANTED[3:4], tmp_path / "late", 70)
    assert late["left"] == {"quick": 0, "thorough": 0}, "skipped is the build, not the problem"
    (line,) = lines(tmp_path / "late", "thorough")
    ends = [entry["status"] for entry in line["entries"] if entry["route"] == "inductor"]
    assert ends and set(ends) == {"timed_out"}


def test_a_problem_that_fails_has_a_line_and_the_next_one_its_turn(
    tmp_path: Path, clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    laboratory = SlowLaboratory(tmp_path, clock)
    laboratory.broken = {"(4, 9)"}
    found = slices.bench(tools(laboratory, AllPrebuilt()), WANTED[:4], tmp_path / "state", 60)
    quick = lines(tmp_path / "state", "quick")
    assert [("uncovered" in line) for line in quick] == [False, True, False, False]
    assert "measuring it failed: RuntimeError: the device fell off the bus" in quick[1]["uncovered"]
    assert found["uncovered"] == 1
    assert "Traceback" in capsys.readouterr().err


def test_a_slice_that_is_killed_or_whose_files_are_full_leaves_the_figures_so_far(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    laboratory, said = SlowLaboratory(tmp_path, clock), list[str]()

    def killed(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        slices.bench(tools(laboratory, AllPrebuilt()), WANTED[:4], tmp_path, 90, killed, [QUICK])
    assert json.loads((tmp_path / "bench.json").read_text())["problems"] == 2
    monkeypatch.setattr(lines_of, "MOST_BYTES", 10)
    found = slices.bench(tools(laboratory, AllPrebuilt()), WANTED[:4], tmp_path, 90, said.append)
    assert "are full" in said[-1] and found["problems"] == 2 and found["left"]["quick"] == 2
    assert json.loads((tmp_path / "bench.json").read_text()) == found


def test_what_it_takes_until_a_device_is_ready_is_the_slices_time(
    tmp_path: Path, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[float] = []

    @contextmanager
    def ready(said: Any) -> Iterator[tuple[None, list[Problem]]]:
        clock[0] += 40
        yield None, WANTED

    monkeypatch.setitem(sys.modules, "stand_in", SimpleNamespace(tools=ready))
    monkeypatch.setattr(slices, "bench", lambda *given, **named: left.append(given[3]) or {})
    for seconds in ("435", "0"):
        given = ["bare", "bench", "--rehearsed", "stand_in", "--seconds", seconds]
        monkeypatch.setattr(sys, "argv", given)
        assert __main__.main() == 0
    assert left == [395, 0]


def test_a_slice_goes_on_where_the_last_one_stopped(tmp_path: Path, clock: list[float]) -> None:
    bound = tools(SlowLaboratory(tmp_path, clock), AllPrebuilt())
    first = slices.bench(bound, WANTED[:6], tmp_path, 30, passes=(QUICK,))
    assert 0 < first["left"]["quick"] < 6
    second = slices.bench(bound, WANTED[:6], tmp_path, 90, passes=(QUICK,))
    assert second["left"]["quick"] == 0
    numbers = [line["problem"] for line in lines(tmp_path, "quick")]
    assert numbers == [problem.name for problem in WANTED[:6]]
    assert tuple(PASSES.values()) == (QUICK, THOROUGH)
