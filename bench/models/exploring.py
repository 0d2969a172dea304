"""Which operators of the models are explored, and that: a few of them, each to the end of its contest.

First results are libraries'; kernels come out of contests, and without them no plan with kernels is tried. So
operators are asked for by what a second of exploring might save: what a model loses in them where they stand,
as a share of its time, against the arithmetic and the memory traffic that the machine reaches elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.graph.onnx_model import Extracted
from opatlas.identity import Operator, describe

PROFILED_RUNS = 3
CONTEST_S, RUNS_OF_A_CONTEST = 5.0, 300.0
"""What exploring an operator takes about, first result included: so long, and so many of its runs."""
FAST = 4.0
"""Multiplications of a direct convolution for each of Winograd's F(4×4, 3×3)."""
TELLING = 0.01
"""Of a model's time: what takes less does not say how fast this machine is."""


@dataclass(frozen=True)
class OperatorInPlace:
    """An operator of a model: ``us`` that one run of the model takes for its ``calls`` where they stand."""

    operator: Operator
    us: float
    calls: float = 1.0

    @property
    def exploring_s(self) -> float:
        return CONTEST_S + RUNS_OF_A_CONTEST * self.us / self.calls / 1e6


def timed_operators(graph: ModelGraph, feed: Mapping[str, Any], threads: int) -> list[OperatorInPlace]:
    """A model's, by ONNX Runtime's profile: what a session would ask for as one operator as such, the nodes
    that are in none by themselves. What ONNX Runtime fused into another has no time of its own; an operator
    without any is left out."""
    from opatlas.plan.profiling import profile_model
    from opatlas.session.own_fusions import own_fusions
    from opatlas.session.session import FUSIONS

    profile = profile_model(graph, [feed] * PROFILED_RUNS, threads)
    found: dict[str, OperatorInPlace] = {}

    def add(operator: Operator, us: float, calls: float) -> None:
        before = found.get(operator.key, OperatorInPlace(operator, 0.0, 0.0))
        found[operator.key] = OperatorInPlace(operator, before.us + us, before.calls + calls)

    fused: set[NodeAt] = set()
    for one in own_fusions(graph, FUSIONS):
        if fused.isdisjoint(one.nodes):
            fused.update(one.nodes)
            seen = [profile.of((node,)) for node in one.nodes]
            counts = max(node.count for node in seen) / profile.runs
            add(one.placed.operator, sum(node.self_us for node in seen) / profile.runs, counts)
    for at, (canonical, _) in graph.operators().items():
        if at not in fused:
            node = profile.of(at if isinstance(at, tuple) else (at,))
            add(canonical.operator, node.self_us / profile.runs, node.count / profile.runs)
    return [one for one in found.values() if one.us > 0]


def worth_exploring(models: Sequence[Sequence[OperatorInPlace]], seconds: float) -> list[Operator]:
    """Those that might save most a second of exploring, as many as may be explored in so many seconds."""
    rated = [(one, one.us / sum(other.us for other in model)) for model in models for one in model]
    telling = [one for one, share in rated if share >= TELLING]
    flops = max((describe(one.operator).flops * one.calls / one.us for one in telling), default=0.0)
    traffic = max((describe(one.operator).bytes_moved * one.calls / one.us for one in telling), default=0.0)
    worth: dict[str, float] = {}
    costs: dict[str, float] = {}
    for one, share in rated:
        cost = describe(one.operator)
        needed = cost.flops / (FAST if has_fast_algorithm(one.operator) else 1.0)
        bounds = [needed / flops if flops else 0.0, cost.bytes_moved / traffic if traffic else 0.0]
        lost = max(0.0, 1 - max(bounds) * one.calls / one.us)
        worth[one.operator.key] = worth.get(one.operator.key, 0.0) + share * lost
        costs[one.operator.key] = one.exploring_s
    operators = {one.operator.key: one.operator for one, _ in rated}
    chosen, left_s = list[Operator](), seconds
    for key in sorted(worth, key=lambda key: -worth[key] / costs[key]):
        if worth[key] > 0 and costs[key] <= left_s:
            chosen.append(operators[key])
            left_s -= costs[key]
    return chosen


def has_fast_algorithm(operator: Operator) -> bool:
    """Whether it is a convolution that Winograd's minimal filtering can compute."""
    for node in operator.nodes:
        if node.op == "Conv":
            attributes = node.attributes
            once = attributes["group"] == 1 and set(attributes["strides"]) == {1}
            return once and set(attributes["kernel_shape"]) <= {3, 5}
    return False


def explore(
    operators: Sequence[Operator], seconds: float, home: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """As jobs would have it: the operators are asked for, and one worker explores them, at most so long. How
    many hit then, how many by a compiled kernel, and how many contests have ended."""
    from bench.kernels import ROUTES, admit_kernels
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.demo import Demo
    from dashboard.run.stack import Stack
    from opatlas.client import RestClient
    from opatlas.identity import detect_target
    from opatlas.plan.plan import KERNEL_KINDS

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    with (
        Stack({"OPATLAS_ROUTES": ",".join(ROUTES)}, workers=1, logs=home / "logs") as stack,
        RestClient(stack.url, secret, job="models", target=detect_target()) as client,
    ):
        asked = [Extracted(operator, 1, operator.op_types[0]) for operator in operators]
        course = Demo("models", asked, client, stack, seconds, say)
        course.wait_for_worker()
        course.ask()
        admit_kernels(stack, say)
        course.explore()
        answers = course.ask()
        kernels = client.lookup(operators, accepts={"kinds": list(KERNEL_KINDS)})
    return {
        "asked": len(operators),
        "hits": sum(one.hit for one in answers),
        "contested": sum(one.stage in ("contest", "tuned") for one in answers),
        "kernels": sum(one.hit for one in kernels),
    }


class SpentTime:
    """Seconds of exploring so far, over all runs that were cut off: told at each line that is said of it,
    from the first on."""

    def __init__(self, spent_s: float, tell: Callable[[float], None]) -> None:
        self._began, self._spent_s, self._tell = math.inf, spent_s, tell

    def say(self, line: str) -> None:
        print(line, flush=True)
        self._began = min(self._began, time.monotonic())
        self._tell(round(self._spent_s + time.monotonic() - self._began, 1))
