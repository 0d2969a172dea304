"""Compiles a model in a child process that can be ended.

A compiler cannot be interrupted inside the process that waits for it. The child leaves what it compiled in
the user's cache folder, and the region (:data:`opatlas.plan.regions.COMPILED`) then loads that in seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx

from opatlas.conf import conf
from opatlas.errors import LoadError, OpatlasError, first_line
from opatlas.graph.normal import ModelGraph
from opatlas.graph.weights import serialisable
from opatlas.plan.regions import LABELS, ModelPart, open_region


def compile_ahead(framework: str, graph: ModelGraph, threads: int, seconds: float) -> None:
    """Raises :class:`LoadError` if the framework cannot express the model or takes too long."""
    said = LABELS[framework]
    if serialisable(graph.model) is not graph.model:
        raise LoadError(f"{said} is given models as they are written in one piece, which is up to 2 GB")
    with tempfile.TemporaryDirectory(prefix="opatlas-compiling-") as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(_of_known_sizes(graph).SerializeToString())
        found = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPATLAS_CACHE": str(conf().cache)}
        child = subprocess.Popen(
            [sys.executable, "-m", "opatlas.plan.compiling", framework, str(path), str(threads)],
            env=os.environ | found,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, told = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise LoadError(f"{said} takes longer than {seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # the C++ compiler that it runs as well
            child.wait()
        if child.returncode:
            raise LoadError((told.strip().splitlines() or [f"{said} ended without a word"])[-1][:300])


def _of_known_sizes(graph: ModelGraph) -> onnx.ModelProto:
    """The model with the given sizes for its symbolic dimensions."""
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    for value in model.graph.input:
        if (known := graph.proto_of(value.name)) is not None:
            value.type.CopyFrom(known)
    return model


def main(framework: str, path: str, threads: str) -> int:
    try:
        open_region(framework, ModelPart.whole(ModelGraph(Path(path).read_bytes())), int(threads))
    except OpatlasError as error:
        print(first_line(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
