"""The simpler form of a model, for a session that runs a plan of it: made where its weights are, verified."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opatlas.errors import first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.simplify import NotSimplified, simplified
from opatlas.load.onnxruntime_recipe import quiet_options
from opatlas.plan.closeness import is_close
from opatlas.plan.regions import open_session


def simplified_graph(
    graph: ModelGraph, dims: Mapping[str, int] | None, feed: Mapping[str, np.ndarray], threads: int
) -> ModelGraph:
    """The model as :func:`opatlas.graph.simplify.simplified` makes it, if it gives over ``feed`` what the
    model itself does. Raises :class:`NotSimplified`, and what :class:`ModelGraph` raises."""
    if graph.is_random:
        raise NotSimplified("The model has random numbers: no two runs of it can be compared.")
    found = ModelGraph(simplified(graph.model, dims).SerializeToString(), dims)
    if (found.input_names, found.output_names) != (graph.input_names, graph.output_names):
        raise NotSimplified("The simplified model has other inputs or outputs.")
    expected, made = (_run(one, feed, threads) for one in (graph, found))
    if not all(map(is_close, made, expected)):
        raise NotSimplified("The simplified model gives other values than the model.")
    return found


def _run(graph: ModelGraph, feed: Mapping[str, np.ndarray], threads: int) -> list[np.ndarray]:
    try:
        made: list[np.ndarray] = open_session(graph.model, quiet_options(threads)).run(None, dict(feed))
    except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
        raise NotSimplified(f"ONNX Runtime does not run the model: {first_line(error)}") from error
    return made
