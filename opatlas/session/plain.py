"""A session of a model, or with options, that no plan takes: plain ONNX Runtime, whatever it raises."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from opatlas.errors import CallerError
from opatlas.graph.given_model import random_inputs, read_model
from opatlas.graph.normal import ModelGraph
from opatlas.identity.place.cpu import usable_cores
from opatlas.plan.choosing import WHOLE
from opatlas.plan.engines import Engines
from opatlas.plan.making import DEFAULT
from opatlas.plan.plan import ModelPlan, PlanStep
from opatlas.session.instead import AsGiven
from opatlas.session.io_binding import IOBinding
from opatlas.session.reporting import StepShare
from opatlas.session.session import Session
from opatlas.streams.timeline import Timeline, TimelineBox, bounded

THE_MODEL = "the whole model"
TIMED_RUNS = 3


class PlainSession(Session):
    """ONNX Runtime's own session in the place of :class:`opatlas.session.Session`, which becomes one where it
    cannot be planned. All that ONNX Runtime's session has is its own; ``why``: what no plan takes."""

    @staticmethod
    def take(
        session: Session, opened: ort.InferenceSession, given: AsGiven, dims: Mapping[str, int], why: str
    ) -> None:
        """Make a session one of these. What it held must be closed."""
        kind, options = type(session), opened.get_session_options()
        refused = {**session.refused, "opatlas": why}
        for name in vars(session).keys() - session._before:
            delattr(session, name)
        own = kind is not Session and not issubclass(kind, PlainSession)
        session.__class__ = type(kind.__name__, (kind, PlainSession), {}) if own else PlainSession
        vars(session).update(
            _opened=opened, _given=given, _dims=dims, _why=why, refused=refused, standings=(), known=0,
            threads=options.intra_op_num_threads or usable_cores(),
        )  # fmt: skip

    _opened: ort.InferenceSession | None
    _why: str

    @property
    def plan(self) -> ModelPlan:
        """One step: ONNX Runtime, the whole model."""
        return ModelPlan("", "", "", (PlanStep((), (), DEFAULT),))

    @property
    def graph(self) -> ModelGraph:  # type: ignore[override]
        """The model as it is read for planning. Raises :class:`opatlas.errors.InvalidModel` where it cannot
        be."""
        return read_model(self._given.model, self._dims)  # type: ignore[union-attr,attr-defined]

    @property
    def peak_bytes(self) -> int:
        """0, as wherever a framework runs the whole model."""
        return 0

    @property
    def plan_number(self) -> None:
        """None: no plan takes part."""
        return

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: Any = None,
        *,
        deadline_s: float = math.inf,
    ) -> list[np.ndarray]:
        """As ``onnxruntime.InferenceSession.run``."""
        if deadline_s < math.inf:
            raise self._unplanned("No deadline is kept")
        made: list[np.ndarray] = self._session().run(output_names, input_feed, run_options)
        return made

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """One run over what is bound, also of a binding that was made before the session became plain."""
        if isinstance(iobinding, IOBinding):
            iobinding._run_plainly(self._session(), run_options)
        else:
            self._session().run_with_iobinding(iobinding, run_options)

    def share(self, engines: Engines | None, name: str = "model", *, priority_s: float = 0.0) -> None:
        """It shares no engines: None alone can be given."""
        if engines is not None:
            raise self._unplanned("No engines can be shared")

    def breakdown(self, input_feed: Mapping[str, np.ndarray]) -> list[StepShare]:
        """One step: all of the model."""
        us = statistics.median(self._timed_us(input_feed) for _ in range(TIMED_RUNS))
        return [StepShare(THE_MODEL, WHOLE, us, us)]

    def timeline(self, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        """One box: all of the model."""
        box = TimelineBox(0, THE_MODEL, 0.0, self._timed_us(input_feed), by=WHOLE)
        return bounded(["one run"], [box])

    def report_timeline(self, input_feed: Mapping[str, np.ndarray]) -> Timeline:
        """There is none to report."""
        raise self._unplanned("There is no plan of the service whose run could be told")

    def example(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Random inputs. Raises :class:`opatlas.errors.InvalidModel` where nobody knows the sizes."""
        return random_inputs(self.graph, seed)

    def close(self) -> None:
        """Let go of ONNX Runtime's session."""
        self._opened = None

    def __getattr__(self, name: str) -> Any:
        if name == "_sess":
            return self._session()._sess
        raise AttributeError(f"A session by plain ONNX Runtime has no {name!r}: {vars(self)['_why']}")

    def _session(self) -> ort.InferenceSession:
        if self._opened is None:
            raise CallerError("The model was closed: make it anew.")
        return self._opened

    def _unplanned(self, what: str) -> CallerError:
        return CallerError(f"{what}: ONNX Runtime runs the model by itself ({self._why}).")

    def _timed_us(self, feed: Mapping[str, np.ndarray]) -> float:
        began = time.perf_counter()
        self.run(None, feed)
        return 1e6 * (time.perf_counter() - began)


def _onnxruntimes_own(name: str) -> Any:
    def call(self: PlainSession, *given: Any, **named: Any) -> Any:
        return getattr(self._session(), name)(*given, **named)

    call.__name__, call.__doc__ = name, getattr(ort.InferenceSession, name).__doc__
    return call


for _name in dir(ort.InferenceSession):
    if not _name.startswith("_") and _name not in vars(PlainSession):
        setattr(PlainSession, _name, _onnxruntimes_own(_name))
