"""Whole models: what ``opatlas.Session`` takes beside every framework that takes the model, after a real
service has explored their operators for a while; and what the executor itself costs.

``models``, by name: medians of one run in one line-up (``opatlas_ms``, ``onnxruntime_ms``, ``openvino_ms``,
``eager_ms``, ``compile_ms``, ``xla_ms``; null where ``refused`` says why), ``per_operator_ms`` (every kernel
that is known, whether it pays in place or not), ``best`` (the fastest framework) and ``ratio`` (to it, with
its interval, from a line-up of the two alone); where the session runs a framework's whole model, ``itself``
is that framework's column and ``own_ratio`` the ratio to it, likewise (else null); ``predicted_ms`` (said
before anything was timed in turns: :mod:`opatlas.plan.predicting`) and ``predicted_over_measured``,
``peak_mb`` between steps and ``per_operator_peak_mb``, beside what a run in ONNX Runtime takes
(:mod:`bench.models.peak`), ``chosen``, ``standings`` and ``max_error`` of the outputs against ONNX Runtime's.
``never_slower``: how many models' intervals reach 0.98, to the best framework and to the one that runs;
``faster``: how many lie above 1 where kernels run, since nobody is faster than itself.
``overhead_us_per_node``: a plan of N kernels that do
nothing, less N direct calls of them.

Modules of PyTorch (:mod:`bench.models.made_modules`) have the same figures of
``torch.compile(backend="opatlas")`` beside eager and ``torch.compile``, and ``cold_s`` and ``warm_s``, what
that took to compile.

The models: the open ONNX graphs of ONNX's wheel (those of OPATLAS_WORKLOADS among them), with seeded random
weights; an encoder and a decoder with a Loop that ends early (:mod:`bench.models.made_models`);
``MODELS=dir`` takes other ONNX files. ``BUDGET_S`` (1800) is for exploring, half of it, and in shares for the
models; loading frameworks comes on top, so that all of it ends within 45 minutes. A run that was cut off goes
on where it stopped.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from bench.conf import conf
from bench.contest.home import set_up
from bench.models.frameworks import COLUMN_OF, COLUMNS, Run, users
from bench.models.made_models import decoder, encoder
from bench.models.modules import MODULES, in_a_process
from bench.models.peak import onnxruntime_peak_mb
from bench.record import FOLDER, BenchRecord
from opatlas.graph.normal import ModelGraph
from opatlas.identity import default_setting, detect_target
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.plan import ByFramework, ModelPlan

if TYPE_CHECKING:
    from opatlas.session import Session

BUDGET_S = 1800.0
EXPLORING, COMPILING, TIMING = 0.5, 0.4, 0.2
"""Shares: of the budget; of a model's share of what is left, for ``torch.compile``, and for each line-up."""
BOUND = 0.98
"""Of the best framework's speed: whose interval reaches it is not slower."""
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
    modules = () if conf().models else MODULES
    explored = record.part("explored", lambda: explore(models, modules, home))
    share_s = (1 - EXPLORING) * (conf().budget_s or BUDGET_S) / max(len(models) + len(modules), 1)
    measured = {
        name: record.part(name, lambda data=data: measure(data, share_s)) for name, data in models.items()
    }
    measured |= {name: record.part(name, lambda name=name: measure_module(name, share_s)) for name in modules}
    counts = counted(list(measured.values()))
    record.finish({"overhead_us_per_node": overhead, "explored": explored, **counts, "models": measured})


