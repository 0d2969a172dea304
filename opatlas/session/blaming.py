"""Finds what is to blame if a plan gives other values than ONNX Runtime: the model's form, or some
kernels."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from opatlas.errors import OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.plan.closeness import is_close
from opatlas.plan.executor import Executor
from opatlas.plan.making import kernels_in, whole, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan

Build = Callable[[ModelPlan], Executor]


def form_differs(
    graph: ModelGraph, plan: ModelPlan, build: Build, feed: Mapping[str, Any], expected: Mapping[str, Any]
) -> bool:
    """Whether ONNX Runtime itself gives other outputs than ``expected`` (by name) for this form of the
    model."""
    return not _gives(graph, whole(graph, plan.target, plan.setting), build, feed, expected)


def blamed_kernels(
    graph: ModelGraph,
    plan: ModelPlan,
    build: Build,
    feed: Mapping[str, Any],
    expected: Mapping[str, Any],
    seconds: float,
) -> list[ByKernel]:
    """The kernels that give other outputs than ``expected`` over ``feed`` while ONNX Runtime runs the rest.
    Each is tried, within so many seconds in all; kernels in bodies are not."""
    end, found = time.perf_counter() + seconds, []
    for at, choice in kernels_in(plan).items():
        if time.perf_counter() > end:
            break
        alone = with_kernels(graph, {at: choice}, plan.target, plan.setting)
        if alone.kernels:  # in blocks of channels it may be another kernel than it is elsewhere
            alone = replace(alone, inside=plan.inside)
        if alone.kernels and not _gives(graph, alone, build, feed, expected):
            found.append(choice.by)
    return found


def _gives(
    graph: ModelGraph, plan: ModelPlan, build: Build, feed: Mapping[str, Any], expected: Mapping[str, Any]
) -> bool:
    try:
        executor = build(plan)
    except OpatlasError:
        return True  # nobody can tell
    try:
        made = dict(zip(graph.output_names, executor.run(feed), strict=True))
    except OpatlasError:
        return True
    finally:
        executor.close()
    return all(is_close(made[name], one) for name, one in expected.items())
