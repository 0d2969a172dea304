"""Runs a whole model in one framework with the least overhead between caller and framework.

A model may take 0.1 ms, so two microseconds are 2 %. A run that is not accepted or fails returns None. The
executor then takes its slower way, which raises or switches to ONNX Runtime.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan.arrays import dtype_of, has_array
from opatlas.plan.guard import InputGuard
from opatlas.plan.inside import InsideModel
from opatlas.plan.regions import OnnxRuntimeRegion, Region

Expected = Sequence[tuple[str, np.dtype, tuple[int, ...]]]
"""Names, types and shapes of inputs or outputs."""


def expected_of(graph: ModelGraph, names: Sequence[str]) -> Expected:
    """What is expected of those that are arrays of a known shape."""
    kinds = [(name, graph.walk.types.get(name)) for name in names]
    return [(name, dtype_of(kind), kind.shape) for name, kind in kinds if kind and has_array(kind)]


def expected_inputs(graph: ModelGraph) -> Expected | None:
    """What is expected of a model's inputs; None if one is no array of a known shape."""
    known = expected_of(graph, graph.input_names)
    return known if len(known) == len(graph.input_names) else None


def fits(arrays: Mapping[str, Any], expected: Expected) -> bool:
    """Whether the arrays are exactly as expected. ONNX Runtime checks too, but not the byte order: it would
    misread numbers in the other one."""
    return len(arrays) == len(expected) and _are(arrays, expected)


def _are(arrays: Mapping[str, Any], expected: Expected) -> bool:
    for name, dtype, shape in expected:
        array = arrays.get(name)
        if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
            return False
    return True


class Direct(Protocol):
    """Runs a whole model over inputs that are as expected."""

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        """The outputs of these names (all, if none are named), or None."""

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        """A run over fixed memory, if inputs and outputs all have some; else None."""


def direct_runs(
    graph: ModelGraph, region: Region, alone: AbstractContextManager[None], guard: InputGuard | None = None
) -> Direct | None:
    """The direct runs of a region that is the whole model. ``alone``: entered around each run of a framework
    that runs one call at a time. ``guard``: tells which inputs go to ONNX Runtime; None if ONNX Runtime runs
    the model as it was given. Returns None if another framework's inputs are no arrays of a known shape."""
    if isinstance(region, OnnxRuntimeRegion):
        return DirectRuns(region, graph, guard)
    if (expected := expected_inputs(graph)) is None:
        return None
    known = expected_of(graph, graph.output_names)
    return DirectTurns(region, graph.output_names, expected, known, alone, guard or InputGuard(graph))


class DirectRuns:
    """Runs in ONNX Runtime, which takes any number of calls at once and checks its inputs itself. So inputs
    that are no arrays of a known shape (sequences, text) are not checked here. Inputs for which a ``guard``
    wants the model as it was given do not run here."""

    def __init__(self, region: OnnxRuntimeRegion, graph: ModelGraph, guard: InputGuard | None = None) -> None:
        self._guard = guard
        self.region, self._outputs = region, list(graph.output_names)
        self._count, self._expected = len(graph.input_names), expected_of(graph, graph.input_names)
        self._run = region.session._sess.run

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        if len(inputs) != self._count or not _are(inputs, self._expected):
            return None
        if self._guard is not None and self._guard.needs_default(inputs):
            return None
        try:
            made: list[Any] = self._run(outputs or self._outputs, inputs, None)
        except Exception:  # ONNX Runtime's exceptions have no base class of their own
            return None
        return made

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        buffers = _buffers(inputs, outputs)
        if buffers is None or not fits(inputs, self._expected):
            return None
        try:
            bound = self.region.bind_named(inputs, buffers)
        except Exception:  # of a buffer that does not fit
            return None
        return bound if self._guard is None else _guarded(self._guard, inputs, bound)


