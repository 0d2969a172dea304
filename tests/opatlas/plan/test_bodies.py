"""Branches and loops run by themselves as ONNX Runtime runs them, whatever is in them, and whatever fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opatlas.errors import CallerError
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor, ModelFailed
from opatlas.plan.plan import ByBodies, ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.profiling import node_times
from tests.opatlas.plan.c_kernels import CKernels
from tests.opatlas.plan.making import ARTIFACT, PLACE, Kernels, assert_same, executor, planned, wanted
from tests.opatlas.plan.random_bodies import RandomBodies

F = TensorProto.FLOAT
X = np.arange(1, 5, dtype=np.float32)


# ---- any model --------------------------------------------------------------------------------------


@settings(max_examples=10, derandomize=True)
@given(st.integers(0, 10_000))
def test_a_random_model_gives_every_value_that_onnx_runtime_gives(seed: int) -> None:
    for shows in (False, True):
        made = RandomBodies(seed, shows)
        data = made.build()
        graph = ModelGraph(data)
        every = list(graph.operators())
        share = np.random.default_rng(seed).random(len(every))
        kernels = CKernels(graph, [at for at, one in zip(every, share, strict=True) if one < 0.8])
        plan, told = planned(graph, kernels), list[Any]()
        check_plan(plan, graph, *PLACE)
        running = executor(graph, kernels, plan, failed=lambda *what, told=told: told.append(what))
        for feed in map(made.feed, (1, 2, 1)):
            expected = wanted(data, feed)
            # Where nothing is stacked, ONNX Runtime knows the shape of it in some places and not in others.
            found = [
                other if other.ndim and len(other) == 0 == len(one) else one
                for one, other in zip(running.run(feed), expected, strict=True)
            ]
            assert_same(found, expected)
        assert told == [] and not running.fallen_back
        running.close()


# ---- one loop ---------------------------------------------------------------------------------------


def of(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def value(name: str, shape: Any = (4,), element: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def body(nodes: list[onnx.NodeProto], given: str, ends: str, **weights: Any) -> onnx.GraphProto:
    """A Loop's: ``turn`` and ``go`` come first."""
    first = [value("turn", [], TensorProto.INT64), value("go", [], TensorProto.BOOL)]
    return helper.make_graph(
        nodes, "body", [*first, *(value(one, None) for one in given.split())],
        [helper.make_value_info(one, onnx.TypeProto()) for one in ends.split()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )  # fmt: skip


def build(nodes: list[onnx.NodeProto], outputs: str, inputs: Any = None, **weights: Any) -> bytes:
    graph = helper.make_graph(
        nodes, "model", inputs or [value("x"), value("trips", [], TensorProto.INT64)],
        [helper.make_value_info(one, onnx.TypeProto()) for one in outputs.split()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    return bytes(made.SerializeToString())


def trips(count: int, x: np.ndarray = X) -> dict[str, Any]:
    return {"x": x, "trips": np.array(count)}


COUNTING = build(
    [of("Neg", "x", "n"),
     helper.make_node("Loop", ["trips", "", "n"], ["y", "rows"],
                      body=body([of("Add", "c x", "a"), of("Abs", "a", "b")], "c", "go b a")),
     of("Neg", "y", "z")],
    "z rows",
)  # fmt: skip
SWAPPING = build(
    [helper.make_node("Loop", ["trips", "", "x", "w", "w"], ["p", "q", "r"],
                      body=body([of("Sub", "a b", "d"), of("Max", "d x", "e")], "a b c", "go b c e"))],
    "p q r", w=2 * X,
)  # fmt: skip
GROWING = build(
    [helper.make_node("Loop", ["trips", "", "x", "x"], ["long", "y", "sums"],
                      body=body([of("Add", "d x", "e"), of("Concat", "c e", "more", axis=0),
                                 of("ReduceSum", "more", "s", keepdims=0)], "c d", "go more e s"))],
    "long y sums",
)  # fmt: skip
ENDING = build(
    [helper.make_node("Loop", ["", "", "x"], ["y", "turns"],
                      body=body([of("Add", "c x", "a"), of("ReduceMax", "a", "m", keepdims=0),
                                 of("Less", "m most", "on"), of("Identity", "turn", "t")],
                                "c", "on a t", most=np.float32(17)))],
    "y turns",
)  # fmt: skip


def loop(inputs: str, outputs: str, inner: onnx.GraphProto) -> onnx.NodeProto:
    return helper.make_node("Loop", ["trips", "", *inputs.split()], outputs.split(), body=inner)


def branch(out: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "branch", [], [helper.make_value_info(out, onnx.TypeProto())])


def either(condition: str, outputs: str, then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    return of("If", condition, outputs, then_branch=then, else_branch=other)


EXCHANGING = build(
    [loop("x w x", "p q r", body([of("Sub", "c a", "d")], "a b c", "go b a d"))], "p q r", w=2 * X
)  # fmt: skip
BECOMING_THE_SAME = build(
    [loop("x w", "p q", body([of("Add", "a b", "c"), of("Sub", "c x", "d")], "a b", "go d d"))],
    "p q", w=2 * X,
)  # fmt: skip
REMEMBERING_THE_LAST = build(
    [loop("x none", "y last sums",
          body([of("Add", "c x", "d"), of("Neg", "d", "n"), of("ReduceSum", "l", "s", keepdims=0)],
               "c l", "go d n s"))],
    "y last sums", none=np.zeros(0, np.float32),
)  # fmt: skip
CAPTURED_BY_A_BRANCH = build(
    [loop("x", "y seen",
          body([of("ReduceMax", "c", "m", keepdims=0), of("Less", "m ten", "low"),
                either("low", "e", branch("t", of("Neg", "c", "t")), branch("u", of("Abs", "c", "u"))),
                of("Add", "c x", "d"), of("Sub", "e d", "f")],
               "c", "go d f", ten=np.float32(10)))],
    "y seen",
)  # fmt: skip
MADE_BY_A_BRANCH = build(
    [loop("x", "y seen",
          body([of("ReduceMax", "c", "m", keepdims=0), of("Less", "m ten", "low"),
                of("Neg", "c", "f"), of("Sub", "x f", "g"),
                either("low", "e", branch("t", of("Add", "g x", "t")), branch("u", of("Abs", "g", "u")))],
               "c", "go e f", ten=np.float32(10)))],
    "y seen",
)  # fmt: skip
OF_TWO_SHAPES = build(
    [of("Greater", "trips two", "many"),
     either("many", "p", branch("t", of("Neg", "x", "t")),
            branch("u", of("Abs", "x", "v"), of("ReduceSum", "v", "u", keepdims=1))),
     of("Abs", "x", "q"), of("Add", "q x", "r"), of("Sub", "r q", "s"), of("Concat", "p s", "y", axis=0)],
    "y", two=np.array(2),
)  # fmt: skip
LOOPS = {
    "exchanging": EXCHANGING, "becoming the same": BECOMING_THE_SAME, "remembering": REMEMBERING_THE_LAST,
    "captured by a branch": CAPTURED_BY_A_BRANCH, "made by a branch": MADE_BY_A_BRANCH,
    "of two shapes": OF_TWO_SHAPES, "counting": COUNTING, "swapping": SWAPPING, "growing": GROWING,
    "ending by its values": ENDING,
}  # fmt: skip


def running(data: bytes, kernels: Kernels | None = None, **options: Any) -> Executor:
    graph = ModelGraph(data)
    kernels = kernels or CKernels(graph)
    plan = planned(graph, kernels)
    check_plan(plan, graph, *PLACE)
    assert any(isinstance(step.by, ByBodies) for step in plan.steps)
    return executor(graph, kernels, plan, **options)


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_gives_what_onnx_runtime_gives(name: str) -> None:
    told: list[str] = []
    model = running(LOOPS[name], failed=lambda step, error: told.append(str(error)))
    for count in (3, 0, 1, 20, 3):
        feed = trips(count, X + count / 2)
        expected = wanted(LOOPS[name], feed)
        # Where nothing is stacked, ONNX Runtime knows the shape of it in some places and not in others.
        found = zip(model.run(feed), expected, strict=True)
        assert_same([one if len(one) else other for one, other in found], expected)
    assert told == [] and not model.fallen_back


def test_a_branch_that_gives_one_value_twice() -> None:
    """ONNX Runtime gives whatever lies in memory for the first of the two."""
    then = branch("t", of("Neg", "x", "t"))
    then.output.append(then.output[0])
    other = branch("u", of("Abs", "x", "u"))
    other.output.append(other.output[0])
    nodes = [of("Greater", "trips two", "many"), either("many", "p q", then, other)]
    model = running(build(nodes, "p q", two=np.array(2)))
    assert_same(model.run(trips(3)), [-X, -X])
    assert_same(model.run(trips(1, -X)), [X, X])


class Recorded(CKernels):
    """Where each kernel reads and writes, call by call."""

    def load(self, by: ByKernel) -> Any:
        kernel, calls = super().load(by), self.calls
        bind = kernel.bind

        def recording(inputs: Mapping[int, np.ndarray], outputs: Any = None) -> Callable[[], None]:
            bound = bind(inputs, outputs)

            def call() -> None:
                calls.append(([one.ctypes.data for one in inputs.values()], outputs[0].ctypes.data))
                bound()

            return call

        kernel.bind = recording  # type: ignore[method-assign]
        return kernel

    calls: list[tuple[list[int], int]]


def test_what_a_loop_carries_is_not_copied() -> None:
    inner = body([of("Abs", "c", "d")], "c", "go d")
    data = build([helper.make_node("Loop", ["trips", "", "x"], ["y"], body=inner)], "y")
    graph = ModelGraph(data)
    kernels = Recorded(graph)
    kernels.calls = []
    model = running(data, kernels)
    assert_same(model.run(trips(5, -X)), wanted(data, trips(5, -X)))
    for (_, written), (read, _) in zip(kernels.calls, kernels.calls[1:], strict=False):
        assert read == [written]
    assert len(kernels.calls) == 5 and len({written for _, written in kernels.calls}) == 2


def test_the_bodies_of_two_loops_share_memory() -> None:
    def loops(count: int) -> int:
        nodes = []
        for at in range(count):
            inner = [of("Abs", f"c{at}", f"a{at}"), of("Neg", f"a{at}", f"b{at}")]
            one = body(inner, f"c{at}", f"go b{at}")
            nodes.append(helper.make_node("Loop", ["trips", "", f"v{at}"], [f"v{at + 1}"], body=one))
        inputs = [value("v0", (4096,)), value("trips", [], TensorProto.INT64)]
        return running(build(nodes, f"v{count}", inputs)).peak_bytes

    assert loops(2) == loops(5) < loops(1) + 4 * 4 * 4096


# ---- what fails -------------------------------------------------------------------------------------


class FailingLater(CKernels):
    """One of them fails from its n-th call on, having written garbage."""

    def load(self, by: ByKernel) -> Any:
        kernel = super().load(by)
        if kernel.operator.op_types != ("Abs",):
            return kernel
        bind = kernel.bind

        def failing(inputs: Mapping[int, np.ndarray], outputs: Any = None) -> Callable[[], None]:
            bound = bind(inputs, outputs)

            def call() -> None:
                bound()
                self.left -= 1
                if self.left < 0:
                    outputs[0].fill(7)
                    raise self.error

            return call

        kernel.bind = failing  # type: ignore[method-assign]
        return kernel

    left = 2
    error: BaseException = KernelFailed("out of luck")


@pytest.mark.parametrize("good", [2, 1000])
def test_a_kernel_that_fails_in_an_iteration_gives_way_in_that_iteration(good: int) -> None:
    kernels, told = FailingLater(ModelGraph(COUNTING)), []
    kernels.left = good
    model = running(COUNTING, kernels, failed=lambda step, error: told.append(str(error)))
    for count in (5, 1100, 4):
        assert_same(model.run(trips(count)), wanted(COUNTING, trips(count)))
    assert told == ["out of luck"] and not model.fallen_back


def test_an_interrupted_loop_runs_again() -> None:
    kernels = FailingLater(ModelGraph(COUNTING))
    kernels.left, kernels.error = 1000, KeyboardInterrupt()
    model = running(COUNTING, kernels)
    with pytest.raises(KeyboardInterrupt):
        model.run(trips(2**20))
    kernels.left = 1000
    assert_same(model.run(trips(4)), wanted(COUNTING, trips(4)))


def test_what_is_revoked_is_out_of_the_next_run_in_bodies_too() -> None:
    gone, told = set[str](), list[str]()
    model = running(COUNTING, revoked=lambda: gone, failed=lambda step, error: told.append(str(error)))
    model.run(trips(3))
    gone.add(ARTIFACT)
    for _ in range(2):
        assert_same(model.run(trips(3)), wanted(COUNTING, trips(3)))
    assert told == ["it was revoked"] * 4  # Neg, Add, Abs, Neg


def test_inputs_that_a_body_cannot_take_are_refused_and_harm_nothing() -> None:
    """A Gather in a loop whose index goes too far."""
    nodes = [of("Add", "c x", "a"), of("Gather", "x turn", "g")]
    data = build([helper.make_node("Loop", ["trips", "", "x"], ["y", "seen"],
                                   body=body(nodes, "c", "go a g"))], "y seen")  # fmt: skip
    model = running(data)
    assert_same(model.run(trips(4)), wanted(data, trips(4)))
    with pytest.raises(ModelFailed, match="out of data bounds"):
        model.run(trips(5))
    assert_same(model.run(trips(3)), wanted(data, trips(3)))
    assert not model.fallen_back and model.plan.kernels


def test_a_shape_that_the_file_states_and_the_loop_does_not_make() -> None:
    inner = body([of("Abs", "c", "d")], "c", "go d d")
    nodes = [helper.make_node("Loop", ["trips", "", "x"], ["y", "rows"], body=inner), of("Neg", "rows", "z")]
    made = onnx.load_from_string(build(nodes, "z"))
    made.graph.value_info.append(value("rows", (3, 4)))
    data, told = made.SerializeToString(), list[str]()
    model = running(data, failed=lambda step, error: told.append(str(error)))
    assert_same(model.run(trips(3)), wanted(data, trips(3)))
    assert_same(model.run(trips(1)), wanted(data, trips(1)))  # one row is not spread over three


# ---- plans ------------------------------------------------------------------------------------------


def document() -> tuple[ModelGraph, dict[str, Any], dict[str, Any]]:
    graph = ModelGraph(COUNTING)
    plan = planned(graph, CKernels(graph)).to_json()
    [step] = [step for step in plan["steps"] if "bodies" in step["by"]]
    return graph, plan, step


def test_a_plan_with_bodies_comes_back_from_json_as_it_was() -> None:
    _, plan, _ = document()
    assert ModelPlan.from_json(plan).to_json() == plan
    assert len(ModelPlan.from_json(plan).kernels) == ModelPlan.from_json(plan).step_count == 4


Change = Callable[[dict[str, Any], dict[str, Any], dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda plan, step, body: step["by"]["bodies"].append(body), "plans for 2 bodies; its node has 1"),
        (lambda plan, step, body: body.update(model="m1:other"), "body 0: The plan is for the model m1"),
        (lambda plan, step, body: body.update(target="t1:other"), "body 0: The plan is for the target"),
        (lambda plan, step, body: body["steps"].pop(), "never makes the model's output 'b'"),
        (lambda plan, step, body: body["steps"][0].update(nodes=[9]), "nodes that the model does not have"),
        (lambda plan, step, body: body["steps"].reverse(), "reads 'a' before it is made"),
        (lambda plan, step, body: body["steps"][0]["by"].update(tensors=[99]), "of another operator"),
        (lambda plan, step, body: step.update(outputs=step["outputs"][:1]), "leaves out an output"),
        (lambda plan, step, body: plan["steps"][2].update(by=step["by"]), "no branch or loop that can be"),
        (lambda plan, step, body: body.update(steps=5), "'steps' must be a list"),
        (lambda plan, step, body: step["by"].update(bodies=[7]), "Step 1 of the plan is incomplete"),
    ],
)  # fmt: skip
def test_a_body_plan_that_computes_something_else_is_refused(change: Change, sentence: str) -> None:
    graph, plan, step = document()
    change(plan, step, step["by"]["bodies"][0])
    with pytest.raises(InvalidPlan, match=sentence):
        check_plan(ModelPlan.from_json(plan), graph, *PLACE)


def test_bodies_nested_beyond_all_bounds_are_refused() -> None:
    _, plan, step = document()
    inner = plan
    for _ in range(40):
        inner = {**plan, "steps": [{**step, "by": {"bodies": [inner]}}]}
    with pytest.raises(InvalidPlan, match="nested deeper than"):
        ModelPlan.from_json(inner)


def test_a_profile_names_the_nodes_of_bodies() -> None:
    times = node_times(ModelGraph(COUNTING), trips(3), 1)
    wanted_at: set[NodeAt] = {0, 1, 2, (1, 0, 0), (1, 0, 1)}
    assert set(times) == wanted_at and all(us >= 0 for us in times.values())


# ---- who runs it ------------------------------------------------------------------------------------


def test_a_run_from_within_a_run_is_refused_and_other_threads_wait() -> None:
    refused: list[str] = []

    def again(step: Any, error: Exception) -> None:
        with pytest.raises(CallerError, match="cannot be run from within its own run") as caught:
            model.run(trips(2))
        refused.append(str(caught.value))

    model = running(COUNTING, FailingLater(ModelGraph(COUNTING)), failed=again)
    assert_same(model.run(trips(4)), wanted(COUNTING, trips(4)))
    assert len(refused) == 1
    feeds = [trips(20 + at, X * at) for at in range(4)]
    found: dict[int, Any] = {}

    def run(at: int) -> None:
        for _ in range(20):
            found[at] = model.run(feeds[at])

    threads = [threading.Thread(target=run, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at, feed in enumerate(feeds):
        assert_same(found[at], wanted(COUNTING, feed))


def test_values_that_no_memory_can_hold() -> None:
    """The default is asked, and says so."""
    nodes = [of("Expand", "x huge", "b"), of("Neg", "x", "a"), of("ReduceSum", "b", "c", keepdims=0)]
    nodes.append(of("Add", "a c", "y"))
    data = build(nodes, "y", [value("x")], huge=np.array([2**20, 2**25, 4]))
    graph = ModelGraph(data)
    model = executor(graph, CKernels(graph))
    assert "GB of memory are needed" in model.fallen_back
    with pytest.raises(ModelFailed):
        model.run({"x": X})
