"""Whole models: what ``opatlas.Session`` takes beside every framework that takes the model, after a real
service has explored the operators in which they lose most (:mod:`bench.models.exploring`); and what the
executor itself costs.

``models``, by name: medians of one run in one line-up (``opatlas_ms``, ``onnxruntime_ms``, ``openvino_ms``,
``eager_ms``, ``compile_ms``, ``xla_ms``; null where ``refused`` says why), ``per_operator_ms`` (every kernel
that is known, whether it pays in place or not), ``best`` (the fastest framework) and ``ratio`` (to it, with
its interval, from a line-up of the two alone); where the session runs a framework's whole model, ``itself``
is that framework's column and ``own_ratio`` the ratio to it, likewise (else null); ``predicted_ms`` (said
before anything was timed in turns: :mod:`opatlas.plan.predicting`) and ``predicted_over_measured``,
``peak_mb`` between steps and ``per_operator_peak_mb``, beside what a run in ONNX Runtime takes
(:mod:`bench.models.peak`), ``chosen``, ``standings`` (the plans with kernels that were tried are among them)
and ``max_error`` of the outputs against ONNX Runtime's.
``never_slower``: how many models' intervals reach 0.98, to the best framework and to the one that runs;
``faster``: how many lie above 1 where kernels run, since nobody is faster than itself; ``predicted``: of how
many something was predicted, and how many of these took within 10 % of it; ``tried``: in how many a plan with
kernels took turns with the frameworks. ``overhead_us_per_node``: a plan of N kernels that do nothing, less N
direct calls of them.

Modules of PyTorch (:mod:`bench.models.made_modules`) have the same figures of
``torch.compile(backend="opatlas")`` beside eager and ``torch.compile``, and ``cold_s`` and ``warm_s``, what
that took to compile.

The models: the open ONNX graphs of ONNX's wheel (those of OPATLAS_WORKLOADS among them), with seeded random
weights; an encoder and a decoder with a Loop that ends early (:mod:`bench.models.made_models`);
``MODELS=dir`` takes other ONNX files, as :mod:`bench.models.todays_models` writes, and keeps their figures
apart, in ``models-DIR.json``. ``BUDGET_S`` (1500) is for exploring, half of it, and in shares for the
models; ``torch.compile`` and loading frameworks come on top, so that all of it ends within 45 minutes. A run
that was cut off goes on where it stopped: in the middle of exploring with the seconds that are left of it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper

from bench.conf import conf
from bench.contest.home import set_up
from bench.models.exploring import OperatorInPlace, SpentTime, explore, timed_operators, worth_exploring
from bench.models.frameworks import COLUMN_OF, COLUMNS, Run, users
from bench.models.made_models import decoder, encoder
from bench.models.modules import MODULES, in_a_process
from bench.models.peak import onnxruntime_peak_mb
from bench.record import FOLDER, BenchRecord
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator, default_setting, detect_target
from opatlas.plan.exactness import error_of
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.plan import KERNEL_KINDS, ByFramework, ModelPlan
from opatlas.session.forms import OtherForms

if TYPE_CHECKING:
    from opatlas.session import Session

BUDGET_S = 1500.0
EXPLORING, TIMING = 0.5, 0.2
"""Shares: of the budget; of a model's share of what is left, for each line-up."""
COMPILED_NODES, COMPILING_S = 100, 90.0
"""``torch.compile`` is tried with models of so many nodes, and has so long; larger ones take it minutes."""
BOUND = 0.98
"""Of the best framework's speed: whose interval reaches it is not slower."""
CLOSE = 0.1
"""How far off a prediction may be, as a share of what was measured."""
LENGTHS = (10, 100, 1000)
ROUNDS = 200
NOTHING = """
#include "opatlas_abi.h"
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) { return 0; }
"""


def main() -> None:
    name_of_all = f"models-{folder.resolve().name}" if (folder := conf().models) else "models"
    record = BenchRecord(name_of_all)
    overhead = record.part("overhead", measure_overhead)
    models, modules = read_models(), () if conf().models else MODULES
    budget_s = conf().budget_s or BUDGET_S
    chosen = record.part("chosen", lambda: choose_operators(models, modules, EXPLORING * budget_s))
    home = set_up(FOLDER / name_of_all, new="exploring_s" not in record.parts)
    explored = record.part("explored", lambda: _explored(record, chosen, EXPLORING * budget_s, home))
    line_up_s = TIMING * (1 - EXPLORING) * budget_s / max(len(models) + len(modules), 1)
    measured: dict[str, Any] = {}
    for name in (*models, *modules):
        data = models.get(name)
        measured[name] = record.part(
            name,
            lambda name=name, data=data: _with_seconds(
                lambda: measure(data, line_up_s) if data else measure_module(name, line_up_s)
            ),
        )
    figures = {"overhead_us_per_node": overhead, "explored": explored, **counted(list(measured.values()))}
    record.finish({**figures, "models": measured}, [*figures])
    for name, found in measured.items():
        _say(row_of(name, found))


def row_of(name: str, found: Mapping[str, Any]) -> str:
    """A model's figures as people read them."""
    ratio, low, high = found["ratio"]
    foretold = found.get("predicted_over_measured")
    return (
        f"{name:20} {found['opatlas_ms']:8.2f} ms  {found['best']} ÷ it {ratio:.3f} ({low:.3f}–{high:.3f})"
        f"{f'  predicted {foretold:.2f}' if foretold else ''}  {found['chosen']}"
    )


