"""Plans of whole models, made of the catalogue's own parts, beside every framework and beside no plan.

``models``, by file stem, in ms of one run at one thread count, the plan in one line-up with the frameworks,
its stages each beside the next (all at once they need more memory than the machine has: each holds the
model's weights again):

- ``unplanned_ms``: the model as it is given, each node by itself: by its compiled kernel where that took less
  than ONNX Runtime did for the operator, else by ONNX Runtime (:mod:`bench.graph.one_by_one`);
- ``simplified_ms``: the same of the model's simpler form; ``kernels_ms``: a plan of that by the pass
  ``kernels``, where nodes without a kernel run in ONNX Runtime together; ``fused_ms``: by ``kernels`` and
  ``fusion``; ``plan_ms``: by these and ``layout``;
- ``onnxruntime_ms``, ``openvino_ms``, ``eager_ms``, ``compile_ms``, ``xla_ms``: the whole model as users of
  each run it (null: ``refused`` says why);
- ``gain``: each pass's time before ÷ after (``simplification``, ``kernels``, ``fusion``, ``layout``) and
  ``all`` of them, each with its interval, from a line-up of the two alone; ``unplanned_ms`` is from the last
  of these, ``simplified_ms``, ``kernels_ms`` and ``fused_ms`` are from that of the pass behind each;
- ``by_kernels``, ``nodes``: nodes of the simpler form that kernels run, of how many: where the first is 0,
  the plan is ONNX Runtime's; ``fused_operators``: steps of several of the model's nodes; ``channels_last``:
  nodes that run so, and ``reorders``: what brings values from one layout into the other (docs/plans.md);
- ``predicted_ms``: said before anything ran in turns (:mod:`opatlas.plan.predicting`);
- ``max_error``, ``onnxruntime_error``: of the plan and of ONNX Runtime against the model in float64 by
  PyTorch, as a share of the largest value (null where PyTorch does not express the model);
- ``asked``, ``asked_s`` and the like: :class:`bench.graph.exploring.AskedForPlan`. Models are explored one
  after the other, so that what a later one shares with an earlier one is not asked for again.

Over the ``planned`` models, of whose nodes kernels run some: ``against_unplanned``, the geometric mean of
``unplanned_ms`` ÷ ``plan_ms``, and ``ahead_of_best``, in how many of them the plan takes less than the best
framework. Models are those of :mod:`bench.models`, or
``MODELS=dir``; ``BUDGET_S`` (2,700) is for exploring (three quarters) and for ``torch.compile`` and line-ups,
in equal shares for the models; loading comes on top. A run that was cut off goes on where it stopped.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bench.conf import conf
from bench.contest.home import set_up
from bench.graph.plans import BenchModel, ModelPlans
from bench.models import bounds, read_models
from bench.models.frameworks import COLUMNS, Run, users
from bench.record import FOLDER, BenchRecord
from opatlas.errors import OpatlasError, first_line
from opatlas.identity import default_setting, detect_target
from opatlas.plan.exactness import error_of, in_float64
from opatlas.plan.line_up import TimedInTurns, line_up
from opatlas.plan.plan import KERNEL_KINDS

BUDGET_S = 2700.0
EXPLORING, COMPILING, TIMING = 0.75, 0.08, 0.02
"""Shares of a model's share of the budget: for exploring, for ``torch.compile``, and for each line-up."""
STEPS = (
    ("simplification", "unplanned", "simplified"),
    ("kernels", "simplified", "kernels"),
    ("fusion", "kernels", "fused"),
    ("layout", "fused", "plan"),
    ("all", "unplanned", "plan"),
)
"""Passes, with what they lie between."""
_Pair = tuple[float | None, list[float] | None]


def main() -> None:
    record = BenchRecord("graph")
    models = read_models()
    home = set_up(FOLDER / "graph", new=not record.parts)
    share_s = (conf().budget_s or BUDGET_S) / max(len(models), 1)
    asked = {
        name: record.part(f"{name} asked", _exploring(data, share_s, home)) for name, data in models.items()
    }
    measured = {name: record.part(name, _measuring(data, share_s)) for name, data in models.items()}
    found = {name: {**one, **asked[name]} for name, one in measured.items()}
    record.finish({**summary(found), "models": found})


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Over the models whose plan has parts of the catalogue: any other plan is ONNX Runtime's."""
    timed = [one for one in found.values() if one["plan_ms"] is not None and one["by_kernels"]]
    gains = [one["gain"]["all"][0] for one in timed if one["gain"]["all"] is not None]
    best = [min(one[f"{name}_ms"] for name in COLUMNS if one[f"{name}_ms"] is not None) for one in timed]
    return {
        "against_unplanned": statistics.geometric_mean(gains) if gains else None,
        "ahead_of_best": sum(one["plan_ms"] < other for one, other in zip(timed, best, strict=True)),
        "planned": len(timed),
        "of": len(found),
    }


