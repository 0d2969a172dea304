"""What of a model runs by the catalogue's kernels: as far as it is faster in place, and nothing else."""

from __future__ import annotations

import json
import logging
import math
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from opatlas.errors import first_line
from opatlas.graph.normal import ModelGraph
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.noise import MARGIN
from opatlas.plan.executor import Executor
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.making import NodeChoice, whole, with_kernels
from opatlas.plan.plan import Alternative, ModelPlan

log = logging.getLogger("opatlas")
PROFILED_RUNS = 5
SHARES = (1.0, 0.5, 0.25)
"""Of the kernels that promise to be faster, the most promising: so many are tried together."""
WHOLE = "ONNX Runtime, the whole model"

Feed = Mapping[str, np.ndarray]
Build = Callable[[ModelPlan], Executor]


@dataclass(frozen=True)
class Chosen:
    """What runs, and who was tried: the default framework first."""

    executor: Executor
    standings: tuple[TimedInTurns, ...]

    @property
    def plan(self) -> ModelPlan:
        return self.executor.plan


def choose(
    graph: ModelGraph, choices: Mapping[int, NodeChoice], place: tuple[str, str], build: Build,
    feed: Feed, threads: int, seconds: float,
) -> Chosen:  # fmt: skip
    """The fastest of the default framework and of plans with more or fewer of these kernels, timed in turns.

    ``place``: target and setting, by their keys. A plan takes part where its outputs are the whole model's,
    and is chosen only where its interval is beyond what is called a difference, so that nobody ever gets a
    wrong or a slower model. Raises what the whole model raises over ``feed``.
    """
    default = build(whole(graph, *place))
    expected = default.run(feed)
    executors = {WHOLE: default}
    if not graph.is_random:  # two runs of which may differ: nobody could tell a wrong plan
        try:
            times = node_times(graph, feed, threads)
        except Exception as error:  # whatever a profile shows or hides: the whole model runs
            log.warning("No plan is tried, since the model could not be profiled: %s", first_line(error))
            times = {}
        for plan in _plans(graph, _promising(choices, times), times, place):
            if (executor := _sound(plan, build, feed, expected)) is not None:
                executors[said_of(plan)] = executor
    runs = {name: _run(executor, feed) for name, executor in executors.items()}
    standings = line_up(runs, seconds) if len(runs) > 1 else {}
    better = [one for name, one in standings.items() if name != WHOLE and one.ratios.low > 1 + MARGIN]
    best = max(better, key=lambda one: one.ratios.ratio).said if better else WHOLE
    for name, executor in executors.items():
        if name != best:
            executor.close()
    return Chosen(executors[best], tuple(standings.values()))


def _plans(
    graph: ModelGraph,
    promising: Mapping[int, NodeChoice],
    times: Mapping[int, float],
    place: tuple[str, str],
) -> list[ModelPlan]:
    found: dict[str, ModelPlan] = {}
    for share in SHARES if promising else ():
        some = dict(list(promising.items())[: max(1, round(share * len(promising)))])
        plan = with_kernels(graph, some, *place, times)
        if plan.kernels:
            found.setdefault(said_of(plan), plan)
    return list(found.values())


def _sound(plan: ModelPlan, build: Build, feed: Feed, expected: Sequence[np.ndarray]) -> Executor | None:
    """The plan's executor, if it runs and gives what the whole model gives."""
    try:
        executor = build(plan)
    except Exception as error:
        log.warning("A plan of %s cannot be built: %s", said_of(plan), first_line(error))
        return None
    try:
        found = executor.run(feed)
        if all(map(is_close, found, expected)):
            return executor
        log.warning("A plan of %s gives other values than the whole model: it is left out.", said_of(plan))
    except Exception as error:
        log.warning("A plan of %s cannot run: %s", said_of(plan), first_line(error))
    executor.close()
    return None


def is_close(found: Any, expected: Any) -> bool:
    """Whether two outputs are the same but for rounding: of floats the square root of their precision, as a
    share of the largest; of whole numbers one (quantised models round there)."""
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_close, found, expected))
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    if expected.dtype.kind in "OSUb":
        return bool((found == expected).all())
    if expected.dtype.kind in "iu":
        return bool((np.abs(found.astype(float) - expected.astype(float)) <= 1).all())
    one, other = found.astype(complex), expected.astype(complex)
    finite = np.abs(other[np.isfinite(other)])
    precision = 2.0 ** -_MANTISSA.get(expected.dtype.name, 23)
    allowed = math.sqrt(precision) * float(finite.max(initial=0.0))
    return bool(np.allclose(one, other, rtol=0.0, atol=allowed, equal_nan=True))


_MANTISSA = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}


def said_of(plan: ModelPlan) -> str:
    """How people read which plan it is."""
    count = len(plan.kernels)
    return f"{count} of {len(plan.steps)} steps by kernels" if count else WHOLE


def node_times(graph: ModelGraph, feed: Feed, threads: int) -> dict[int, float]:
    """Microseconds that ONNX Runtime takes for each node where it stands in the model: what was fused into
    another node takes none. By its own profile, the median of a few runs."""
    plan = whole(graph, "", "")
    nodes, outputs = plan.steps[0].nodes, plan.steps[0].outputs
    weights = graph.evaluate(graph.constants_of(nodes))
    model, inputs = graph.part(nodes, outputs, weights)
    read = {graph.names[number] for number in inputs}
    for number, node in zip(nodes, model.graph.node, strict=True):
        node.name = f"node{number}."
    options = quiet_options(threads)
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for _ in range(PROFILED_RUNS):
            session.run(None, {name: value for name, value in feed.items() if name in read})
        events = json.loads(Path(session.end_profiling()).read_text())
    found: dict[int, list[float]] = {}
    for event in events:
        named = re.match(r"(?:fused )?node(\d+)\..*_kernel_time$", event.get("name", ""))
        if named is not None:
            found.setdefault(int(named[1]), []).append(float(event["dur"]))
    return {number: float(np.median(times)) for number, times in found.items()}


def _promising(choices: Mapping[int, NodeChoice], times: Mapping[int, float]) -> dict[int, NodeChoice]:
    """Kernels that take less than the default framework takes for their node, the most promising first."""
    gains = {number: times.get(number, 0.0) - one.median_us for number, one in choices.items()}
    order = sorted((number for number, gain in gains.items() if gain > 0), key=lambda number: -gains[number])
    return {
        number: replace(choices[number], over=(Alternative("ONNX Runtime in the model", times[number]),))
        for number in order
    }


def _run(executor: Executor, feed: Feed) -> Callable[[], object]:
    return lambda: executor.run(feed)
