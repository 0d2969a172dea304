"""Predicts the time of a plan before it is timed.

A kernel takes its published time. A region takes the time of its nodes by the default's profile, corrected
for the profiler's overhead, plus this machine's costs for calling a session and for converting blocks of
channels at the region's ends. A whole model in a framework is timed for some turns alone, with cold caches
and sleeping threads. The line-up uses none of this, so a prediction can be wrong.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import MIB, BorderCosts
from opatlas.plan.borders import Borders
from opatlas.plan.line_up import turns_alone
from opatlas.plan.plan import ONE, SLEEPING, THREADING, ByBodies, ByFramework, ByKernel, ModelPlan, PlanStep
from opatlas.plan.regions import OnnxRuntimeRegion
from opatlas.plan.resting import OtherThreads

RUNS, WARM_RUNS = 5, 2
HANDOFFS = 50
BLOCKINGS = 15
LEAST_TURNS, MOST_TURNS, TURNS_S = 3, 9, 1.0
"""Of a whole model, before anybody is timed beside it."""
SHARED_SIZE = 1 << 16
"""An operator with so many numbers is shared among ONNX Runtime's threads."""


@dataclass(frozen=True)
class Costs:
    """Microseconds of: each node in the default; one run of a region beyond its nodes (by its use of
    threads); one call of a kernel beyond its own time; a run beyond its steps (inputs and outputs are
    copied); converting a MiB from or to blocks of channels at ``borders``; waking a region's threads.
    ``unprofiled``: a node's time ÷ its time under a profiler."""

    nodes: Mapping[int, float]
    region_us: Mapping[str, float]
    call_us: float
    run_us: float
    us_per_mib: float
    borders: Borders
    waking_us: float = 0.0
    unprofiled: float = 1.0

    def border_costs(self, threading: str = SLEEPING) -> BorderCosts:
        """The costs for regions with this use of threads."""
        return BorderCosts(self.region_us[threading], self.us_per_mib)


def costs(
    graph: ModelGraph, profiled: Mapping[int, float], whole_us: float, copied_bytes: int, threads: int
) -> Costs:
    """``profiled``: each node's time under a profiler in microseconds; ``whole_us``: of the whole model
    alone, without one; ``copied_bytes``: of a run's inputs and outputs."""
    total, region_us = sum(profiled.values()), {one: handoff_us(threads, one) for one in THREADING}
    scale = max(whole_us - region_us[SLEEPING], 0.0) / total if total else 1.0
    nodes = {number: us * scale for number, us in profiled.items()}
    return Costs(
        nodes, region_us, CALL_US, copied_us(copied_bytes), blocking_us(threads), Borders.of_graph(graph),
        waking_us(threads), scale,
    )  # fmt: skip


CALL_US = 0.2
"""The executor's time for one call (``make bench ONLY=models``: ``overhead_us_per_node``)."""


def predicted(plan: ModelPlan, known: Costs) -> ModelPlan:
    """The plan with times for its steps; the first step's includes what a run costs beyond its steps."""
    if plan.inside:
        moved = known.borders.reordered(plan.steps)
        steps = (_predicted_inside(step, known, count) for step, count in zip(plan.steps, moved, strict=True))
        return replace(plan, steps=tuple(steps))
    first, *others = (_predicted(step, known) for step in plan.steps)
    if first.predicted_us is not None:
        first = replace(first, predicted_us=first.predicted_us + known.run_us)
    return replace(plan, steps=(first, *others))


def _predicted(step: PlanStep, known: Costs) -> PlanStep:
    if isinstance(step.by, ByBodies):
        return replace(step, predicted_us=None)  # which branch, how many iterations: only a run knows
    if isinstance(step.by, ByKernel):
        return replace(step, predicted_us=(step.predicted_us or 0.0) + known.call_us)
    own = sum(known.nodes.get(number, 0.0) for number in step.nodes)
    ends_us = known.border_costs(step.by.threading).ends_us(known.borders.bytes_of(step))
    return replace(step, predicted_us=own + ends_us)


