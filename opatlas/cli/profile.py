"""``opatlas profile``: what real runs of a model show, by which plans weigh its branches and loops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opatlas.cli.terminal import attribute, print_json
from opatlas.errors import CallerError


def profile(
    model: Annotated[Path, typer.Argument(help="An ONNX model.")],
    inputs: Annotated[
        list[Path], typer.Option(help="Inputs by name (.npz); one run over each, as often as it is given.")
    ],
    dim: Annotated[list[str] | None, typer.Option(help="A symbolic dimension's size: batch=1.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of these runs.")] = 1,
    version: Annotated[str, typer.Option(help="What to call the model's weights.")] = "",
) -> None:
    """Run a model by ONNX Runtime over real inputs, and print how often each of its nodes ran, as JSON."""
    from opatlas.graph.given_model import read_inputs, read_model
    from opatlas.plan.profiling import profile_model

    if not model.exists():
        raise CallerError(f"There is no file {model}.")
    graph = read_model(model, {name: int(size) for name, size in map(attribute, dim or ())})
    feeds = [read_inputs(one) for one in inputs]
    for path, feed in zip(inputs, feeds, strict=True):
        if missing := [name for name in graph.input_names if name not in feed]:
            raise CallerError(f"{path} has no input '{missing[0]}' of the model.")
    print_json(profile_model(graph, feeds, threads, version).to_json())
