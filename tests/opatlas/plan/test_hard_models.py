"""Models that ONNX Runtime runs and that are hard to take apart: each gives what it gives there, by kernels
wherever there can be one, and by a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import opatlas
from opatlas.client import Client
from opatlas.errors import CallerError, InvalidModel
from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan.choosing import choose
from opatlas.plan.executor import Executor
from opatlas.plan.profiling import node_times
from tests.opatlas.plan.making import PLACE, Kernels, assert_same, executor, planned, wanted

F, X4 = TensorProto.FLOAT, np.array([1, -2, 3, -4], np.float32)
Feed = Mapping[str, Any]


def of(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def tensor(name: str, shape: Any = (4,), element: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def build(
    nodes: list[onnx.NodeProto], inputs: list[Any], outputs: str, weights: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> bytes:  # fmt: skip
    graph = helper.make_graph(
        nodes, "hard", inputs,
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    return bytes(made.SerializeToString())


def branch(kind: str, out: str, weight: float | None = None, reads: str = "a") -> onnx.GraphProto:
    weights = [] if weight is None else [numpy_helper.from_array(np.full(4, weight, np.float32), "w")]
    inputs = reads if weight is None else f"{reads} w"
    return helper.make_graph([of(kind, inputs, out)], "branch", [], [tensor(out)], weights)


def chosen(condition: str, out: str, then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    return of("If", condition, out, then_branch=then, else_branch=other)


BRANCHES = (
    [
        of("Relu", "x", "a"),
        chosen("c", "p", branch("Add", "t", 1), branch("Add", "t", 2)),
        chosen("c", "q", branch("Add", "t", 10), branch("Add", "t", 20)),
        of("Sub", "p q", "y"),
    ],
    [tensor("x")], "y", {"c": True},
)  # fmt: skip

MODELS: dict[str, tuple[tuple[Any, ...], Feed]] = {
    "two branches whose names are the same": (BRANCHES, {"x": X4}),
    "a branch's output named as the If's": (
        ([of("Relu", "x", "a"), chosen("c", "y", branch("Neg", "y"), branch("Abs", "y"))],
         [tensor("x")], "y", {"c": True}),
        {"x": X4},
    ),
    "a branch in its place beside one that stays": (
        ([of("Relu", "x", "a"), chosen("c", "p", branch("Neg", "t"), branch("Abs", "t")),
          of("ReduceSum", "p", "s", keepdims=0), of("Less", "s z", "d"),
          chosen("d", "q", branch("Exp", "t"), branch("Abs", "t", reads="p")),
          of("Relu", "q", "y")],
         [tensor("x")], "y", {"c": True, "z": np.float32(0)}),
        {"x": X4},
    ),
    "the values of a TopK": (
        ([of("Relu", "x", "a"), of("TopK", "a k", "y i")], [tensor("x")], "y", {"k": [2]}), {"x": X4}
    ),
    "one output of three": (
        ([of("Relu", "x", "a"), of("DynamicQuantizeLinear", "a", "y s z")], [tensor("x")], "y"), {"x": X4}
    ),
    "another shape than ONNX infers": (
        ([of("Relu", "x", "a"), of("MaxPool", "a", "b", kernel_shape=[3], strides=[4], ceil_mode=1),
          of("Neg", "b", "y")], [tensor("x", (1, 2, 8))], "y"),
        {"x": np.arange(16, dtype=np.float32).reshape(1, 2, 8)},
    ),
    "a sequence between": (
        ([of("Relu", "x", "a"), of("SequenceEmpty", "", "s"), of("SequenceInsert", "s a", "t"),
          of("ConcatFromSequence", "t", "b", axis=0), of("Relu", "b", "y")], [tensor("x")], "y"),
        {"x": X4},
    ),
    "a sequence as output": (
        ([of("Relu", "x", "a"), of("SplitToSequence", "a", "y", axis=0, keepdims=1)], [tensor("x")], "y"),
        {"x": X4},
    ),
    "a constant whose shape nobody can tell": (
        ([of("Relu", "x", "a"), of("NonZero", "m", "n"), of("Cast", "n", "f", to=F),
          of("ReduceSum", "f", "r", keepdims=0), of("Add", "a r", "y")],
         [tensor("x")], "y", {"m": np.ones(5000, bool)}),
        {"x": X4},
    ),
    "a NaN that is folded": (
        ([of("ReduceMax", "w", "m", keepdims=0), of("Relu", "x", "a"), of("Add", "a m", "y")],
         [tensor("x")], "y", {"w": np.array([1, np.nan], np.float32)}),
        {"x": X4},
    ),
    "an input that nobody reads": (
        ([of("Relu", "x", "y")], [tensor("x"), tensor("u")], "y"), {"x": X4, "u": X4}
    ),
    "an input of which only the shape is read": (
        ([of("Shape", "u", "s"), of("Relu", "x", "a"), of("Reshape", "a s", "y")],
         [tensor("x"), tensor("u", (2, 2))], "y"),
        {"x": X4, "u": X4.reshape(2, 2)},
    ),
    "an output twice, an input and a constant as outputs": (
        ([of("Relu", "x", "a")], [tensor("x")], "a x w a", {"w": X4}), {"x": X4}
    ),
    "nothing in it": (
        ([of("Relu", "x", "y")], [tensor("x", (0, 3))], "y"), {"x": np.zeros((0, 3), np.float32)}
    ),
    "numbers alone": (
        ([of("Relu", "x", "a"), of("Neg", "a", "y")], [tensor("x", ())], "y"), {"x": np.array(3, np.float32)}
    ),
    "half precision and whole numbers": (
        ([of("Relu", "x", "a"), of("Cast", "a", "b", to=TensorProto.INT32), of("Add", "b n", "y")],
         [tensor("x", (4,), TensorProto.FLOAT16)], "y", {"n": np.array([1, 2, 3, 4], np.int32)}),
        {"x": X4.astype(np.float16)},
    ),
    "strings": (
        ([of("Relu", "x", "a"), of("Cast", "a", "s", to=TensorProto.STRING), of("Cast", "s", "b", to=F),
          of("Neg", "b", "y")], [tensor("x")], "y s"),
        {"x": X4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_by_kernels_it_gives_what_onnx_runtime_gives(name: str) -> None:
    made, feed = MODELS[name]
    data = build(*made)
    graph = ModelGraph(data)
    kernels = Kernels(graph)
    running = executor(graph, kernels)
    for _ in range(2):
        _same(running.run(feed), wanted(data, feed))
    running.close()
    with pytest.raises(CallerError, match="was closed"):
        running.run(feed)
    found = choose(
        graph,
        kernels.candidates,
        PLACE,
        lambda plan: Executor(graph, plan, kernels.load, threads=1),
        feed,
        1,
        0.0,
    )
    _same(found.executor.run(feed), wanted(data, feed))


@pytest.mark.parametrize("name", MODELS)
def test_without_kernels_so_does_a_session(name: str, tmp_path: Path) -> None:
    made, feed = MODELS[name]
    data = build(*made)
    client = Client(offline=True, cache=tmp_path)
    with client, opatlas.Session(data, client=client) as session:
        _same(session.run([], feed), wanted(data, feed))
        session.breakdown(feed)
        theirs = ort.InferenceSession(data)
        assert [(one.name, one.type) for one in session.get_inputs()] == [
            (one.name, one.type) for one in theirs.get_inputs()
        ]


def _same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(other)
        if isinstance(other, list):
            _same(one, other)
        elif other.dtype.kind == "O":
            assert one.tolist() == other.tolist()
        else:
            assert_same([one], [other])


def test_a_constant_that_is_an_input_too_may_be_given() -> None:
    data = build([of("Add", "x w", "a"), of("Relu", "a", "y")], [tensor("x"), tensor("w")], "y", {"w": X4})
    graph = ModelGraph(data)
    running = executor(graph, Kernels(graph))
    for feed in ({"x": X4}, {"x": X4, "w": 2 * X4}, {"x": X4}):
        assert_same(running.run(feed), wanted(data, feed))


def test_a_thousand_kernels_may_fail_in_one_run() -> None:
    length = 1100
    nodes = [of("Neg", f"v{at}", f"v{at + 1}") for at in range(length)]
    data = build(nodes, [tensor("v0")], f"v{length}")
    graph = ModelGraph(data)
    kernels = Kernels(graph)

    class Fails:
        binds_outputs = True
        prepare = close = staticmethod(lambda *_: None)

        def bind(self, inputs: Any, outputs: Any = None) -> Callable[[], None]:
            def call() -> None:
                raise KernelFailed("no luck")

            return call

    running = Executor(graph, planned(graph, kernels), lambda by: Fails(), threads=1)  # type: ignore[arg-type, return-value]
    assert_same(running.run({"v0": X4}), [X4])


def test_a_kernel_that_is_wrong_never_runs(caplog: pytest.LogCaptureFixture) -> None:
    data = build([of("Relu", "x", "a"), of("Tanh", "a", "y")], [tensor("x")], "y")
    graph = ModelGraph(data)
    kernels = Kernels(graph)

    class Sevens:
        binds_outputs = True
        prepare = close = staticmethod(lambda *_: None)

        def bind(self, inputs: Any, outputs: Any = None) -> Callable[[], None]:
            return lambda: outputs[0].fill(7)

    found = choose(
        graph, kernels.candidates, PLACE,
        lambda plan: Executor(graph, plan, lambda by: Sevens(), threads=1),  # type: ignore[arg-type, return-value]
        {"x": X4}, 1, 0.0,
    )  # fmt: skip
    assert not found.plan.kernels and "gives other values than the whole model" in caplog.text


def test_what_has_random_numbers_in_it_is_left_whole() -> None:
    data = build([of("RandomNormalLike", "x", "r"), of("Add", "x r", "y")], [tensor("x")], "y")
    assert ModelGraph(data).is_random
    training = build([of("Dropout", "x p t", "y")], [tensor("x")], "y", {"p": np.float32(0.5), "t": True})
    assert ModelGraph(training).is_random
    still = build([of("Dropout", "x p t", "y")], [tensor("x")], "y", {"p": np.float32(0.5), "t": False})
    assert not ModelGraph(still).is_random


def test_a_node_that_is_made_twice_is_refused() -> None:
    loose = build([of("Relu", "x", "a"), of("Neg", "x", "a")], [tensor("x")], "a")
    with pytest.raises(InvalidModel):
        ModelGraph(loose)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"scales": np.array([1, 1, 2.0], np.float32)}, {"scales": np.array([1, 1, 3.0], np.float32)}),
        ({"s": np.array(["aa"], object)}, {"s": np.array(["bb"], object)}),
    ],
    ids=["scales", "strings"],
)
def test_constants_that_say_what_is_computed_are_in_the_key(one: Any, other: Any) -> None:
    if "scales" in one:
        nodes, inputs = [helper.make_node("Resize", ["x", "", "scales"], ["y"])], [tensor("x", (1, 2, 10))]
    else:
        nodes, inputs = [of("Concat", "x s", "y", axis=0)], [tensor("x", (1,), TensorProto.STRING)]
    first, again, second = (
        ModelGraph(build(nodes, inputs, "y", weights, opset=19)).key for weights in (one, one, other)
    )
    assert first == again != second


def test_a_profile_names_the_nodes_of_the_model() -> None:
    data = build([of("Relu", "x", "a"), of("Tanh", "a", "y")], [tensor("x", (256, 256))], "y")
    times = node_times(ModelGraph(data), {"x": np.ones((256, 256), np.float32)}, 1)
    assert set(times) == {0, 1} and min(times.values()) > 0
