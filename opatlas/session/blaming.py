"""Which kernels of a plan that gives other values than ONNX Runtime are to blame."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from opatlas.errors import OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.plan.closeness import is_close
from opatlas.plan.executor import Executor
from opatlas.plan.making import kernels_in, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan


def blamed_kernels(
    graph: ModelGraph,
    plan: ModelPlan,
    build: Callable[[ModelPlan], Executor],
    feed: Mapping[str, Any],
    expected: Mapping[str, Any],
    seconds: float,
) -> list[ByKernel]:
    """Those that give other outputs than are ``expected`` (by name) over ``feed`` though ONNX Runtime runs
    the rest of the model: each is tried so, within so many seconds in all. None of bodies."""
    end, found = time.perf_counter() + seconds, []
    for at, choice in kernels_in(plan).items():
        if time.perf_counter() > end:
            break
        alone = with_kernels(graph, {at: choice}, plan.target, plan.setting)
        if alone.kernels and not _gives(graph, build(alone), feed, expected):
            found.append(choice.by)
    return found


def _gives(
    graph: ModelGraph, executor: Executor, feed: Mapping[str, Any], expected: Mapping[str, Any]
) -> bool:
    try:
        made = dict(zip(graph.output_names, executor.run(feed), strict=True))
    except OpatlasError:
        return True  # nobody can tell
    finally:
        executor.close()
    return all(is_close(made[name], one) for name, one in expected.items())
