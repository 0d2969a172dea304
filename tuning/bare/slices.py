"""Slices of a few minutes that go on where the last one stopped."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from opatlas.identity import Setting
from tuning.bare.figures import figures
from tuning.bare.lines import Lines
from tuning.bare.measuring import DefaultCandidate, measure
from tuning.bare.problems import Problem
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import Route
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.own import EXAMPLES
from tuning.routes.manual.submitted import SubmittedKernel, SubmittedRoute

SHIPPED = EXAMPLES / "cuda"

SLICE_S = 330.0
"""With what is installed before the first one it stays below 8 minutes."""
LONGEST_S = 90.0
"""What one more problem or module may take: none is begun with less left."""

MODULES = (
    "tests/gpu/test_device.py",
    "tests/opatlas/load/cuda/test_module.py",
    "tests/opatlas/load/cuda/test_plan.py",
    "tests/opatlas/load/cuda/test_cudnn.py",
    "tests/tuning/measure/device/test_gpus.py",
    "tests/tuning/measure/device/test_nvml.py",
    "tests/tuning/measure/device/test_watch.py",
    "tests/tuning/measure/device/test_walls.py",
    "tests/tuning/measure/device/test_live.py",
)
"""What needs neither Django nor a service: on a device, and on the simulated one."""


def bench(
    laboratory: Laboratory,
    routes: Sequence[Route],
    default_candidate: DefaultCandidate,
    wanted: Sequence[Problem],
    state: Path,
    seconds: float = SLICE_S,
    say: Callable[[str], None] = print,
    baseline: Route | None = None,
) -> dict[str, Any]:
    """Measure what has no line yet while there is time; the figures of all lines, written beside them."""
    lines, deadline = Lines(state, "measured"), time.monotonic() + seconds
    done = {line["problem"] for line in lines}
    for problem in wanted:
        if problem.name in done:
            continue
        if time.monotonic() + min(LONGEST_S, seconds / 2) > deadline:
            break
        line = measure(laboratory, routes, default_candidate, problem, Setting(), baseline)
        lines.append(line)
        done.add(problem.name)
        say(f"{problem.name}: {line.get('uncovered') or _winner_of(line)}")
        if laboratory.device is not None and laboratory.device.unwell:
            say(laboratory.device.unwell)
            break
    found = {**figures(lines), "left": sum(problem.name not in done for problem in wanted)}
    state.mkdir(parents=True, exist_ok=True)
    (state / "bench.json").write_text(json.dumps(found, indent=2) + "\n")
    return found


def _winner_of(line: dict[str, Any]) -> str:
    timed = [one for one in line["entries"] if one["evidence"]]
    best = max(timed, key=lambda one: one["evidence"]["ratio_to_default"])
    return f"{best['route']} {best['evidence']['ratio_to_default']:.2f}x"


def test(
    state: Path,
    seconds: float = SLICE_S,
    modules: Iterable[str] = MODULES,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the modules that have not passed yet while there is time; all counts, skips by their reason."""
    lines, deadline = Lines(state, "tests"), time.monotonic() + seconds
    passed = {line["module"] for line in lines if line["code"] == 0}
    for module in modules:
        left = deadline - time.monotonic()
        if module in passed or left < min(LONGEST_S, seconds / 2):
            continue
        line = _run(module, left)
        lines.append(line)
        say(f"{module}: {line['counts']}" + "".join(f"\n  {text}" for text in line["failed"]))
    latest = {line["module"]: line for line in lines}
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for line in latest.values():
        counts.update(line["counts"])
        skipped.update(line["skipped"])
    failed = [module for module, line in latest.items() if line["code"] != 0]
    unseen = [module for module in modules if module not in latest]
    return {"counts": dict(counts), "skipped": dict(skipped), "failed": failed, "left": unseen}


def _run(module: str, seconds: float) -> dict[str, Any]:
    report = Path(f"{module}.xml".replace("/", "-"))
    command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-p", "tests.gpu.conftest"]
    command += ["-p", "no:cacheprovider", "-p", "no:django", "-c", "tests/gpu/pytest.ini", "--rootdir", "."]
    command += [f"--junitxml={report}", module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        code, said = done.returncode, done.stdout[-4000:] + done.stderr[-2000:]
    except subprocess.TimeoutExpired:
        code, said = -1, f"it took longer than {seconds:.0f} s"
    cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    report.unlink(missing_ok=True)
    ends = [(case, next(iter(case), None)) for case in cases]
    kinds = Counter("passed" if end is None or end.tag not in _ENDS else _ENDS[end.tag] for _, end in ends)
    skips = Counter(_why(end) for _, end in ends if end is not None and end.tag == "skipped")
    code = 0 if code == NOTHING_COLLECTED and skips else code
    wrong = [
        f"{case.get('name')}: {(end.get('message') or '')[:300]}"
        for case, end in ends
        if end is not None and _ENDS.get(end.tag) == "failed"
    ]
    if code and not wrong:
        wrong = [said[-1500:]]
    return {"module": module, "code": code, "counts": dict(kinds), "skipped": dict(skips), "failed": wrong}


def _why(skipped: ET.Element) -> str:
    """The reason; of a whole module it stands at the end of the text."""
    said = (skipped.text or "").rpartition("Skipped: ")[2].rstrip("')\"")
    return said if skipped.get("message") == "collection skipped" else skipped.get("message", "")


NOTHING_COLLECTED = 5  # pytest's exit code; so it ends, too, where a module skips itself
_ENDS = {"skipped": "skipped", "failure": "failed", "error": "failed"}


def with_shipped(routes: Sequence[Route]) -> list[Route]:
    """The same routes, those for submitted kernels with the ones that ship."""
    shipped = [_shipped(path) for path in sorted(SHIPPED.glob("*.json"))]
    return [route.with_kernels(shipped) if isinstance(route, SubmittedRoute) else route for route in routes]


def _shipped(path: Path) -> SubmittedKernel:
    document = json.loads(path.read_text())
    return SubmittedKernel(
        organisation="",
        name=document["name"],
        version=1,
        language=document["language"],
        source=path.with_name(document["file"]).read_text(),
        flags=tuple(document.get("flags", ())),
        pattern=parse_pattern(document["pattern"]),
        launch=document.get("launch"),
    )
