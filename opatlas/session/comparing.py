"""A session beside ONNX Runtime's own of the same model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opatlas.graph.normal import ModelGraph
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.regions import open_session
from opatlas.session.session import Session


def compared(session: Session, feed: Mapping[str, np.ndarray], seconds: float) -> tuple[TimedInTurns, ...]:
    """What runs, and ONNX Runtime's own session of the same model on the same inputs, in turns."""
    theirs = onnxruntime_session(session.graph, session.threads)
    runs = {
        "ONNX Runtime": lambda: theirs.run(None, dict(feed)),
        "Opatlas": lambda: session.run(None, feed),
    }
    return tuple(line_up(runs, seconds).values())


def onnxruntime_session(graph: ModelGraph, threads: int) -> Any:
    """What a user of ONNX Runtime would run the model by."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return open_session(graph.model, options)
