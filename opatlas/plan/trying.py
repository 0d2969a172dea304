"""Tries whether a candidate may run a model: over an example, within a time limit, compared with the expected
outputs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from opatlas.errors import LoadError, OpatlasError
from opatlas.graph.loops import unbounded_loop
from opatlas.graph.normal import ModelGraph
from opatlas.plan.closeness import is_close
from opatlas.plan.executor import Executor
from opatlas.plan.held_to import HeldTo
from opatlas.plan.limits import TookTooLong, within
from opatlas.plan.plan import ByFramework, ByKernel, ModelPlan
from opatlas.plan.profiling import Feed
from opatlas.plan.regions import DEFAULT
from opatlas.plan.saturating import CutOff
from opatlas.plan.semantics.taking_part import Admission

LOADING_S = 30.0
"""The time for loading plans and frameworks, one after another; candidates that do not load in it are left
out."""
TRIED_S, HOPELESS = 2.0, 100.0
"""A first run may take so many seconds, or so many times as long as the default's, whichever is more."""
HOPELESS_S = 0.1
"""If a second run takes longer than this, and many times as long as the default's, it is the last."""
OTHER_VALUES = "it gives other values than the whole model in ONNX Runtime"
DIFFERS_FROM_EXACT = "it gives other values than the model computed in float64"
CUT_OFF = (
    "ONNX Runtime cuts off sums of products of uint8 by int8 on this processor, and its values are asked "
    "for: exact=True asks for the exact ones"
)

Build = Callable[[ModelPlan], Executor]


@dataclass(frozen=True)
class DefaultRun:
    """The default's first run over the example: its outputs, and its seconds."""

    outputs: list[np.ndarray]
    seconds: float

    @classmethod
    def of(cls, executor: Executor, feed: Feed, limit_s: float) -> DefaultRun:
        """Raises what the default raises, and :class:`opatlas.plan.limits.TookTooLong`, and closes it
        then."""
        start = time.perf_counter()
        try:
            outputs = executor.run(feed, limit_s=limit_s)
        except OpatlasError:
            executor.close()
            raise
        if (took_s := time.perf_counter() - start) > limit_s:  # within one node it could not be ended
            executor.close()
            raise TookTooLong(f"ONNX Runtime took {took_s:.0f} s, and {limit_s:g} s are for it")
        return cls(outputs, took_s)


class ExampleCheck:
    """Checks candidates for one model over ``feed``, and over the examples of ``held_to``. ``cut_off``: what
    stays with the default; ``admission``: known differences of frameworks."""

    def __init__(
        self,
        graph: ModelGraph,
        build: Build,
        feed: Feed,
        found: DefaultRun,
        cut_off: CutOff,
        held_to: HeldTo,
        admission: Admission,
    ) -> None:
        self._graph, self._build, self._feed = graph, build, feed
        self._held_to, self._admission = held_to, admission
        self.found, self.cut_off = found, cut_off
        self._expected: Sequence[np.ndarray] = found.outputs
        self.expects_other = False

    def expect(self, exact: Sequence[np.ndarray] | None) -> bool:
        """Expect these outputs instead of the default's, if they are known; returns whether the default
        differs from them."""
        if exact is not None:
            wanted = [one.astype(like.dtype) for one, like in zip(exact, self._expected, strict=True)]
            self.expects_other = not all(map(is_close, self._expected, wanted))
            self._expected = wanted
        return self.expects_other

    def check(self, plan: ModelPlan) -> None:
        """Raises :class:`LoadError` if a plan is known to give other values over some inputs, or could not be
        ended."""
        if self.cut_off.forbids(plan):
            raise LoadError(CUT_OFF)
        in_openvino = any(step.by == ByFramework("openvino") for step in plan.steps)
        if in_openvino and (loop := unbounded_loop(self._graph)):
            raise LoadError(f"it cannot be ended, and the end of the loop {loop!r} depends on data")
        others = {step.by.framework for step in plan.steps if isinstance(step.by, ByFramework)} - {DEFAULT}
        if reason := next(filter(None, map(self._admission.why_not, sorted(others))), ""):
            raise LoadError(reason)

    def sound(self, plan: ModelPlan, loading_s: float = LOADING_S) -> Executor:
        """The plan's executor; raises unless it loads and runs in time and gives what is expected."""
        self.check(plan)
        executor = within(loading_s, lambda: self._build(plan), Executor.close, "load")
        try:
            runs = min(2, plan.stream_count)  # the first is one step after the other
            if not all(self._is_right(executor) for _ in range(runs)):
                raise LoadError(DIFFERS_FROM_EXACT if self.expects_other else OTHER_VALUES)
            self._refuse_hopeless(executor)
            if not self.expects_other and (where := self._held_to.why_wrong(executor, self._limit_s)):
                raise LoadError(f"{OTHER_VALUES} {where}")
            if any(map(self._admission.may_drop_nan, _nodes_of_kernels(executor))):
                raise LoadError("it has a kernel where NaN can arise, and nobody checks kernels over NaN")
            if reason := executor.fallen_back or executor.in_one_stream:  # else another would be timed
                raise LoadError(reason)
        except TookTooLong:
            raise  # who still runs it closes it
        except Exception:
            executor.close()
            raise
        return executor

    def _is_right(self, executor: Executor) -> bool:
        made = within(self._limit_s, lambda: executor.run(self._feed), lambda _: executor.close())
        return all(map(is_close, made, self._expected))

    @property
    def _limit_s(self) -> float:
        """The time limit for one run."""
        return max(TRIED_S, HOPELESS * self.found.seconds)

    def _refuse_hopeless(self, executor: Executor) -> None:
        """Judges the second run: the first also does what only a first run does."""
        start = time.perf_counter()
        executor.run(self._feed)
        took_s = time.perf_counter() - start
        if took_s > max(HOPELESS_S, HOPELESS * self.found.seconds):
            times = took_s / self.found.seconds
            raise LoadError(f"it takes {times:.0f} times as long as ONNX Runtime")


def _nodes_of_kernels(executor: Executor) -> list[int]:
    """The nodes of kernels by their numbers in the model as it was given."""
    steps = (step for step in executor.plan.steps if isinstance(step.by, ByKernel))
    return [number for step in steps for number in executor.graph.own_nodes(step.nodes)]
