"""What plans are made of, explored: a model's operators first, then its fused operators in restricted rounds,
those first that might save most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opatlas.graph.normal import ModelGraph
from opatlas.graph.onnx_model import Extracted
from opatlas.graph.structure import structure_of
from opatlas.identity import Setting, Target

if TYPE_CHECKING:
    from tuning.planning import MadePlan

PASSES = ("kernels", "fusion")
OF_A_ROUND = 8
"""Fused operators that are asked for at once: what these come to changes what the others may save."""
SINGLES = 0.5
"""Of a model's share of the budget, for operators of one node; fused ones have the rest."""
ROUTES = ("halide", "onnxruntime", "tvm")
"""Whose times a plan is made of: its kernels', and of what it leaves. A contest of all takes several times as
long."""
PROMOTED_S = 20.0
"""At most, until what was asked for waits to be explored."""
DRY = 2
"""Rounds that make no plan faster, after which no further one is asked for."""


@dataclass
class AskedForPlan:
    """What a model's plan took to find: operators that nobody had asked for before (``fused`` of them of
    several nodes), in how many seconds of exploring, and how many of them ended with something known.
    ``questions``: fused operators that are still open; ``summed_ms``: what the plan would take by operators'
    times alone, before each round."""

    asked: int = 0
    fused: int = 0
    asked_s: float = 0.0
    known: int = 0
    questions: int = 0
    summed_ms: list[float] = field(default_factory=list)


def made_plan(graph: ModelGraph, target: Target, setting: Setting, passes: Sequence[str]) -> MadePlan:
    """Of what is published now."""
    from catalog.registry import default_organisation, register_setting, register_target
    from tuning.planning import make_plan

    place = register_target(target), register_setting(setting)
    return make_plan(structure_of(graph), *place, default_organisation(), passes)


def explore(
    graphs: Sequence[ModelGraph],
    target: Target,
    setting: Setting,
    seconds: float,
    home: Path,
    say: Callable[[str], None],
) -> AskedForPlan:
    """As jobs would have it: one worker explores what is asked for, at most so many seconds. The last of
    ``graphs`` is planned; of the others operators are asked for alone."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.demo import Demo
    from dashboard.run.stack import Stack
    from opatlas.client import RestClient

    _, secret = create_api_key(default_organisation(), "graph", ["lookup"])
    with (
        Stack(workers=1, logs=home / "logs") as stack,
        RestClient(stack.url, secret, job="graph", target=target) as client,
    ):
        end = time.monotonic() + seconds

        def course(operators: Sequence[Extracted], budget_s: float) -> Demo:
            made = Demo("graph", operators, client, stack, budget_s, say)
            made.wait_for_worker()
            return made

        found = AskedForPlan()
        singles = {one.operator.key: one for graph in graphs for one in graph.extraction().operators}
        first = course(list(singles.values()), SINGLES * seconds)
        _ask(first, found)
        for _ in _rounds(graphs[-1], target, setting, found, end):
            unknown = made_plan(graphs[-1], target, setting, PASSES).fusions[:OF_A_ROUND]
            operators = [Extracted(one.operator, len(one.places), "fused") for one in unknown]
            if not operators:
                break
            found.fused += _ask(course(operators, max(end - time.monotonic(), 1.0)), found)
        found.questions = len(made_plan(graphs[-1], target, setting, PASSES).fusions)
    return found


def _ask(course: Any, found: AskedForPlan) -> int:
    """Ask, explore, ask again; how many were not known before."""
    new = [at for at, answer in enumerate(course.ask()) if not answer.hit]
    if new:
        _restrict(course)
        course.explore()
        after = course.ask()
        found.known += sum(after[at].hit for at in new)
    found.asked += len(new)
    found.asked_s = round(found.asked_s + course.explored_s, 1)
    return len(new)


def _restrict(course: Any) -> None:
    """Contests to the routes that plans are made of."""
    from tuning.models import State
    from tuning.queue import steering

    steering.resume("*")  # the course before has paused it
    end = time.monotonic() + PROMOTED_S
    while course.misses_waiting() and time.monotonic() < end:
        time.sleep(0.2)
    waiting = course.explorations().filter(routes="").exclude(state=State.RUNNING)
    waiting.update(routes=",".join(ROUTES))


def _rounds(
    graph: ModelGraph, target: Target, setting: Setting, found: AskedForPlan, end: float
) -> Iterator[None]:
    """As long as there is time and the plan gets faster."""
    dry, best = 0, float("inf")
    while True:
        summed_us = made_plan(graph, target, setting, PASSES).predicted_us
        found.summed_ms.append(summed_us / 1e3)
        dry = dry + 1 if summed_us >= best else 0
        best = min(best, summed_us)
        if time.monotonic() >= end or dry >= DRY:
            return
        yield
