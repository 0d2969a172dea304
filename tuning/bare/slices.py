"""Slices of a few minutes that go on where the last one stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from opatlas.errors import first_line
from tuning.bare.clock import SliceClock
from tuning.bare.figures import figures
from tuning.bare.lines import Full, Lines, best_entry, read_lines
from tuning.bare.measuring import FORMAT, QUICK, THOROUGH, Pass, ProblemTools, measure
from tuning.bare.problems import Problem
from tuning.routes.base import Route
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.own import EXAMPLES
from tuning.routes.manual.submitted import SubmittedKernel, SubmittedRoute

SHIPPED = EXAMPLES / "cuda"

SLICE_S = 450.0
"""A borrowed machine's 8 minutes, less what starting and writing take; an installation is taken off it."""

FOLDERS = ("tests/gpu", "tests/opatlas/load/cuda", "tests/tuning/measure/device")
OTHERS = (
    "tests/opatlas/identity/test_gpus.py",
    "tests/opatlas/load/test_torch_on_device.py",
    "tests/opatlas/streams/test_cuda_device.py",
    "tests/tuning/measure/judging/test_walk_on_device.py",
    "tests/tuning/measure/scrutiny/test_referees.py",
    "tests/tuning/measure/test_on_a_device.py",
    "tests/tuning/routes/manual/test_cuda.py",
    "tests/tuning/routes/compiler/test_triton.py",
    "tests/tuning/routes/compiler/test_inductor_on_device.py",
)


def modules(root: Path = Path()) -> list[str]:
    """Tests of devices that need neither Django nor a service: on a device first, then on simulated ones."""
    found = [
        f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((root / folder).glob("test_*.py"))
    ]
    return [*found, *OTHERS]


def bench(
    tools: ProblemTools,
    wanted: Sequence[Problem],
    state: Path,
    seconds: float = SLICE_S,
    say: Callable[[str], None] = print,
    passes: Sequence[Pass] = (QUICK, THOROUGH),
) -> dict[str, Any]:
    """Measure what has no line yet while there is time, each pass over all problems before the next; the
    figures of all lines, which are written anew beside them after each: a slice may be killed. What fails
    about a problem is its line, and the next one's turn."""
    lines, clock = Lines(state, "measured"), SliceClock.of(seconds)
    done: dict[tuple[str, str], Mapping[str, Any]] = {
        (one["problem"], one.get("pass", "")): one for one in lines
    }
    found = _told(done, passes, wanted, state)
    ended = ""
    for passing in passes:
        for problem in wanted:
            known = done.get((problem.name, QUICK.name))
            if (problem.name, passing.name) in done or (passing.on_device and _nothing_to_add(known)):
                continue
            if ended or clock.left_s < passing.least_s:
                break
            line = _line(tools, problem, clock, passing, known if passing.on_device else None)
            try:
                lines.append(line)
            except Full as error:
                say(ended := str(error))
                break
            done[problem.name, passing.name] = line
            found = _told(done, passes, wanted, state)
            say(f"{problem.name}, {passing.name}: {line.get('uncovered') or _winner_of(line)}")
            device = tools.laboratory.device
            if device is not None and (ended := device.unwell):
                say(ended)
    return found


def _told(
    done: Mapping[tuple[str, str], Mapping[str, Any]],
    passes: Sequence[Pass],
    wanted: Sequence[Problem],
    state: Path,
) -> dict[str, Any]:
    left = {
        passing.name: sum((problem.name, passing.name) not in done for problem in wanted)
        for passing in passes
    }
    found = {**figures(done.values()), "left": left}
    state.mkdir(parents=True, exist_ok=True)
    half = state / "bench.json.half"
    half.write_text(json.dumps(found, indent=2) + "\n")
    half.replace(state / "bench.json")
    return found


def _nothing_to_add(known: Mapping[str, Any] | None) -> bool:
    """What the quick pass has no line of, or could not cover, has no thorough one."""
    return known is None or "uncovered" in known


