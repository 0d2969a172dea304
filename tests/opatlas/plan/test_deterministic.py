"""The same inputs give the same bytes, whatever ran before: by kernels, regions and streams together."""

from __future__ import annotations

import hashlib

import numpy as np
from onnx import helper

from opatlas.client import Client
from opatlas.graph.normal import ModelGraph
from opatlas.plan.executor import Executor
from opatlas.plan.plan import ByFramework, ByKernel
from opatlas.session import Session
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.making import assert_same, wanted
from tests.opatlas.plan.test_concurrent import FEED as OTHER_FEED
from tests.opatlas.plan.test_concurrent import streamed, wide
from tests.tuning.graph.making import model

RUNS = 40
ROWS, INNER = 96, 384


def summing() -> bytes:
    """Long sums of floats, whose order would show, in chains beside each other: what the compiled kernels do
    (Neg, Abs, Add) between what the default does."""
    random, nodes, weights = np.random.default_rng(3), [], {}
    for way in range(3):
        values = random.standard_normal((INNER, INNER)) / np.sqrt(INNER)
        weights[f"w{way}"] = values.astype(np.float32)
        last = "x"
        for at, kind in enumerate(("MatMul", "Neg", "Softmax", "Abs", "Add")):
            more = {"MatMul": [f"w{way}"], "Add": ["x"]}.get(kind, [])
            nodes.append(helper.make_node(kind, [last, *more], [f"v{way}_{at}"]))
            last = f"v{way}_{at}"
    nodes.append(helper.make_node("Sum", [f"v{way}_4" for way in range(3)], ["s"]))
    nodes.append(helper.make_node("ReduceSum", ["s"], ["y"]))
    made = model(nodes, {"x": (ROWS, INNER)}, ["s", "y"], weights)
    made.ir_version = 10
    return bytes(made.SerializeToString())


def drawn(seed: int) -> dict[str, np.ndarray]:
    values = np.random.default_rng(seed).standard_normal((ROWS, INNER)) * 10.0 ** (seed % 4)
    return {"x": values.astype(np.float32)}


def said(outputs: list[np.ndarray]) -> list[str]:
    return [hashlib.sha256(one.tobytes()).hexdigest() for one in outputs]


def test_the_same_inputs_give_the_same_bytes_whatever_ran_between() -> None:
    data = summing()
    graph = ModelGraph(data)
    kernels = CKernels(graph)
    plan = streamed(graph, kernels, 2)
    by = [type(step.by) for step in plan.steps]
    assert plan.stream_count == 2 and by.count(ByKernel) >= 6 and by.count(ByFramework) >= 4
    running = Executor(graph, plan, kernels.load, threads=4)
    feed = drawn(0)
    first = running.run(feed)
    assert_same(first, wanted(data, feed))
    expected = said(first)
    with Client(offline=True, cache=False) as client:
        other = Session(wide(), client=client, frameworks=[], try_s=0.1)
        for number in range(RUNS):
            if number % 2:
                running.run(drawn(number))
            other.run(None, OTHER_FEED)
            assert said(running.run(feed)) == expected
    running.run(drawn(1))
    assert said(first) == expected, "what was given is the caller's own"
    anew = Executor(graph, plan, kernels.load, threads=4)
    assert [said(anew.run(feed)) for _ in range(3)] == [expected] * 3
    for one in (running, anew):
        assert not one.in_one_stream and not one.fallen_back and one.artifacts
        one.close()
