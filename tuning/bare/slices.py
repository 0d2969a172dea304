"""Slices of a few minutes that go on where the last one stopped."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opatlas.errors import first_line
from tuning.bare.clock import SliceClock
from tuning.bare.figures import figures
from tuning.bare.lines import Full, Lines, best_entry
from tuning.bare.measuring import FORMAT, QUICK, THOROUGH, Pass, ProblemTools, measure
from tuning.bare.problems import Problem
from tuning.routes.base import Route
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.own import EXAMPLES
from tuning.routes.manual.submitted import SubmittedKernel, SubmittedRoute

SHIPPED = EXAMPLES / "cuda"

SLICE_S = 450.0
"""A borrowed machine's 8 minutes, less what starting and writing take; an installation is taken off it."""


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