def _line(
    tools: ProblemTools,
    problem: Problem,
    clock: SliceClock,
    passing: Pass,
    known: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    try:
        return measure(tools, problem, clock, passing, known)
    except Exception as error:  # whatever it is about this one, others are measured
        traceback.print_exc()
        why = f"measuring it failed: {type(error).__name__}: {first_line(error)}"
        return {"format": FORMAT, "problem": problem.name, "pass": passing.name, "uncovered": why}


def _winner_of(line: Mapping[str, Any]) -> str:
    best = line["entries"][best_entry(line["entries"])]
    return f"{best['route']} {best['evidence']['ratio_to_default']:.2f}x"


def test(
    state: Path,
    seconds: float = SLICE_S,
    wanted: Iterable[str] | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the modules that have not passed yet while there is time; all counts, skips by their reason."""
    lines, clock = Lines(state, "tests"), SliceClock.of(seconds)
    chosen = modules() if wanted is None else list(wanted)
    latest = {line["module"]: line for line in lines if line["module"] in chosen}
    for module in chosen:
        before = latest.get(module)
        if before and before["code"] == 0 and not before["left"]:
            continue
        if clock.left_s < STARTING_S:
            break
        latest[module] = line = run_module(module, clock.left_s, before)
        lines.append(line)
        say(f"{module}: {line['counts']}" + "".join(f"\n  {text}" for text in line["failed"]))
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for line in latest.values():
        counts.update(line["counts"])
        skipped.update(line["skipped"])
    failed = [module for module, line in latest.items() if line["code"] != 0]
    left = [module for module in chosen if module not in latest or latest[module]["left"]]
    return {"counts": dict(counts), "skipped": dict(skipped), "failed": failed, "left": left}


STARTING_S = 20.0
"""Of a module's process, until its first test can begin."""


def run_module(module: str, seconds: float, before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Its line. What cannot end within the slice is left to the next one, which goes on from there:
    ``before`` is then the line so far."""
    ended = list(before["ended"]) if before and before["left"] else []
    with TemporaryDirectory(prefix="opatlas-tests-") as folder:
        told = Path(folder) / "ended.jsonl"
        told.write_text("".join(json.dumps(one) + "\n" for one in ended))
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "tests.gpu.conftest"]
        command += ["-p", "tests.gpu.slicing", "-p", "no:cacheprovider", "-p", "no:django"]
        command += ["-c", "tests/gpu/pytest.ini", "--rootdir", "."]
        command += [f"--ended={told}", f"--seconds={seconds}", module]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
            code, said = done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            code, said = -1, f"it took longer than {seconds:.0f} s"
        ended = list(read_lines(told))
    kinds = Counter(one["how"] for one in ended)
    left = kinds.pop("left", 0)
    skips = Counter(one["why"] for one in ended if one["how"] == "skipped")
    code = 0 if code == NOTHING_COLLECTED and skips else code
    wrong = [f"{one['test']}: {one['why']}" for one in ended if one["how"] == "failed"]
    if code and not wrong:
        wrong = [said[-1500:]]
    counts = {"counts": dict(kinds), "skipped": dict(skips), "failed": wrong, "left": left}
    kept = [one for one in ended if one["how"] in ("passed", "skipped")] if left else []
    return {"module": module, "code": code, **counts, "ended": kept}


NOTHING_COLLECTED = 5  # pytest's exit code; so it ends, too, where a module skips itself


def with_shipped(routes: Sequence[Route]) -> list[Route]:
    """The same routes, those for submitted kernels with the ones that ship."""
    shipped = [_shipped(path) for path in sorted(SHIPPED.glob("*.json"))]
    return [route.with_kernels(shipped) if isinstance(route, SubmittedRoute) else route for route in routes]


def _shipped(path: Path) -> SubmittedKernel:
    document = json.loads(path.read_text())
    return SubmittedKernel(
        pk=0,
        name=document["name"],
        version=1,
        language=document["language"],
        source=path.with_name(document["file"]).read_text(),
        flags=tuple(document.get("flags", ())),
        pattern=parse_pattern(document["pattern"]),
        launch=document.get("launch"),
    )
