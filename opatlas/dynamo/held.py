"""A graph that is left to Inductor, held against PyTorch eager on what it is first called with."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import torch

from opatlas.dynamo.limits import compilers_end, within
from opatlas.dynamo.outcome import Call, are_same, outcome, outcome_with_gradients, random_state_kept
from opatlas.dynamo.report import GraphReport
from opatlas.errors import first_line

log = logging.getLogger("opatlas")
MOST_SIZES = 4
"""Sizes on which one graph for all is held: each takes a run of PyTorch eager, and another of Inductor's."""
OTHER_VALUES = "it gives other values than PyTorch eager"


class HeldGraph:
    """Called as Dynamo calls a graph. Inductor's run and PyTorch eager's, on copies, are compared before the
    first call, and before the first one of some other sizes; from a difference on, eager runs. Gradients
    that are wanted are compared too. ``label``: Inductor in the report; ``limit_s``: for its first runs."""

    def __init__(
        self,
        call: Call,
        eager: Call,
        inputs: Sequence[Any],
        written: frozenset[int],
        row: GraphReport,
        labels: tuple[str, str],
        limit_s: float,
    ) -> None:
        """``inputs``: what it is compiled for, of which nothing is kept; ``labels``: of ``call`` and of
        ``eager`` in the report."""
        self._run, self._eager, self._written = call, eager, written
        self._row, self._labels, self._limit_s = row, labels, limit_s
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        self._gradients = torch.is_grad_enabled() and any(one.requires_grad for one in tensors)
        self._on_cpu = all(one.device.type == "cpu" for one in tensors)
        symbolic = (torch.SymInt, torch.SymFloat)
        self._sizes = [at for at, one in enumerate(inputs) if isinstance(one, symbolic)]
        self._held: set[tuple[Any, ...]] = set()
        self._most = MOST_SIZES if self._sizes else 1
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> Any:
        if len(self._held) < self._most:
            sizes = tuple(args[at] for at in self._sizes)
            with self._lock:
                if sizes not in self._held and len(self._held) < self._most:
                    self._hold(args)
                    self._held.add(sizes)
        return self._run(*args)

    def _hold(self, args: Sequence[Any]) -> None:
        try:
            with random_state_kept(), compilers_end(self._limit_s):
                why = "" if self._does_the_same(args) else OTHER_VALUES
        except Exception as error:  # whatever goes wrong in it, the job goes on
            why = first_line(error)
        self._row.held += not why
        if why:
            framework, eager = self._labels
            self._row.left_out[framework], self._row.chosen = why, eager
            self._run, self._most = self._eager, 0
            log.warning("%s runs in PyTorch eager, not by %s: %s.", self._row.name, framework, why)

    def _does_the_same(self, args: Sequence[Any]) -> bool:
        if self._gradients:  # compiling of a backward graph holds PyTorch's lock: no thread to be left
            expected = outcome_with_gradients(self._eager, args, self._written)
            return are_same(outcome_with_gradients(self._run, args, self._written), expected)
        expected = outcome(self._eager, args, self._written)
        if not self._on_cpu:  # another thread has another stream
            return are_same(outcome(self._run, args, self._written), expected)
        found = within(self._limit_s, lambda: outcome(self._run, args, self._written))
        return are_same(found, expected)
