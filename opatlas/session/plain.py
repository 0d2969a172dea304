"""A session for a model or options that no plan can take: plain ONNX Runtime, with all its errors."""

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
from opatlas.plan.engines import Engines
from opatlas.plan.line_up import TimedInTurns
from opatlas.plan.making import DEFAULT
from opatlas.plan.plan import ModelPlan, PlanStep
from opatlas.plan.said import WHOLE
from opatlas.session.instead import AsGiven
from opatlas.session.io_binding import IOBinding
from opatlas.session.reporting import StepShare
from opatlas.streams.timeline import Timeline, TimelineBox, bounded

THE_MODEL = "the whole model"
TIMED_RUNS = 3


class Plain:
    """What a session becomes if it cannot be planned: ONNX Runtime's session with all its methods.
    ``refused`` says what no plan takes."""

    refused: Mapping[str, str]
    standings: tuple[TimedInTurns, ...]
    threads: int
    known: int
    _opened: ort.InferenceSession | None
    _arguments: AsGiven
    _dims: Mapping[str, int]

    @staticmethod
    def take(
        session: Any,
        kind: type,
        opened: ort.InferenceSession,
        given: AsGiven,
        dims: Mapping[str, int],
        why: str,
    ) -> None:
        """Turn a session into this ``kind``, a subclass. Its own state must be dropped before."""
        options, refused = opened.get_session_options(), {**session.refused, "opatlas": why}
        session.__class__ = kind
        vars(session).update(
            _opened=opened, _arguments=given, _dims=dims, refused=refused, standings=(), known=0,
            threads=options.intra_op_num_threads or usable_cores(),
        )  # fmt: skip

    @property
    def plan(self) -> ModelPlan:
        """One step: ONNX Runtime, the whole model."""
        return ModelPlan("", "", "", (PlanStep((), (), DEFAULT),))

    @property
    def graph(self) -> ModelGraph:
        """The model as read for planning. Raises :class:`opatlas.errors.InvalidModel` if it cannot be
        read."""
        return read_model(self._arguments.model, self._dims)

    @property
    def peak_bytes(self) -> int:
        """0, as whenever a framework runs the whole model."""
        return 0

    @property
    def checks(self) -> None:
        """None: ONNX Runtime itself runs the model."""
        return

    @property
    def check_peak_bytes(self) -> int:
        """0: nothing is compared with ONNX Runtime."""
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
        """See ``onnxruntime.InferenceSession.run``."""
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
        """A plain session shares no engines: only None is accepted."""
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
        """Random inputs. Raises :class:`opatlas.errors.InvalidModel` if sizes are unknown."""
        return random_inputs(self.graph, seed)

    def close(self) -> None:
        """Release ONNX Runtime's session."""
        self._opened = None

    def __getattr__(self, name: str) -> Any:
        if name == "_sess":
            return self._session()._sess
        raise AttributeError(f"A session by plain ONNX Runtime has no {name!r}: {self.refused['opatlas']}")

    def _plainly(self, kind: str, why: str) -> ort.InferenceSession:
        """For a binding made before the session became plain: ONNX Runtime takes all of it."""
        return self._session()

    def _session(self) -> ort.InferenceSession:
        if self._opened is None:
            raise CallerError("The model was closed: make it anew.")
        return self._opened

    def _unplanned(self, what: str) -> CallerError:
        return CallerError(f"{what}: ONNX Runtime runs the model by itself ({self.refused['opatlas']}).")

    def _timed_us(self, feed: Mapping[str, np.ndarray]) -> float:
        began = time.perf_counter()
        self.run(None, feed)
        return 1e6 * (time.perf_counter() - began)


def _onnxruntimes_own(name: str) -> Any:
    def call(self: Plain, *given: Any, **named: Any) -> Any:
        return getattr(self._session(), name)(*given, **named)

    call.__name__, call.__doc__ = name, getattr(ort.InferenceSession, name).__doc__
    return call


for _name in dir(ort.InferenceSession):
    if not _name.startswith("_") and _name not in vars(Plain):
        setattr(Plain, _name, _onnxruntimes_own(_name))