class InsideRuns:
    """Runs in ONNX Runtime with kernels inside, any number at once; each kernel runs for one call at a time.
    Nothing runs here before the kernels have run well once, or after one failed or was revoked: the slower
    way then replaces it."""

    def __init__(
        self,
        model: InsideModel,
        graph: ModelGraph,
        guard: InputGuard | None,
        revoked: Callable[[], Set[str]],
    ) -> None:
        self._model, self._graph, self._guard, self._revoked = model, graph, guard, revoked
        self._runs: DirectRuns | None = None
        self._artifacts: frozenset[str] = frozenset()

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        runs = self._current()
        return runs.run(outputs, inputs) if runs is not None else None

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        runs = self._current()
        if runs is None or (bound := runs.bind(inputs, outputs)) is None:
            return None

        def run() -> None:
            if self._current() is not runs:
                raise KernelFailed("A kernel of the model gave way.")
            bound()

        return run

    def _current(self) -> DirectRuns | None:
        """Runs of the session as it is now."""
        runs = self._runs
        if runs is None or self._model.has_changed(runs.region):
            runs = self._runs = self._made()
        return runs if runs is not None and self._artifacts.isdisjoint(self._revoked()) else None

    def _made(self) -> DirectRuns | None:
        if (region := self._model.settled()) is None:
            return None
        self._artifacts = self._model.artifacts
        return DirectRuns(region, self._graph, self._guard)


class DirectTurns:
    """Runs in a framework that takes one call at a time; other callers wait. ``outputs``: their order;
    ``known``: those that are arrays of a known shape. Inputs that ``guard`` sends to ONNX Runtime do not run
    here."""

    def __init__(
        self,
        region: Region,
        outputs: Sequence[str],
        expected: Expected,
        known: Expected,
        alone: AbstractContextManager[None],
        guard: InputGuard,
    ) -> None:
        self._region, self._outputs, self._expected, self._alone = region, outputs, expected, alone
        self._guard = guard
        self._known = known if len(known) == len(outputs) else None
        self._names = [name for name, _, _ in expected]

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        if not fits(inputs, self._expected) or not isinstance(outputs, list | tuple | None):
            return None
        if self._guard.needs_default(inputs):
            return None
        try:
            with self._alone:
                made = self._region.run([inputs[name] for name in self._names])
        except KernelFailed:
            return None
        if not outputs:
            return made
        by_name = dict(zip(self._outputs, made, strict=True))
        return [by_name[name] for name in outputs] if by_name.keys() >= set(outputs) else None

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        buffers = _buffers(inputs, outputs)
        if buffers is None or self._known is None:
            return None
        # Neither of them looks at an output's place: what does not fit would be spread, or cast.
        if not fits(inputs, self._expected) or not fits(buffers, self._known):
            return None
        try:
            places = [buffers[name] for name in self._outputs]
            bound = self._region.bind([inputs[name] for name in self._names], places)
        except Exception:  # whatever a framework raises over memory that it does not take
            return None

        def run() -> None:
            with self._alone:
                bound()

        return _guarded(self._guard, inputs, run)


def _guarded(guard: InputGuard, inputs: Mapping[str, Any], run: Callable[[], None]) -> Callable[[], None]:
    given = dict(inputs)

    def call() -> None:
        if guard.needs_default(given):
            raise KernelFailed("These inputs are ONNX Runtime's.")
        run()

    return call


def _buffers(
    inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
) -> dict[str, np.ndarray] | None:
    """The outputs' places, if all of them, and the inputs, are memory that stays, and no output is written
    where something else lies."""
    places = {name: array for name, array in outputs.items() if array is not None}
    if not places or len(places) < len(outputs):
        return None
    if not all(map(_is_dense, (*inputs.values(), *places.values()))):
        return None
    pairs = itertools.chain(
        itertools.product(places.values(), inputs.values()), itertools.combinations(places.values(), 2)
    )
    return None if any(np.may_share_memory(one, other) for one, other in pairs) else places


def _is_dense(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and array.dtype.kind in "biufc"
