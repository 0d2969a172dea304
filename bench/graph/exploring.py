"""What plans are made of, explored: a model's operators first, then its fused and its channels-last operators
in restricted rounds, those first that might save most."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.kernels import ROUTES, admit_kernels
from opatlas.graph.normal import ModelGraph
from opatlas.graph.onnx_model import Extracted
from opatlas.graph.profile import ModelProfile
from opatlas.graph.structure import structure_of
from opatlas.identity import Setting, Target

if TYPE_CHECKING:
    from tuning.planning import MadePlan

PASSES = ("kernels", "fusion", "layout")
OF_A_ROUND = 8
"""Fused operators that are asked for at once, and as many that layouts would need: what these come to changes
what the others may save."""
SINGLES = 0.5
"""Of a model's share of the budget, for operators of one node; fused ones have the rest."""
DRY = 2
"""Rounds that make no plan faster, after which no further one is asked for."""


@dataclass
class AskedForPlan:
    """What a model's plan took to find: operators that nobody had asked for before (``fused`` of them of
    several nodes, ``laid_out`` what layouts would need), in how many seconds of exploring, and how many of
    them ended with something known. ``questions``: operators of both kinds that are still open;
    ``summed_ms``: what the plan would take by operators' times alone, before each round."""

    asked: int = 0
    fused: int = 0
    laid_out: int = 0
    asked_s: float = 0.0
    known: int = 0
    questions: int = 0
    summed_ms: list[float] = field(default_factory=list)


def made_plan(
    graph: ModelGraph,
    target: Target,
    setting: Setting,
    passes: Sequence[str],
    profile: ModelProfile | None = None,
) -> MadePlan:
    """Of what is published now."""
    from catalog.registry import default_organisation, register_setting, register_target
    from tuning.planning import make_plan

    place = register_target(target), register_setting(setting)
    return make_plan(structure_of(graph), *place, default_organisation(), passes, profile)


def explore(
    graphs: Sequence[ModelGraph],
    target: Target,
    setting: Setting,
    seconds: float,
    home: Path,
    say: Callable[[str], None],
    profile: ModelProfile | None = None,
) -> AskedForPlan:
    """As jobs would have it: one worker explores what is asked for, at most so many seconds. The last of
    ``graphs`` is planned, by its ``profile``; of the others operators are asked for alone."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.demo import Demo
    from dashboard.run.stack import Stack
    from opatlas.client import RestClient

    _, secret = create_api_key(default_organisation(), "graph", ["lookup"])
    with (
        Stack({"OPATLAS_ROUTES": ",".join(ROUTES)}, workers=1, logs=home / "logs") as stack,
        RestClient(stack.url, secret, job="graph", target=target) as client,
    ):

        def course(operators: Sequence[Extracted], budget_s: float) -> Demo:
            made = Demo("graph", operators, client, stack, budget_s, say)
            made.wait_for_worker()
            return made

        found = AskedForPlan()
        singles = {one.operator.key: one for graph in graphs for one in graph.extraction().operators}
        first = course(list(singles.values()), SINGLES * seconds)
        _ask(first, found, lambda: admit_kernels(stack, say))
        end = time.monotonic() + seconds - found.asked_s

        def planned() -> MadePlan:
            return made_plan(graphs[-1], target, setting, PASSES, profile)

        for made in _rounds(planned, found, end):
            fused, laid_out = made.fusions[:OF_A_ROUND], made.layouts[:OF_A_ROUND]
            operators = [Extracted(one.operator, len(one.places), "fused") for one in fused]
            operators += [Extracted(one.operator, max(len(one.places), 1), "laid out") for one in laid_out]
            if not operators:
                break
            _ask(course(operators, max(end - time.monotonic(), 1.0)), found)
            found.fused, found.laid_out = found.fused + len(fused), found.laid_out + len(laid_out)
        made = planned()
        found.questions = len(made.fusions) + len(made.layouts)
    return found


def _ask(course: Any, found: AskedForPlan, first: Callable[[], None] = lambda: None) -> None:
    """Ask, explore, ask again."""
    new = [at for at, answer in enumerate(course.ask()) if not answer.hit]
    if new:
        first()
        course.explore()
        after = course.ask()
        found.known += sum(after[at].hit for at in new)
    found.asked += len(new)
    found.asked_s = round(found.asked_s + course.explored_s, 1)


def _rounds(planned: Callable[[], MadePlan], found: AskedForPlan, end: float) -> Iterator[MadePlan]:
    """The plan before each round, as long as there is time and it gets faster."""
    dry, best = 0, float("inf")
    while True:
        made = planned()
        summed_us = made.predicted_us
        found.summed_ms.append(summed_us / 1e3)
        dry = dry + 1 if summed_us >= best else 0
        best = min(best, summed_us)
        if time.monotonic() >= end or dry >= DRY:
            return
        yield made