def counted(measured: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """``never_slower`` and ``faster``, of how many models."""
    ratios = [[one["ratio"], one["own_ratio"] or one["ratio"]] for one in measured]
    return {
        "never_slower": sum(all(high >= BOUND for _, _, high in both) for both in ratios),
        "faster": sum(one["itself"] is None and one["ratio"][1] > 1 for one in measured),
        "of": len(measured),
    }


def read_models() -> dict[str, bytes]:
    """With seeded random weights: with equal ones every wrong plan passes."""
    from tuning.graph import SAMPLES, sample_model
    from tuning.graph.weights import randomise_weights

    if conf().models is None:
        return {name: sample_model(name) for name in SAMPLES} | {"encoder": encoder(), "decoder": decoder()}
    paths = sorted(conf().models.glob("*.onnx"))
    return {path.stem: randomise_weights(onnx.load(path)).SerializeToString() for path in paths}


def explore(models: Mapping[str, bytes], modules: Iterable[str], home: Path) -> dict[str, Any]:
    """As jobs would: each model and module is asked for, and one worker explores what is missed."""
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
        budget_s = EXPLORING * (conf().budget_s or BUDGET_S)
        course = Demo("models", list(distinct.values()), client, stack, budget_s, _say)
        course.wait_for_worker()
        course.ask()
        for name in modules:
            in_a_process("ask", name, stack.url, secret)
        course.explore()
        found = course.ask()
        told = {name: in_a_process("ask", name, stack.url, secret) for name in modules}
    operators = len(distinct) + sum(one["operators"] for one in told.values())
    hits = sum(map(bool, found)) + sum(one["known"] for one in told.values())
    return {"operators": operators, "hits": hits, "seconds": round(course.explored_s, 1)}


def measure_module(name: str, share_s: float) -> dict[str, Any]:
    """One module of PyTorch in turns with eager and ``torch.compile``; no other framework takes it."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.stack import Stack

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    with Stack(workers=0) as stack:
        return in_a_process("measure", name, stack.url, secret, TIMING * share_s)


def measure(data: bytes, share_s: float) -> dict[str, Any]:
    """One model in turns with its frameworks, with nothing else running but a web server."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.stack import Stack
    from opatlas.client import Client
    from opatlas.given_model import random_inputs
    from opatlas.plan.choosing import OTHERS
    from opatlas.session import Session

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    with tempfile.TemporaryDirectory() as folder, Stack(workers=0) as stack:
        threads = default_setting(detect_target()).threads
        graph = ModelGraph(data)
        feed = random_inputs(graph, 1)
        # First, so that what torch.compile made is there when the session asks for it.
        runs, refused = users(graph, feed, threads, COMPILING * share_s)
        with (
            Client(stack.url, secret, cache=Path(folder)) as client,
            Session(data, client=client, example=feed, frameworks=OTHERS, try_s=TIMING * share_s) as session,
        ):
            return _timed(session, feed, runs, refused, TIMING * share_s)


def _timed(
    session: Session,
    feed: Mapping[str, np.ndarray],
    runs: Mapping[str, Run],
    refused: Mapping[str, str],
    seconds: float,
) -> dict[str, Any]:
    from opatlas.plan.choosing import said_of
    from opatlas.plan.executor import Executor
    from opatlas.plan.making import with_kernels

    found, expected = session.run(None, feed), runs["onnxruntime"]()
    choices = session.look_up()
    plan = with_kernels(session.graph, choices, *session.place)
    every = Executor(session.graph, plan, session.load, threads=session.threads)
    ours = {"opatlas": lambda: session.run(None, feed), "per_operator": lambda: every.run(feed)}
    timed = line_up({**runs, **ours}, seconds)
    best = min((name for name in timed if name in runs), key=lambda name: timed[name].median_us)
    itself = _column_of(session.plan)
    pairs = {
        rival: line_up({rival: runs[rival], "opatlas": ours["opatlas"]}, seconds)["opatlas"]
        for rival in {best, itself} & set(runs)
    }
    pair = pairs[best]
    predicted_us = session.plan.predicted_us
    columns = ("opatlas", *COLUMNS, "per_operator")
    return {
        **{f"{name}_ms": timed[name].median_us / 1e3 if name in timed else None for name in columns},
        "refused": dict(refused),
        "best": best,
        "ratio": bounds(pair),
        "itself": itself,
        "own_ratio": bounds(pairs[itself]) if itself in pairs else None,
        "predicted_ms": predicted_us / 1e3 if predicted_us is not None else None,
        "predicted_over_measured": predicted_us / pair.median_us if predicted_us is not None else None,
        "peak_mb": session.peak_bytes / 1e6,
        "per_operator_peak_mb": every.peak_bytes / 1e6,
        "onnxruntime_peak_mb": onnxruntime_peak_mb(session.graph, session.threads),
        "nodes": len(session.graph.nodes),
        "known": len(choices),
        "kernels": len(session.plan.kernels),
        "chosen": said_of(session.plan),
        "standings": [asdict(one) for one in session.standings],
        "max_error": max(_error(one, other) for one, other in zip(found, expected, strict=True)),
    }


def _column_of(plan: ModelPlan) -> str | None:
    """Of the framework that runs the whole model; None where kernels take part."""
    [*others, step] = plan.steps
    return COLUMN_OF[step.by.framework] if not others and isinstance(step.by, ByFramework) else None


def bounds(one: TimedInTurns) -> list[float]:
    return [one.ratios.ratio, one.ratios.low, one.ratios.high]


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference, as a share of the largest value; endless where the shapes differ."""
    if found.shape != expected.shape:
        return math.inf
    return float(np.max(np.abs(found - expected), initial=0) / (np.max(np.abs(expected), initial=0) or 1.0))


def measure_overhead() -> dict[str, float]:
    """Microseconds for each node, by how many there are; kernels that do nothing over one element."""
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
