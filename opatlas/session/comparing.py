"""Compares a session with ONNX Runtime's own session of the same model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.regions import open_session
from opatlas.session.session import Session


def compared(session: Session, feed: Mapping[str, np.ndarray], seconds: float) -> tuple[TimedInTurns, ...]:
    """Both sessions, timed in turns on the same inputs."""
    theirs = onnxruntime_session(session.graph, session.threads)
    runs = {
        "ONNX Runtime": lambda: theirs.run(None, dict(feed)),
        "Opatlas": lambda: session.run(None, feed),
    }
    return tuple(line_up(runs, seconds).values())


def onnxruntime_session(graph: ModelGraph, threads: int) -> Any:
    """The session with which a user of ONNX Runtime would run the model."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return open_session(graph.model, options)
