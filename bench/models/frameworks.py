"""A whole model as users of each framework run it, for being timed beside a session: none of it goes through
our executor. PyTorch and XLA, which read no ONNX, are given the model's nodes as their own calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opatlas.errors import LoadError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.plan.plan import FRAMEWORKS

Feed = Mapping[str, np.ndarray]
Run = Callable[[], Any]
COLUMNS = ("onnxruntime", "openvino", "eager", "compile", "xla")
COLUMN_OF = dict(zip(FRAMEWORKS, COLUMNS, strict=True))
"""By what a plan calls a framework."""


def users(
    graph: ModelGraph, feed: Feed, threads: int, compile_s: float
) -> tuple[dict[str, Run], dict[str, str]]:
    """Runs by column (:data:`COLUMNS`), each giving the outputs as arrays; and of the columns without one,
    why. ``compile_s`` bounds ``torch.compile``, which is not tried in 0."""
    from opatlas.plan.closeness import is_close

    makers: tuple[Callable[[], Run], ...] = (
        lambda: _onnxruntime(graph, feed, threads),
        lambda: _openvino(graph, feed, threads),
        lambda: _torch(graph, feed, threads, "pytorch"),
        lambda: _compiled(graph, feed, threads, compile_s),
        lambda: _xla(graph, feed),
    )
    runs, refused = dict[str, Run](), dict[str, str]()
    expected: list[Any] | None = None
    for column, make in zip(COLUMNS, makers, strict=True):
        try:
            run = make()
            found = run()
            if expected is not None and not all(map(is_close, found, expected)):
                raise LoadError("it gives other values than ONNX Runtime")
        except Exception as error:  # whatever a framework raises
            if column == "onnxruntime":
                raise
            refused[column] = first_line(error)
            continue
        expected = expected if expected is not None else found
        runs[column] = run
    return runs, refused


def _onnxruntime(graph: ModelGraph, feed: Feed, threads: int) -> Run:
    from opatlas.session import onnxruntime_session

    session = onnxruntime_session(graph, threads)
    return lambda: session.run(None, dict(feed))


def _openvino(graph: ModelGraph, feed: Feed, threads: int) -> Run:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(graph.model.SerializeToString())
    model.reshape({name: list(array.shape) for name, array in feed.items()})
    # In the model's own precision: left to itself it computes in bfloat16 where the processor can.
    hints = {"PERFORMANCE_HINT": "LATENCY", "EXECUTION_MODE_HINT": "ACCURACY"}
    options = {"INFERENCE_NUM_THREADS": threads, **hints}
    compiled = core.compile_model(model, "CPU", options)
    return lambda: list(compiled(dict(feed)).values())


def _torch(graph: ModelGraph, feed: Feed, threads: int, framework: str) -> Run:
    from opatlas.plan.regions import ModelPart, open_region

    region = open_region(framework, ModelPart.whole(graph), threads)
    arrays = [feed[name] for name in graph.input_names]
    return lambda: region.run(arrays)


def _compiled(graph: ModelGraph, feed: Feed, threads: int, seconds: float) -> Run:
    from opatlas.plan.compiling import compile_ahead

    if not seconds:
        raise LoadError(f"it was not tried: it takes minutes for {len(graph.nodes)} nodes")
    compile_ahead("torch.compile", graph, threads, seconds)
    return _torch(graph, feed, threads, "torch.compile")


def _xla(graph: ModelGraph, feed: Feed) -> Run:
    """All nodes as one jitted function, weights as its arguments."""
    import jax

    from opatlas.plan.regions import ModelPart
    from opatlas.plan.regions.xla import ModelProgram

    jax.config.update("jax_enable_x64", True)
    program = ModelProgram(ModelPart.whole(graph))
    compiled = jax.jit(program)
    placed = [jax.device_put(np.array(value)) for value in program.constants.values()]
    arrays = [feed[name] for name in graph.input_names]
    return lambda: [np.asarray(one) for one in compiled(*placed, *arrays)]
