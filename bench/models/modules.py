"""Modules of PyTorch by ``torch.compile(backend="opatlas")`` beside eager and ``torch.compile``, each in a
process of its own, which prints JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LONGEST_S = 900
MODULES = ("module_resnet", "module_mobilenet", "module_transformer")


def in_a_process(what: str, name: str, url: str, key: str, seconds: float = 0.0) -> dict[str, Any]:
    """``ask``: the module's operators are looked up, so that they are explored. ``measure``: its figures, by
    the names of :mod:`bench.models`; ``cold_s`` and ``warm_s`` are what compiling it took the first time on
    the machine and once more. Raises CalledProcessError where the process fails."""
    run = "import sys; from bench.models.modules import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", run, what, name, url, str(seconds)]
    with tempfile.TemporaryDirectory(prefix="opatlas-bench-") as folder:
        own = {"OPATLAS_KEY": key, "OPATLAS_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        done = subprocess.run(
            command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST_S
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def ask(name: str, client: Any) -> dict[str, Any]:
    import torch

    from bench.models.made_modules import made

    module, example = made(name)
    report = _compiled(module, example, client, {"frameworks": ("eager",), "try_s": 0.0})[1]
    torch.compiler.reset()
    return {"operators": sum(graph.operators for graph in report.graphs), "known": report.known}


def measure(name: str, client: Any, seconds: float) -> dict[str, Any]:
    import torch

    from bench.models import bounds
    from bench.models.made_modules import made
    from opatlas.dynamo.contest import LABELS
    from opatlas.plan.line_up import line_up

    module, example = made(name)
    start = time.perf_counter()
    ours, report = _compiled(module, example, client, {"try_s": seconds})
    cold_s = time.perf_counter() - start
    calls = {"eager": module, "compile": torch.compile(module), "opatlas": ours}
    with torch.no_grad():
        outputs = {way: call(example) for way, call in calls.items()}
        runs = {way: lambda call=call: call(example) for way, call in calls.items()}
        timed = line_up(runs, seconds)
        best = min(("eager", "compile"), key=lambda way: timed[way].median_us)
        chosen = report.graphs[0].chosen
        itself = {LABELS["eager"]: "eager", LABELS["inductor"]: "compile"}.get(chosen)
        pairs = {
            way: line_up({way: runs[way], "opatlas": runs["opatlas"]}, seconds)["opatlas"]
            for way in {best, itself} - {None}
        }
    torch.compiler.reset()
    start = time.perf_counter()
    _compiled(module, example, client, {"try_s": seconds})
    warm_s = time.perf_counter() - start
    scale = float(outputs["eager"].abs().max())
    return {
        **{f"{way}_ms": timed[way].median_us / 1e3 for way in calls},
        "best": best,
        "ratio": bounds(pairs[best]),
        "itself": itself,
        "own_ratio": bounds(pairs[itself]) if itself else None,
        "chosen": chosen,
        "operators": sum(graph.operators for graph in report.graphs),
        "known": report.known,
        "kernels": report.replaced,
        "breaks": report.breaks,
        "cold_s": cold_s,
        "warm_s": warm_s,
        "max_error": float((outputs["opatlas"] - outputs["eager"]).abs().max()) / scale,
    }


def _compiled(module: Any, example: Any, client: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """The module by our backend, run once, and what is told of it."""
    import torch

    from opatlas.dynamo.report import TorchReport

    report = TorchReport()
    given = options | {"client": client, "report": report}
    call = torch.compile(module, backend="opatlas", options=given)
    with torch.no_grad():
        call(example)
    return call, report


def main(what: str, name: str, url: str, seconds: str) -> None:
    from opatlas.client import Client

    with Client(
        url, os.environ["OPATLAS_KEY"], job="models", cache=Path(os.environ["OPATLAS_CACHE"])
    ) as client:
        print(json.dumps(ask(name, client) if what == "ask" else measure(name, client, float(seconds))))