def _exploring(data: bytes, share_s: float, home: Path) -> Callable[[], dict[str, Any]]:
    from bench.graph.exploring import explore

    def explored() -> dict[str, Any]:
        target = detect_target()
        setting = default_setting(target)
        one = BenchModel.of(data, setting.threads)
        graphs, share = [one.graph, one.simpler], EXPLORING * share_s
        return asdict(explore(graphs, target, setting, share, home, _say, one.profile))

    return explored


def _measuring(data: bytes, share_s: float) -> Callable[[], dict[str, Any]]:
    def measured() -> dict[str, Any]:
        from catalog.people.keys import create_api_key
        from catalog.registry import default_organisation
        from dashboard.run.stack import Stack
        from opatlas.client import Client

        _, secret = create_api_key(default_organisation(), "graph", ["lookup"])
        threads = default_setting(detect_target()).threads
        one = BenchModel.of(data, threads)
        with (
            tempfile.TemporaryDirectory() as folder,
            Stack(workers=0) as stack,  # before JAX has threads: a fork of them hangs
            Client(stack.url, secret, cache=Path(folder), accepts={"kinds": list(KERNEL_KINDS)}) as client,
        ):
            runs, refused = users(one.graph, one.feed, threads, COMPILING * share_s)
            return measure(one, client, runs, refused, TIMING * share_s)

    return measured


def measure(
    one: BenchModel, client: Any, runs: dict[str, Run], refused: Mapping[str, str], seconds: float
) -> dict[str, Any]:
    """The plan in turns with the frameworks of ``runs``, then each pass's two in turns, with nothing else
    running but a web server. ``runs`` is emptied: each of all these holds the model's weights again."""
    plans, exact = ModelPlans(one, client), _exact(one)
    with plans.running("plan") as ours:
        timed = line_up({**runs, **ours}, seconds)
        errors = {
            name: error_of(run(), exact)
            for name, run in {"onnxruntime": runs["onnxruntime"], **ours}.items()
            if exact
        }
    runs.clear()
    pairs = dict[str, _Pair]()
    for name, before, after in STEPS:
        with plans.running(before, after) as ours:
            pairs[name] = _pair(ours, before, after, seconds)
    for name, *both in STEPS:
        if not plans.refused.keys().isdisjoint(both):
            pairs[name] = (None, None)
    right = "plan" not in plans.refused
    return {
        **{f"{before}_ms": pairs[name][0] for name, before, _ in STEPS},
        "plan_ms": _ms(timed.get("plan")) if right else None,
        **{f"{name}_ms": _ms(timed.get(name)) for name in COLUMNS},
        "refused": {**refused, **plans.refused},
        "gain": {name: gain for name, (_, gain) in pairs.items()},
        **plans.figures(),
        "max_error": errors.get("plan") if right else None,
        "onnxruntime_error": errors.get("onnxruntime"),
    }


def _pair(ours: Mapping[str, Run], before: str, after: str, seconds: float) -> _Pair:
    """What the model took before in ms, and that ÷ what it took after with its interval. Alone, since who is
    far behind in a larger line-up is soon left out of it."""
    if before not in ours or after not in ours:
        return None, None
    timed = line_up({before: ours[before], after: ours[after]}, seconds)
    return _ms(timed[before]), bounds(timed[after]) if after in timed else None


def _exact(one: BenchModel) -> list[np.ndarray] | None:
    try:
        return in_float64(one.graph, one.feed)
    except OpatlasError as error:
        print(f"  no float64 reference: {first_line(error)}", flush=True)
        return None


def _ms(one: TimedInTurns | None) -> float | None:
    return None if one is None else one.median_us / 1e3


def _say(line: str) -> None:
    print(line, flush=True)
