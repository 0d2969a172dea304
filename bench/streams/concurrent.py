"""Models in streams, and two models at once, against one step after the other, at the same total threads.

Of each model: ``ratio`` of the sequential run's time to the one in ``THREADS`` streams of one thread each, in
turns, with its 95 % interval; ``chosen``: what a session would run (:func:`opatlas.plan.choosing.choose`,
which times for itself, before); ``right``: whether that is the faster one, or neither is by what is called a
difference; ``chosen_ratio``: sequential ÷ chosen. A bench asks no service, so there are no kernels: it is
ONNX Runtime's nodes either way.

Of each of a model's regions (:mod:`bench.streams.regions`), by themselves, the same.

Of two models: the time of both, one after the other with all threads, ÷ at once on engines of one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.conf import conf
from bench.models.made_models import encoder, two_tower
from bench.streams.regions import branching_regions
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.noise import MARGIN
from opatlas.plan.choosing import choose
from opatlas.plan.engines import Engines
from opatlas.plan.executor import Executor
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.making import whole, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan
from opatlas.plan.profiling import node_times
from opatlas.plan.streaming import node_streams
from tuning.graph.samples import sample_model

THREADS = 2
BUDGET_S = 200.0
CHOOSING, TIMING = 1 / 25, 1 / 10
"""Of it, for each model: what a session would do, and the figures. Loading and profiling come to it."""
CHOOSING_REGION, TIMING_REGION = 1 / 100, 1 / 80
"""The same of each region."""
PLACE = ("t1:bench", "s1:bench")
SLOWER = 0.02
"""So much slower than sequential, what is chosen must never be."""


def budget_s() -> float:
    return conf().budget_s or BUDGET_S


def models_with_branches() -> dict[str, bytes]:
    """Inception; two towers of which each is much work, and little; and, to see that it is left, a chain."""
    return {
        "inception_v2": sample_model("inception_v2"),
        "squeezenet": sample_model("squeezenet"),
        "two_tower": two_tower(),
        "two_tower_short": two_tower(length=16),
        "encoder": encoder(),
    }


def two_models() -> tuple[bytes, bytes]:
    return sample_model("squeezenet"), encoder()


def measure_model(data: bytes, choosing_s: float = 0.0, timing_s: float = 0.0) -> dict[str, Any]:
    graph = ModelGraph(data)
    feed = random_inputs(graph, 0)
    build = partial(_built, graph)
    chosen = choose(graph, {}, PLACE, build, feed, THREADS, choosing_s or CHOOSING * budget_s())
    in_streams = chosen.plan.stream_count > 1
    chosen.executor.close()
    placed = node_streams(graph, node_times(graph, feed, THREADS), THREADS)
    plan = with_kernels(graph, {}, *PLACE, None, placed)
    sequential, concurrent = build(whole(graph, *PLACE)), build(plan)
    runs: dict[str, Callable[[], object]] = {
        "sequential": lambda: sequential.run(feed),
        "concurrent": lambda: concurrent.run(feed),
    }
    if plan.stream_count == 1:
        sequential.close(), concurrent.close()
        return {"streams": 1, "chosen": 1, "right": not in_streams, "chosen_ratio": 1.0, "ratio": None}
    found = line_up(runs, timing_s or TIMING * budget_s())
    failed = concurrent.in_one_stream or concurrent.fallen_back
    sequential.close(), concurrent.close()
    return _figures(found, plan.stream_count, in_streams) | {"failed": failed}


def measure_regions(data: bytes) -> list[dict[str, Any]]:
    """Of each region of a model, in order."""
    budgets = CHOOSING_REGION * budget_s(), TIMING_REGION * budget_s()
    return [measure_model(region, *budgets) for region in branching_regions(ModelGraph(data))]


def _built(graph: ModelGraph, plan: ModelPlan) -> Executor:
    return Executor(graph, plan, _no_kernel, threads=THREADS)


def _no_kernel(by: ByKernel) -> Any:
    raise AssertionError(by)


def _figures(found: Mapping[str, TimedInTurns], streams: int, in_streams: bool) -> dict[str, Any]:
    gain = found["concurrent"].ratios
    return {
        "streams": streams,
        "sequential_us": round(found["sequential"].median_us, 1),
        "concurrent_us": round(found["concurrent"].median_us, 1),
        "ratio": [round(one, 3) for one in (gain.ratio, gain.low, gain.high)],
        "chosen": streams if in_streams else 1,
        "chosen_ratio": round(gain.ratio, 3) if in_streams else 1.0,
        # Wrong is only what the interval rules out, beyond what is called a difference.
        "right": gain.high >= 1 - MARGIN if in_streams else gain.low <= 1 + MARGIN,
    }


def _is_told_apart(one: Mapping[str, Any]) -> bool:
    if one["ratio"] is None:
        return False
    _, low, high = one["ratio"]
    return bool(low > 1 + MARGIN or high < 1 - MARGIN)


def measure_two_models(one: bytes, other: bytes, timing_s: float = 0.0) -> dict[str, Any]:
    graphs = [ModelGraph(one), ModelGraph(other)]
    feeds = [random_inputs(graph, 0) for graph in graphs]
    alone = [_built(graph, whole(graph, *PLACE)) for graph in graphs]
    shared = [Executor(graph, whole(graph, *PLACE), _no_kernel, threads=1) for graph in graphs]
    engines = Engines(THREADS, 1)
    shares = [engines.share(f"model {number}") for number in range(2)]
    with ThreadPoolExecutor(2) as pool:

        def at_once() -> None:
            waited = [
                pool.submit(running.run, feed, share)
                for running, feed, share in zip(shared, feeds, shares, strict=True)
            ]
            for run in waited:
                run.result()

        def one_after_the_other() -> None:
            for running, feed in zip(alone, feeds, strict=True):
                running.run(feed)

        found = line_up(
            {"sequential": one_after_the_other, "concurrent": at_once}, timing_s or TIMING * budget_s()
        )
    for running in (*alone, *shared):
        running.close()
    waits = engines.timeline().row_waits
    engines.close()
    gain = found["concurrent"].ratios
    return {
        "sequential_us": round(found["sequential"].median_us, 1),
        "concurrent_us": round(found["concurrent"].median_us, 1),
        "ratio": [round(value, 3) for value in (gain.ratio, gain.low, gain.high)],
        "waits_us": {row.row: [round(row.expected_us, 1), round(row.waited_us, 1)] for row in waits},
    }


def counted(figures: Collection[Mapping[str, Any]]) -> dict[str, Any]:
    """Over models, or regions: decisions that are right, of how many the two ways could be told apart, and
    the chosen one's least gain, which is never to be below 1 - ``SLOWER``."""
    ratios = [one["chosen_ratio"] for one in figures]
    right = sum(one["right"] for one in figures)
    return {
        "decisions_right": f"{right} of {len(figures)}",
        "share_right": round(right / len(figures), 3) if figures else None,
        "told_apart": sum(_is_told_apart(one) for one in figures),
        "in_streams": sum(one["chosen"] > 1 for one in figures),
        "never_slower": min(ratios, default=math.nan) >= 1 - SLOWER,
        "least_ratio": min(ratios, default=None),
    }