def counted(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """``never_slower``, ``faster``, ``predicted`` and ``tried``, of how many models."""
    ratios = [[one["ratio"], one["own_ratio"] or one["ratio"]] for one in measured]
    foretold = [share for one in measured if (share := one.get("predicted_over_measured")) is not None]
    return {
        "never_slower": sum(all(high >= BOUND for _, _, high in both) for both in ratios),
        "faster": sum(one["itself"] is None and one["ratio"][1] > 1 for one in measured),
        "predicted": {"within": sum(abs(share - 1) <= CLOSE for share in foretold), "of": len(foretold)},
        "tried": sum(any("kernels" in row["said"] for row in one["standings"]) for one in measured),
        "of": len(measured),
    }


def choose_operators(
    models: Mapping[str, bytes], modules: Sequence[str], seconds: float
) -> list[dict[str, Any]]:
    """Those that are explored, as JSON."""
    threads = default_setting(detect_target()).threads
    timed = []
    for data in models.values():
        graph = ModelGraph(data)
        feed = random_inputs(graph, 1)
        timed.append(timed_operators(OtherForms(graph, None, feed, threads).folded(), feed, threads))
    for name in modules:
        rows = in_a_process("operators", name)["operators"]
        timed.append(
            [OperatorInPlace(Operator.from_json(row["operator"]), row["us"], row["calls"]) for row in rows]
        )
    return [operator.to_json() for operator in worth_exploring(timed, seconds)]


def _explored(record: BenchRecord, chosen: Sequence[Any], seconds: float, home: Path) -> dict[str, Any]:
    """In the seconds that an earlier run which was cut off has left."""
    before_s = record.parts.get("exploring_s", 0.0)
    record.keep("exploring_s", before_s)
    spent = SpentTime(before_s, lambda spent_s: record.keep("exploring_s", spent_s))
    operators = [Operator.from_json(one) for one in chosen]
    found = explore(operators, max(seconds - before_s, 1.0), home, spent.say)
    return found | {"seconds": record.parts["exploring_s"]}


def _with_seconds(measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    start = time.monotonic()
    return measured() | {"seconds": round(time.monotonic() - start, 1)}


def read_models() -> dict[str, bytes]:
    """With seeded random weights: with equal ones every wrong plan passes."""
    from tuning.graph import SAMPLES, sample_model
    from tuning.graph.weights import randomise_weights

    if conf().models is None:
        return {name: sample_model(name) for name in SAMPLES} | {"encoder": encoder(), "decoder": decoder()}
    paths = sorted(conf().models.glob("*.onnx"))
    return {path.stem: randomise_weights(onnx.load(path)).SerializeToString() for path in paths}


def measure_module(name: str, seconds: float) -> dict[str, Any]:
    """One module of PyTorch in turns with eager and ``torch.compile``; no other framework takes it."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.stack import Stack

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    with Stack(workers=0) as stack:
        return in_a_process("measure", name, stack.url, secret, seconds)


def measure(data: bytes, seconds: float) -> dict[str, Any]:
    """One model in turns with its frameworks, with nothing else running but a web server; so many seconds for
    each line-up."""
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from dashboard.run.stack import Stack
    from opatlas.client import Client
    from opatlas.plan.choosing import OTHERS
    from opatlas.session import Session

    _, secret = create_api_key(default_organisation(), "models", ["lookup"])
    accepts = {"kinds": list(KERNEL_KINDS)}
    with tempfile.TemporaryDirectory() as folder, Stack(workers=0) as stack:
        threads = default_setting(detect_target()).threads
        graph = ModelGraph(data)
        feed = random_inputs(graph, 1)
        compile_s = COMPILING_S if len(graph.nodes) <= COMPILED_NODES else 0.0
        # First, so that what torch.compile made is there when the session asks for it; whom a user could not
        # run the model by, a session cannot either.
        runs, refused = users(graph, feed, threads, compile_s)
        tried = [one for one in OTHERS if COLUMN_OF[one] in runs]
        with (
            Client(stack.url, secret, cache=Path(folder), accepts=accepts) as client,
            Session(data, client=client, example=feed, frameworks=tried, try_s=seconds) as session,
        ):
            return _timed(session, feed, runs, refused, seconds)


def _timed(
    session: Session,
    feed: Mapping[str, np.ndarray],
    runs: Mapping[str, Run],
    refused: Mapping[str, str],
    seconds: float,
) -> dict[str, Any]:
    from opatlas.plan.executor import Executor
    from opatlas.plan.making import with_kernels
    from opatlas.plan.said import said_of

    found, expected = session.run(None, feed), runs["onnxruntime"]()
    choices = session.kernels.choices
    plan = with_kernels(session.graph, choices, *session.place)
    every = Executor(session.graph, plan, session.kernels.load, threads=session.threads)
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
        "max_error": error_of(found, expected),
    }


def _column_of(plan: ModelPlan) -> str | None:
    """Of the framework that runs the whole model; None where kernels take part."""
    [*others, step] = plan.steps
    return COLUMN_OF[step.by.framework] if not others and isinstance(step.by, ByFramework) else None


def bounds(one: TimedInTurns) -> list[float]:
    return [one.ratios.ratio, one.ratios.low, one.ratios.high]


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
