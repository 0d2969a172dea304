"""What `make bench ONLY=graph` tells of a model: plans of the catalogue's parts beside no plan."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from bench import graph as bench_graph
from bench.graph.one_by_one import one_by_one
from bench.graph.plans import OURS, BenchModel
from bench.models.frameworks import users
from bench.models.made_models import decoder, encoder
from opatlas.errors import LoadError
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.plan.checking import check_plan
from opatlas.plan.exactness import error_of, in_float64
from tests.installed import needs
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.plan.making import PLACE, Kernels, assert_same, executor, wanted
from tests.opatlas.session.test_session import adding

needs("openvino", "jax")


def small_encoder() -> bytes:
    return encoder(layers=1, hidden=32, heads=2, length=8)


def test_without_a_plan_each_node_runs_by_itself() -> None:
    graph = ModelGraph(small_encoder())
    kernels = Kernels(graph, [0, 2])
    plan = one_by_one(graph, kernels.candidates, PLACE)
    check_plan(plan, graph, *PLACE)
    assert [step.nodes for step in plan.steps] == [(at,) for at in range(len(graph.nodes))]
    assert len(plan.kernels) == 2
    feed = random_inputs(graph, 1)
    running = executor(graph, kernels, plan)
    assert_same(running.run(feed), wanted(small_encoder(), feed))
    running.close()


def test_the_reference_is_float64_throughout_and_control_flow_has_none() -> None:
    graph = ModelGraph(small_encoder())
    feed = random_inputs(graph, 1)
    [exact] = in_float64(graph, feed)
    assert exact.dtype == np.float64
    assert 0 < error_of(wanted(small_encoder(), feed), [exact]) < 1e-5
    assert error_of([exact[:, :1]], [exact]) == error_of([exact * np.nan], [exact]) == float("inf")
    loop = ModelGraph(decoder(hidden=16, vocabulary=32, most=4))
    with pytest.raises(LoadError):
        in_float64(loop, random_inputs(loop, 1))


class RunsClock:
    """Of a line-up whose runs take what they say, however busy the host is."""

    def __init__(self) -> None:
        self._ns = 0

    def run(self, ms: float) -> None:
        self._ns += round(1e6 * ms)

    def perf_counter_ns(self) -> int:
        return self._ns

    def perf_counter(self) -> float:
        return self._ns / 1e9


def test_a_gain_is_told_of_the_two_that_it_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunsClock()
    monkeypatch.setattr("opatlas.plan.line_up.time", clock)
    slow = {"unplanned": partial(clock.run, 5.0), "plan": partial(clock.run, 1.25)}
    ms, gain = bench_graph._pair(slow, "unplanned", "plan", 0.0)
    assert ms == pytest.approx(5.0) and gain == pytest.approx([4.0, 4.0, 4.0])
    assert bench_graph._pair(slow, "simplified", "plan", 0.0) == (None, None)


def test_the_summary_counts_what_was_timed() -> None:
    none = dict.fromkeys((f"{name}_ms" for name in bench_graph.COLUMNS), None)
    one = {
        **none,
        "onnxruntime_ms": 3.0,
        "openvino_ms": 1.0,
        "plan_ms": 2.0,
        "gain": {"all": [4.0, 3.0, 5.0]},
    }
    one["by_kernels"] = 5
    other = {**none, "onnxruntime_ms": 3.0, "plan_ms": 2.0, "by_kernels": 1, "gain": {"all": [1.0, 0.9, 1.1]}}
    never = {**none, "onnxruntime_ms": 3.0, "plan_ms": None, "by_kernels": 0, "gain": {"all": None}}
    left = {**none, "onnxruntime_ms": 3.0, "plan_ms": 3.0, "by_kernels": 0, "gain": {"all": [9.0, 8, 9]}}
    found = bench_graph.summary({"one": one, "other": other, "never": never, "left": left})
    assert found == {"against_unplanned": 2.0, "ahead_of_best": 1, "planned": 2, "of": 4}


@pytest.mark.django_db(transaction=True)
def test_a_model_is_timed_by_its_parts_beside_its_frameworks(publish_add: Any, job: Any) -> None:
    publish_add()
    client = job(accepts={"kinds": ["c-abi"]})
    one = BenchModel.of(adding(), 1)
    assert one.profile.borders is not None
    # ONNX Runtime takes 33 ms for each node in place, so that kernels of 10 µs pay.
    one = replace(one, profile=one.profile.in_place(99e3, one.profile.borders))
    runs, refused = users(one.graph, one.feed, 1, compile_s=0.01)
    found = bench_graph.measure(one, client, runs, refused, 0.0)
    assert json.loads(json.dumps(found)) == found
    assert all(found[f"{name}_ms"] > 0 for name in (*OURS, "onnxruntime"))
    assert (found["nodes"], found["by_kernels"], found["fused_operators"]) == (3, 2, 0)
    assert found["max_error"] <= 2 * found["onnxruntime_error"] < 1e-5
    assert found["predicted_ms"] > 0 and set(found["gain"]) == {name for name, _, _ in bench_graph.STEPS}
