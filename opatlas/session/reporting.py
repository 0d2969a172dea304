"""Where a run's time goes: by step, and as a timeline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.plan.executor import Executor
from opatlas.plan.making import DEFAULT
from opatlas.plan.plan import ByFramework, ModelPlan
from opatlas.plan.profiling import PROFILED_RUNS, node_times, timeline_of_whole
from opatlas.plan.regions import LABELS
from opatlas.plan.said import WHOLE
from opatlas.streams.timeline import Timeline


@dataclass(frozen=True)
class StepShare:
    """One step of a run: its nodes in words, what runs them, its microseconds, and ONNX Runtime's for these
    nodes."""

    nodes: str
    by: str
    us: float
    onnxruntime_us: float


def step_shares(
    graph: ModelGraph, executor: Executor, feed: Mapping[str, np.ndarray], threads: int
) -> list[StepShare]:
    """One for each step of the executor's plan of ``graph``, with ONNX Runtime's time for the same nodes in
    the model."""
    theirs = {at: us for at, us in node_times(graph, feed, threads, math.inf).items() if isinstance(at, int)}
    if is_whole(executor.plan):  # ONNX Runtime's own profile says more
        return [StepShare(_label(graph, [one]), WHOLE, us, us) for one, us in theirs.items()]
    times = 1 if executor.plan.inside else PROFILED_RUNS  # there a profile is of several runs
    profiles = [executor.profile(feed) for _ in range(times)]
    return [
        StepShare(
            _label(graph, own := executor.graph.own_nodes(step.nodes)),
            LABELS[step.by.framework] if isinstance(step.by, ByFramework) else step.by.said,
            statistics.median(profile[at].us for profile in profiles),
            sum(theirs.get(number, 0.0) for number in own),
        )
        for at, step in enumerate(executor.plan.steps)
    ]


def timeline_by(
    graph: ModelGraph, executor: Executor, feed: Mapping[str, np.ndarray], threads: int
) -> Timeline:
    """One run of the executor, alone; from ONNX Runtime's profile if it has the whole model."""
    if is_whole(executor.plan):
        return timeline_of_whole(graph, feed, threads)
    return executor.timeline(feed)


def is_whole(plan: ModelPlan) -> bool:
    """Whether ONNX Runtime runs the whole model."""
    return len(plan.steps) == 1 and plan.steps[0].by == DEFAULT


def _label(graph: ModelGraph, nodes: Sequence[int]) -> str:
    """A label for some nodes: the first's name and their number; for none, a conversion between layouts."""
    if not nodes:
        return "Reorder"
    proto = graph.nodes[nodes[0]].proto
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    return f"{proto.op_type} {proto.name or proto.output[0]}{more}"
