"""ONNX Runtime's outputs over several examples, with which every candidate must agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.graph.examples import narrower
from opatlas.plan.closeness import is_close
from opatlas.plan.executor import Executor
from opatlas.plan.limits import TookTooLong, within

Feed = Mapping[str, np.ndarray]
MOST_S = 20.0
"""The time for running the default over all of them."""


class HeldTo:
    """``default`` runs the model in ONNX Runtime. If it refuses an example, one with fewer changes from
    ``base`` (which it accepts) is tried. Examples that it still refuses, or does not finish within
    ``limit_s``, are left out."""

    def __init__(self, default: Executor, base: Feed, examples: Sequence[Feed], limit_s: float) -> None:
        self._default, self._base, self._examples, self._limit_s = default, base, examples, limit_s
        self._known: dict[int, list[tuple[Feed, list[np.ndarray]]]] = {}
        self._left_s = MOST_S

    def why_wrong(self, executor: Executor, limit_s: float) -> str:
        """Over which example a candidate gives other values, as the end of a sentence; empty if over none.
        Runs that it hands to ONNX Runtime are right. Raises :class:`opatlas.plan.limits.TookTooLong` if a run
        does not end within ``limit_s``; the executor is closed when it ends."""
        for number, example in enumerate(self._examples):
            if executor.hands_over(example):
                continue
            for feed, expected in self._expected(number):
                if executor.hands_over(feed):
                    continue
                made = within(limit_s, partial(executor.run, feed), lambda _: executor.close())
                if not all(map(is_close, made, expected)):
                    return "over numbers of the types' whole ranges"
        return ""

    def _expected(self, number: int) -> list[tuple[Feed, list[np.ndarray]]]:
        if number not in self._known:
            start = time.perf_counter()
            self._known[number] = list(self._given(self._examples[number])) if self._left_s > 0 else []
            self._left_s -= time.perf_counter() - start
        return self._known[number]

    def _given(self, example: Feed) -> Iterator[tuple[Feed, list[np.ndarray]]]:
        for feed in chain([example], narrower(example, self._base)):
            try:
                yield feed, self._default.run(feed, limit_s=self._limit_s)
                return
            except TookTooLong:  # with fewer changes it may take as long again
                return
            except OpatlasError:  # an index beyond what it is for, say
                continue
