"""Plain ONNX Runtime in a plan's place: how it is opened, and when a session says so."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import onnxruntime as ort

from opatlas.errors import CallerError, OpatlasError
from opatlas.graph.normal import ModelGraph
from opatlas.load.onnxruntime_recipe import ask_exact
from opatlas.plan.regions import open_session
from opatlas.session.followed import Followed

log = logging.getLogger("opatlas")


class NotPlanned(OpatlasError):
    """A run that the plan does not take; says why. ONNX Runtime runs it, or refuses it."""


@dataclass(frozen=True)
class AsGiven:
    """The arguments of ``InferenceSession(…)``, as a caller gave them; ``more``: those in no signature."""

    model: Any
    sess_options: Any
    providers: Any
    provider_options: Any
    more: Mapping[str, Any]

    def open(self, threads: int | None) -> ort.InferenceSession:
        """ONNX Runtime's own session of these; ``threads``: of one whose options say nothing. Raises what
        ONNX Runtime raises."""
        options = self.sess_options
        if threads is None or (options is not None and _threads_of(options) != 0):
            return self._opened(options)
        options = options or ort.SessionOptions()
        options.intra_op_num_threads = threads
        try:
            return self._opened(options)
        finally:
            options.intra_op_num_threads = 0

    def _opened(self, options: Any) -> ort.InferenceSession:
        return ort.InferenceSession(self.model, options, self.providers, self.provider_options, **self.more)


def _threads_of(options: Any) -> int | None:
    """None of what are no options."""
    return getattr(options, "intra_op_num_threads", None)


class PlainRuns:
    """ONNX Runtime's own session of a model that has a plan, for what the plan does not take: opened for the
    first of it, from the model as it was read, since its file may be another's by then.

    ``tell`` is told why, once for each kind of thing.
    """

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
        """The session, for what is of this ``kind``. Raises :class:`opatlas.errors.CallerError` once it was
        closed."""
        with self._lock:
            if not self._is_open:
                raise CallerError("The model was closed: make it anew.")
            if kind not in self._told:
                self._told.add(kind)
                self._tell(why)
            if self._session is None:
                self._session = open_session(self._model, self._options())
            return self._session

    def close(self) -> None:
        """Let go of it for good."""
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
