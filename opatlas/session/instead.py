"""Plain ONNX Runtime in place of a plan: how it is opened, and when a session says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import unwrap
from typing import Any

import onnxruntime as ort

from opatlas.errors import CallerError, OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.load.onnxruntime_recipe import EXACTNESS, ask_exact
from opatlas.plan.regions import open_session
from opatlas.session.followed import Followed

log = logging.getLogger("opatlas")


class NotPlanned(OpatlasError):
    """A run that the plan does not take, and why. ONNX Runtime executes or refuses it."""


@dataclass(frozen=True)
class AsGiven:
    """The caller's arguments of ``InferenceSession(…)``; ``more``: those that no signature lists. ``exact``:
    compute 8-bit products exactly if the weights are constants."""

    model: Any
    sess_options: Any
    providers: Any
    provider_options: Any
    more: Mapping[str, Any]
    exact: bool = False

    def open(self, threads: int | None) -> ort.InferenceSession:
        """ONNX Runtime's own session with these arguments; ``threads``: if the options do not say. Raises
        what ONNX Runtime raises."""
        options = self.sess_options
        if options is None and (self.exact or threads is not None):
            options = ort.SessionOptions()
        if not isinstance(options, ort.SessionOptions):
            return self._opened(options)
        if self.exact:
            with _exactly(options):
                made = self._on_threads(options, threads)
            made._sess_options_initial = made.get_session_options()  # of other providers later
            return made
        return self._on_threads(options, threads)

    def _on_threads(self, options: ort.SessionOptions, threads: int | None) -> ort.InferenceSession:
        if threads is None or options.intra_op_num_threads != 0:
            return self._opened(options)
        options.intra_op_num_threads = threads
        try:
            return self._opened(options)
        finally:
            options.intra_op_num_threads = 0

    def _opened(self, options: Any) -> ort.InferenceSession:
        return ort.InferenceSession(self.model, options, self.providers, self.provider_options, **self.more)


@contextmanager
def _exactly(options: ort.SessionOptions) -> Iterator[None]:
    """Make a caller's options ask for exact products, and restore them afterwards. This is not recorded as
    the caller's own call (:mod:`opatlas.session.recorded`)."""
    kind = ort.SessionOptions
    add, get = unwrap(kind.add_session_config_entry), unwrap(kind.get_session_config_entry)
    try:
        before = get(options, EXACTNESS)
    except Exception:  # nothing is said: ONNX Runtime's exceptions have no base class of their own
        before = "0"
    if before == "1":
        yield
        return
    add(options, EXACTNESS, "1")
    try:
        yield
    finally:
        add(options, EXACTNESS, before)


class PlainRuns:
    """ONNX Runtime's session of a planned model, for runs that the plan does not take. It is opened for the
    first of them, from the model as it was read, since its file may have changed. ``tell`` is called with the
    reason, once for each kind."""

    def __init__(
        self, graph: ModelGraph, asked: Followed, threads: int, tell: Callable[[str], None], *, exact: bool
    ) -> None:
        self._model, self._asked, self._threads, self._tell = graph.model, asked, threads, tell
        self._exact = exact
        self._told: set[str] = set()
        self._session: ort.InferenceSession | None = None
        self._lock = threading.Lock()
        self._is_open = True

    def session(self, kind: str, why: str) -> ort.InferenceSession:
        """The session, for a run of this ``kind``. Raises :class:`opatlas.errors.CallerError` after
        closing."""
        with self._lock:
            if self._is_open and kind not in self._told:
                self._told.add(kind)
                self._tell(why)
        return self.opened()

    def opened(self) -> ort.InferenceSession:
        """The same without logging. Raises like :meth:`session`, and what ONNX Runtime raises."""
        with self._lock:
            if not self._is_open:
                raise CallerError("The model was closed: make it anew.")
            if self._session is None:
                self._session = open_session(self._model, self._options())
            return self._session

    def if_open(self) -> ort.InferenceSession | None:
        """The session, if it was needed yet."""
        with self._lock:
            return self._session

    def close(self) -> None:
        """Close it for good."""
        with self._lock:
            self._session, self._is_open = None, False

    def _options(self) -> ort.SessionOptions:
        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        if self._exact:
            ask_exact(options)
        for name, size in self._asked.dims.items():
            options.add_free_dimension_override_by_name(name, size)
        return options
