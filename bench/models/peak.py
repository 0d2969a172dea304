"""What a run of a model in ONNX Runtime takes of memory beside what is loaded, which its Python interface
does not say: ``python -m bench.models.peak model.onnx threads``, a process of its own, prints MB."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from opatlas.graph.normal import ModelGraph

_SELF = Path("/proc/self")


def onnxruntime_peak_mb(graph: ModelGraph, threads: int) -> float:
    """The most that one run adds to the process's resident memory (MB of a million bytes); its arena grows in
    the first one. Raises CalledProcessError where the process fails."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(graph.model.SerializeToString())
        command = [sys.executable, "-m", "bench.models.peak", str(path), str(threads)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main(path: str, threads: str) -> None:
    from opatlas.graph.given_model import random_inputs
    from opatlas.session import onnxruntime_session

    graph = ModelGraph(Path(path).read_bytes())
    session, feed = onnxruntime_session(graph, int(threads)), random_inputs(graph)
    (_SELF / "clear_refs").write_text("5")  # the peak begins anew
    before = _kilobytes("VmRSS")
    session.run(None, feed)
    print((_kilobytes("VmHWM") - before) * 1024 / 1e6)


def _kilobytes(name: str) -> int:
    lines = (_SELF / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
