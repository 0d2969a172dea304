"""Profiles of real runs: by ONNX Runtime, by a session of a job's own, and by our executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from opatlas.graph.normal import ModelGraph
from opatlas.graph.profile import ModelProfile
from opatlas.plan.profiling import (
    node_times,
    profile_by_executor,
    profile_model,
    profile_of_session,
)
from tests.opatlas.plan.making import Kernels, executor


def of(kind: str, inputs: str, outputs: str, name: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), name=name, **attributes)


def value(name: str, shape: Any, element: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, element, shape)


def branch(node: Any) -> Any:
    return helper.make_graph([node], "branch", [], [value(node.output[0], [4])])


LOOP_BODY = helper.make_graph(
    [
        of("Add", "c x", "d", "grow"),
        of("ReduceSum", "d", "sum", "total", keepdims=0),
        of("Less", "sum ten", "low", "is_low"),
        helper.make_node(
            "If", ["low"], ["e"], name="either",
            then_branch=branch(of("Neg", "d", "t", "turned")),
            else_branch=branch(of("Abs", "d", "u", "kept")),
        ),
        of("Identity", "go", "on", "on"),
    ],
    "body",
    [value("turn", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("c", [4])],
    [value("on", [], TensorProto.BOOL), value("e", [4])],
)  # fmt: skip
DATA = helper.make_model(
    helper.make_graph(
        [
            of("Neg", "x", "n", "first"),
            helper.make_node("Loop", ["trips", "", "n"], ["r"], name="rounds", body=LOOP_BODY),
            of("Abs", "r", "y", "last"),
        ],
        "model",
        [value("x", [4]), value("trips", [], TensorProto.INT64)],
        [value("y", [4])],
        [numpy_helper.from_array(np.float32(10), "ten")],
    ),
    opset_imports=[helper.make_opsetid("", 17)],
    ir_version=8,
).SerializeToString()  # fmt: skip
GRAPH = ModelGraph(DATA)
LOOP, GROW, EITHER, TURNED, KEPT = (1,), (1, 0, 0), (1, 0, 3), (1, 0, 3, 0, 0), (1, 0, 3, 1, 0)


def feed(trips: int, x: float = 1.0) -> dict[str, np.ndarray]:
    return {"x": np.full(4, x, np.float32), "trips": np.array(trips)}


def taken(feeds: list[dict[str, np.ndarray]]) -> dict[Any, int]:
    """What these runs do, by hand: how often each node runs."""
    counts = {LOOP: len(feeds), GROW: 0, TURNED: 0, KEPT: 0}
    for one in feeds:
        c = -one["x"]
        for _ in range(int(one["trips"])):
            d = c + one["x"]
            counts[GROW] += 1
            counts[TURNED if d.sum() < 10 else KEPT] += 1
            c = -d if d.sum() < 10 else abs(d)
    return counts


FEEDS = [feed(3), feed(5, 4.0), feed(0), feed(7, 2.0)]


def assert_counted(seen: ModelProfile) -> None:
    assert seen.model == GRAPH.key and seen.runs == len(FEEDS)
    expected = taken(FEEDS)
    assert {at: seen.of(at).count for at in expected} == expected
    assert expected[TURNED] and expected[KEPT] and seen.of((0,)).count == seen.of((2,)).count == len(FEEDS)
    assert seen.of(EITHER).count == expected[GROW]


def test_onnx_runtime_counts_what_runs() -> None:
    seen = profile_model(GRAPH, FEEDS, 1, "v1")
    assert_counted(seen)
    assert (seen.version, seen.by) == ("v1", f"onnxruntime {ort.__version__}")
    loop, inside = seen.of(LOOP), [at for at in seen.nodes if at[:-2] == LOOP]
    assert loop.total_us is not None and loop.self_us is not None
    assert loop.self_us == max(loop.total_us - sum(seen.of(at).total_us or 0.0 for at in inside), 0.0)
    assert loop.total_per_run_us == loop.total_us / len(FEEDS)


def session_events(data: bytes, folder: Path) -> Any:
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "own")
    session = ort.InferenceSession(data, options)
    for one in FEEDS:
        session.run(None, one)
    return json.loads(Path(session.end_profiling()).read_text())


def test_a_jobs_own_session_is_read_by_the_names_of_its_nodes(tmp_path: Path) -> None:
    assert_counted(profile_of_session(GRAPH, session_events(DATA, tmp_path)))


def test_a_node_whose_name_another_has_too_is_unknown(tmp_path: Path) -> None:
    model = ModelGraph(DATA).model
    model.graph.node[1].attribute[0].g.node[0].name = "first"  # two of one graph ONNX Runtime refuses
    data = model.SerializeToString()
    seen = profile_of_session(ModelGraph(data), session_events(data, tmp_path))
    assert seen.of((0,)).count == seen.of(GROW).count == 0
    assert seen.of(EITHER).count == taken(FEEDS)[GROW]


def test_our_executor_counts_bodies_that_it_runs_itself() -> None:
    running = executor(GRAPH, Kernels(GRAPH))
    running.run(feed(9))  # which is no part of the profile
    seen = profile_by_executor(running, FEEDS, "v1")
    assert_counted(seen)
    assert (seen.by, seen.version) == ("executor", "v1")
    assert (seen.of((0,)).total_per_run_us or 0) > 0 and seen.of(LOOP).self_us is None
    assert seen.of(GROW).total_us is None
    running.close()


def test_nodes_of_a_region_are_counted_and_not_timed() -> None:
    whole = executor(GRAPH, Kernels(GRAPH, []))
    seen = profile_by_executor(whole, FEEDS)
    assert {at: (one.count, one.total_us) for at, one in seen.nodes.items()} == {
        (number,): (len(FEEDS), None) for number in range(3)
    }
    whole.close()


def test_convolutions_that_onnx_runtime_runs_in_blocks_are_told() -> None:
    """It names them by what they make, or by what the activation makes that it fused behind one."""
    weights = {
        name: np.random.default_rng(at).standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
        for at, name in enumerate(("w", "v"))
    }
    nodes = [
        of("Conv", "x w", "a", "first", pads=[1, 1, 1, 1]),
        of("Relu", "a", "b", "activation"),
        of("Conv", "b v", "c", "second", pads=[1, 1, 1, 1]),
        of("MaxPool", "c", "y", "pool", kernel_shape=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes, "model", [value("x", [1, 16, 8, 8])], [value("y", [1, 16, 7, 7])],
        [numpy_helper.from_array(one, name) for name, one in weights.items()],
    )  # fmt: skip
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = ModelGraph(data.SerializeToString())
    feeds = [{"x": np.ones((1, 16, 8, 8), np.float32)}] * 3
    seen = profile_model(model, feeds, 1)
    assert {at: seen.of((at,)).count for at in (0, 2, 3)} == {0: 3, 2: 3, 3: 3}
    assert {0, 2, 3} <= set(node_times(model, feeds[0], 1))
