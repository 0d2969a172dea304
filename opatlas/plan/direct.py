"""A whole model in one framework, run with as little as can be between the caller and it.

A model may take 0.1 ms, of which 2 % are two microseconds. What a run does not take, or fails over, is None,
and the executor's own way then says why in one sentence, and what runs from then on.
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
    """Of those that are arrays of a known shape."""
    kinds = [(name, graph.walk.types.get(name)) for name in names]
    return [(name, dtype_of(kind), kind.shape) for name, kind in kinds if kind and has_array(kind)]


def expected_inputs(graph: ModelGraph) -> Expected | None:
    """Of a model's inputs; None where one is no array of a known shape."""
    known = expected_of(graph, graph.input_names)
    return known if len(known) == len(graph.input_names) else None


def fits(arrays: Mapping[str, Any], expected: Expected) -> bool:
    """Whether these are the arrays that are expected, as they are. ONNX Runtime looks itself, but not at the
    order of bytes: it would read the numbers of another machine as its own."""
    return len(arrays) == len(expected) and _are(arrays, expected)


def _are(arrays: Mapping[str, Any], expected: Expected) -> bool:
    for name, dtype, shape in expected:
        array = arrays.get(name)
        if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
            return False
    return True


class Direct(Protocol):
    """Runs of a whole model over inputs that are as expected."""

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, Any]) -> list[Any] | None:
        """The outputs of these names (all, where there are none), or None."""

    def bind(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray | None]
    ) -> Callable[[], None] | None:
        """A run over memory that stays, where all of it does; else None."""


def direct_runs(
    graph: ModelGraph, region: Region, alone: AbstractContextManager[None], guard: InputGuard | None = None
) -> Direct | None:
    """Of a region that is the whole model. ``alone``: entered around each run in a framework that runs one at
    a time; ``guard``: which runs over some inputs are not for it; None of ONNX Runtime with the model as it
    was given. None where another framework is given what is no array of a known shape."""
    if isinstance(region, OnnxRuntimeRegion):
        return DirectRuns(region, graph, guard)
    if (expected := expected_inputs(graph)) is None:
        return None
    known = expected_of(graph, graph.output_names)
    return DirectTurns(region, graph.output_names, expected, known, alone, guard or InputGuard(graph))


class DirectRuns:
    """In ONNX Runtime, which runs any number of calls at once, so that nobody waits for anybody, and looks at
    its inputs itself: of those that are no arrays of a known shape (sequences, text) nothing is asked
    here. What a ``guard`` leaves to the model as it was given does not run here."""

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
    """In ONNX Runtime with kernels inside, as any number of calls at once; a kernel runs for one of them at a
    time. Nothing runs here until the kernels have run well once, nor while one has failed or was revoked: the
    slower way then lets go of it."""

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
    """In a framework that runs one call at a time: whoever calls meanwhile waits. Outputs are in the order of
    ``outputs``; ``known``: those that are arrays of a known shape. What ``guard`` leaves to ONNX Runtime does
    not run here."""

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
