"""Whole models: what ``opatlas.Session`` takes beside ONNX Runtime, after a real service has explored their
operators for a while; and what the executor itself costs.

``models``, by name: the medians of one run in turns (``opatlas_ms``, ``onnxruntime_ms``), their ratio with
its interval, ``per_operator_ms`` (every kernel that is known, whether it pays in place or not),
``predicted_ms`` (kernels' own times, the default's profile for the rest), ``peak_mb`` between steps,
``chosen`` and ``max_error`` of the outputs against ONNX Runtime's. ``overhead_us_per_node``: a plan of N
kernels that do nothing, less N direct calls of them.

``BUDGET_S`` is for exploring all models (1200); ``MODELS=dir`` takes other ONNX files.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from bench.conf import conf
from bench.contest.home import set_up
from bench.record import FOLDER, BenchRecord

EXPLORING_S = 1200.0
TIMING_S = 20.0
LENGTHS = (10, 100, 1000)
ROUNDS = 200
NOTHING = """
#include "opatlas_abi.h"
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) { return 0; }
"""


def main() -> None:
    record = BenchRecord("models")
    overhead = record.part("overhead", measure_overhead)
    models = read_models()
    home = set_up(FOLDER / "models", new="explored" not in record.parts)
    explored = record.part("explored", lambda: explore(models, home))
    measured = {name: record.part(name, lambda data=data: measure(data)) for name, data in models.items()}
    record.finish({"overhead_us_per_node": overhead, "explored": explored, "models": measured})


def read_models() -> dict[str, bytes]:
    """With seeded random weights: with equal ones every wrong plan passes."""
    from tuning.graph import SAMPLES, sample_model
    from tuning.graph.weights import randomise_weights

    if conf().models is None:
        return {name: sample_model(name) for name in SAMPLES}
    paths = sorted(conf().models.glob("*.onnx"))
    return {path.stem: randomise_weights(onnx.load(path)).SerializeToString() for path in paths}


def explore(models: Mapping[str, bytes], home: Path) -> dict[str, Any]:
    """As jobs would: a session of each model asks, and one worker explores what is missed."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.demo import Demo
    from dashboard.run.stack import Stack
    from opatlas.client import RestClient
    from opatlas.graph import extract
    from opatlas.identity import detect_target

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    distinct = {one.operator.key: one for data in models.values() for one in extract(data).operators}
    with (
        Stack(workers=1, logs=home / "logs") as stack,
        RestClient(stack.url, secret, job="models", target=detect_target()) as client,
    ):
        budget_s = conf().budget_s or EXPLORING_S
        course = Demo("models", list(distinct.values()), client, stack, budget_s, _say)
        course.wait_for_worker()
        course.ask()
        course.explore()
        found = course.ask()
    return {"operators": len(distinct), "hits": sum(map(bool, found)), "seconds": round(course.explored_s, 1)}


def measure(data: bytes) -> dict[str, Any]:
    """One model in turns with ONNX Runtime, with nothing else running but a web server."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.stack import Stack
    from opatlas.client import Client
    from opatlas.plan.executor import Executor
    from opatlas.plan.line_up import line_up
    from opatlas.plan.making import with_kernels
    from opatlas.session import Session, onnxruntime_session

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    with (
        tempfile.TemporaryDirectory() as folder,
        Stack(workers=0) as stack,
        Client(stack.url, secret, cache=Path(folder)) as client,
        Session(data, client=client) as session,
    ):
        feed = session.example(1)
        theirs = onnxruntime_session(session.graph, session.threads)
        expected, found = theirs.run(None, feed), session.run(None, feed)
        errors = [
            float(np.max(np.abs(one - other)) / (np.abs(other).max() or 1.0))
            for one, other in zip(found, expected, strict=True)
        ]
        choices = session.look_up()
        every = Executor(
            session.graph, with_kernels(session.graph, choices, *session.place), session.load,
            threads=session.threads,
        )  # fmt: skip
        timed = line_up(
            {
                "onnxruntime": lambda: theirs.run(None, feed),
                "opatlas": lambda: session.run(None, feed),
                "per_operator": lambda: every.run(feed),
            },
            TIMING_S,
        )
        ours = timed["opatlas"]
        predicted_us = session.plan.predicted_us
        return {
            "opatlas_ms": ours.median_us / 1e3,
            "onnxruntime_ms": timed["onnxruntime"].median_us / 1e3,
            "per_operator_ms": timed["per_operator"].median_us / 1e3,
            "ratio": [ours.ratios.ratio, ours.ratios.low, ours.ratios.high],
            "predicted_ms": predicted_us / 1e3 if predicted_us is not None else None,
            "peak_mb": session.peak_bytes / 1e6,
            "nodes": len(session.graph.nodes),
            "known": len(choices),
            "kernels": len(session.plan.kernels),
            "chosen": [one.said for one in session.standings],
            "max_error": max(errors),
        }


def measure_overhead() -> dict[str, float]:
    """Microseconds for each node, by how many there are; kernels that do nothing over one element."""
    from opatlas.graph.normal import ModelGraph
    from opatlas.load.c_abi import CKernel
    from opatlas.load.toolchain import compile_shared
    from opatlas.plan.executor import Executor
    from opatlas.plan.making import NodeChoice, with_kernels
    from opatlas.plan.plan import ByKernel

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "nothing.c", Path(folder) / "nothing.so"
        source.write_text(NOTHING)
        compile_shared([source], library)
        for length in LENGTHS:
            graph = ModelGraph(_chain(length))
            manifest = _manifest(graph.operator(0)[0].operator)  # type: ignore[index]

            def load(by: ByKernel, manifest: Any = manifest) -> CKernel:
                return CKernel(manifest, {library.name: library.read_bytes()})

            choices = {}
            for number in range(length):
                canonical, tensors = graph.operator(number)  # type: ignore[misc]
                by = ByKernel(canonical.operator.key, "0" * 64, tensors, "nothing")
                choices[number] = NodeChoice(by, 0.0)
            executor = Executor(graph, with_kernels(graph, choices, "", ""), load, threads=1)
            feed = {"v0": np.ones(1, np.float32)}
            calls = executor.calls
            direct, planned = [], []
            for _ in range(ROUNDS):
                start = time.perf_counter_ns()
                for call in calls:
                    call()
                direct.append(time.perf_counter_ns() - start)
                start = time.perf_counter_ns()
                executor.run(feed)
                planned.append(time.perf_counter_ns() - start)
            found[str(length)] = (statistics.median(planned) - statistics.median(direct)) / 1e3 / length
            found[f"{length} direct"] = statistics.median(direct) / 1e3 / length
    return found


def _chain(length: int) -> bytes:
    nodes = [helper.make_node("Relu", [f"v{at}"], [f"v{at + 1}"]) for at in range(length)]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in ("v0", f"v{length}")]
    model = helper.make_model(helper.make_graph(nodes, "chain", ends[:1], ends[1:]))
    return bytes(model.SerializeToString())


def _manifest(operator: Any) -> Any:
    from opatlas.identity import Setting
    from opatlas.load import Manifest

    return Manifest(kind="c-abi", route="none", operator=operator.to_json(), setting=Setting().to_json())


def _say(line: str) -> None:
    print(line, flush=True)