def _predicted_inside(step: PlanStep, known: Costs, moved: int) -> PlanStep:
    """Inside one session no step is handed over; ``moved``: bytes converted from or to blocks for a
    kernel."""
    if isinstance(step.by, ByBodies):
        return replace(step, predicted_us=None)
    if isinstance(step.by, ByKernel):
        return replace(step, predicted_us=(step.predicted_us or 0.0) + known.us_per_mib * moved / MIB)
    return replace(step, predicted_us=sum(known.nodes.get(number, 0.0) for number in step.nodes))


def is_short(step: PlanStep, known: Costs, threads: int) -> bool:
    """Whether one thread runs a region's nodes faster than all threads with their waking."""
    own = sum(known.nodes.get(number, 0.0) for number in step.nodes)  # on all, awake
    return isinstance(step.by, ByFramework) and own * (threads - 1) < known.waking_us


def foretold_us(run: Callable[[], object]) -> float:
    """Time of one run of a whole model among other candidates: the median of some turns."""
    return statistics.median(turns_alone(run, LEAST_TURNS, MOST_TURNS, TURNS_S))


def alone_us(run: Callable[[], object], runs: int = RUNS) -> float:
    """Time of one run with nothing else at work: the median of some."""
    OtherThreads().wait()
    times = []
    for _ in range(WARM_RUNS + runs):
        start = time.perf_counter_ns()
        run()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return statistics.median(times[WARM_RUNS:])


def waking_us(threads: int) -> float:
    """What sleeping threads add to a run that they share."""
    if threads == 1:
        return 0.0
    alone = handoff_us(threads, ONE, SHARED_SIZE)
    return max(handoff_us(threads, SLEEPING, SHARED_SIZE) - alone / threads, 0.0)


def handoff_us(threads: int, threading: str = SLEEPING, size: int = 1) -> float:
    """Time of a bound session that negates so many numbers; with one number, the cost of a call."""
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "handoff", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    region = OnnxRuntimeRegion(model, ["x"], ["y"], threads, threading=threading)
    call = region.bind([np.ones(size, np.float32)], [np.empty(size, np.float32)])
    return alone_us(call, HANDOFFS)


def border_costs(threads: int) -> BorderCosts:
    """The costs of cutting a model on this machine, with threads asleep between runs."""
    return BorderCosts(handoff_us(threads), blocking_us(threads))


def blocking_us(threads: int) -> float:
    """Time for converting a MiB from or to blocks of channels at a cut: how much longer two small
    convolutions take in two sessions than in one, divided by the bytes between them. 0 if ONNX Runtime has no
    blocks on this processor."""
    shape, names = [1, 16, 112, 112], ("x", "between", "y")
    weights = numpy_helper.from_array(np.full((16, 16, 1, 1), 0.01, np.float32), "w")
    arrays = [np.ones(shape, np.float32) for _ in names]

    def bound(*ends: int) -> Callable[[], None]:
        nodes = [
            helper.make_node("Conv", [names[at], "w"], [names[at + 1]]) for at in range(ends[0], ends[1])
        ]
        first, last = (helper.make_tensor_value_info(names[at], onnx.TensorProto.FLOAT, shape) for at in ends)
        graph = helper.make_graph(nodes, "blocks", [first], [last], [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        region = OnnxRuntimeRegion(model, [names[ends[0]]], [names[ends[1]]], threads)
        return region.bind([arrays[ends[0]]], [arrays[ends[1]]])

    together, *apart = bound(0, 2), bound(0, 1), bound(1, 2)
    more_us = sum(alone_us(one, BLOCKINGS) for one in apart) - alone_us(together, BLOCKINGS)
    return max(more_us, 0.0) * MIB / (2 * arrays[1].nbytes)


def copied_us(count: int) -> float:
    """Time for copying so many bytes."""
    source, target = np.zeros(max(count, 1), np.uint8), np.zeros(max(count, 1), np.uint8)
    return alone_us(lambda: np.copyto(target, source))
