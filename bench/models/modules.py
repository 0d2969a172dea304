"""Modules of PyTorch by ``torch.compile(backend="opatlas")`` beside eager and ``torch.compile``, each in a
process of its own, which prints JSON."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

LONGEST_S = 900
MODULES = ("module_resnet", "module_mobilenet", "module_transformer")


def in_a_process(what: str, name: str, url: str = "", key: str = "", seconds: float = 0.0) -> dict[str, Any]:
    """``operators``: the module's, each with what one run of the module in PyTorch eager takes for it.
    ``measure``: its figures, by the names of :mod:`bench.models`; ``cold_s`` and ``warm_s`` are what
    compiling it took the first time on the machine and once more. Raises CalledProcessError where the process
    fails."""
    run = "import sys; from bench.models.modules import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", run, what, name, url, str(seconds)]
    with tempfile.TemporaryDirectory(prefix="opatlas-bench-") as folder:
        own = {"OPATLAS_KEY": key, "OPATLAS_CACHE": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor"}
        done = subprocess.run(
            command, env=os.environ | own, stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST_S
        )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def operators(name: str) -> dict[str, Any]:
    import torch

    from bench.models.made_modules import made
    from opatlas.dynamo.aten import AtenGraph
    from opatlas.dynamo.contest import times_in_place
    from opatlas.dynamo.operators import read_node

    found: dict[str, dict[str, Any]] = {}

    def listed(module: Any, inputs: Any) -> Any:
        aten = AtenGraph(module, inputs, frozenset())
        times = times_in_place(aten)
        for node in aten.calls:
            read = read_node(node, ())
            if not isinstance(read, str):
                row = {"operator": read.operator.to_json(), "us": 0.0, "calls": 0}
                row = found.setdefault(read.operator.key, row)
                row["us"], row["calls"] = row["us"] + times[node.name], row["calls"] + 1
        return module.forward

    module, example = made(name)
    with torch.no_grad():
        torch.compile(module, backend=listed)(example)
    torch.compiler.reset()
    return {"operators": list(found.values())}


def measure(name: str, client: Any, seconds: float) -> dict[str, Any]:
    import torch

    from bench.models.made_modules import made
    from opatlas.dynamo.contest import LABELS
    from opatlas.plan.line_up import line_up

    module, example = made(name)
    start = time.perf_counter()
    ours, report = _compiled(module, example, client, {"try_s": seconds})
    cold_s = time.perf_counter() - start
    calls = {"eager": module, "compile": torch.compile(module), "opatlas": ours}
    makers = {
        "eager": lambda: module,
        "compile": lambda: torch.compile(module),
        "opatlas": lambda: _compiled(module, example, client, {"try_s": seconds})[0],
    }
    with torch.no_grad():
        outputs = {way: call(example) for way, call in calls.items()}
        runs = {way: lambda call=call: call(example) for way, call in calls.items()}
        timed = line_up(runs, seconds)
        best = min(("eager", "compile"), key=lambda way: timed[way].median_us)
        chosen = report.graphs[0].chosen
        itself = {LABELS["eager"]: "eager", LABELS["inductor"]: "compile"}.get(chosen)
        pairs = {way: _compared(way, makers, example, seconds) for way in {best, itself} - {None}}
    torch.compiler.reset()
    start = time.perf_counter()
    _compiled(module, example, client, {"try_s": seconds})
    warm_s = time.perf_counter() - start
    scale = float(outputs["eager"].abs().max())
    return {
        **{f"{way}_ms": timed[way].median_us / 1e3 for way in calls},
        "best": best,
        "ratio": pairs[best],
        "itself": itself,
        "own_ratio": pairs[itself] if itself else None,
        "chosen": chosen,
        "standings": [asdict(one) for one in report.graphs[0].standings],
        "operators": sum(graph.operators for graph in report.graphs),
        "known": report.known,
        "kernels": report.replaced,
        "breaks": report.breaks,
        "cold_s": cold_s,
        "warm_s": warm_s,
        "max_error": float((outputs["opatlas"] - outputs["eager"]).abs().max()) / scale,
    }


def _compared(
    rival: str, makers: Mapping[str, Callable[[], Any]], example: Any, seconds: float
) -> list[float]:
    """Of ours to the rival, with its interval, of two line-ups: what a process compiles first has its guards
    lie more scattered, and with cold caches they take it a percent or two of a small model's run."""
    import torch

    from bench.models import bounds
    from opatlas.plan.line_up import line_up

    found = []
    for order in ((rival, "opatlas"), ("opatlas", rival)):
        torch.compiler.reset()
        calls = {way: makers[way]() for way in order}
        for call in calls.values():
            call(example)
        runs = {way: lambda call=calls[way]: call(example) for way in (rival, "opatlas")}
        found.append(bounds(line_up(runs, seconds / 2)["opatlas"]))
    return [math.sqrt(one * other) for one, other in zip(*found, strict=True)]


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
    from opatlas.plan.plan import KERNEL_KINDS

    if what == "operators":
        print(json.dumps(operators(name)))
        return
    cache, accepts = Path(os.environ["OPATLAS_CACHE"]), {"kinds": list(KERNEL_KINDS)}
    with Client(url, os.environ["OPATLAS_KEY"], job="models", cache=cache, accepts=accepts) as client:
        print(json.dumps(measure(name, client, float(seconds))))
