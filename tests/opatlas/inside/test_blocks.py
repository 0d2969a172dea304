"""Convolutions in blocks of channels, as ONNX Runtime holds them, by a kernel that reads and writes these."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting, Value
from opatlas.inside import blocks
from opatlas.inside.blocks import block_size
from opatlas.load import Manifest
from opatlas.load.buffers import empty
from opatlas.load.c_abi import CKernel, Tensors
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.plan import ByKernel, InvalidPlan, ModelPlan
from opatlas.plan.said import said_of
from opatlas.session.blaming import blamed_kernels
from tests import by_day
from tests.opatlas.inside.convolutions import (
    BLOCK,
    CHANNELS,
    FEED,
    SIZE,
    SLOW,
    SOURCE,
    WIDE,
    Convolutions,
    convolving,
    library,
    one_convolution,
    residual,
)
from tests.opatlas.inside.made import CSources, inside
from tests.opatlas.load.kernels import REFUSES_WEIGHTS
from tests.opatlas.plan.making import PLACE, assert_same, wanted


def test_blocks_are_as_wide_as_the_processors_vectors() -> None:
    assert block_size() == BLOCK


def test_kernels_in_blocks_give_what_onnx_runtime_gives_with_no_reorder_beside_them() -> None:
    graph = ModelGraph(residual())
    kernels = Convolutions(graph)
    told: list[str] = []
    executor = Executor(
        graph, inside(graph, kernels.candidates), kernels.load, threads=2,
        failed=lambda step, error: told.append(f"{step.nodes}: {error}"),
    )  # fmt: skip
    for feed in (FEED, {"x": -FEED["x"]}):
        assert_same(executor.run(feed), wanted(residual(), feed))
    # The first reads the model's input, which is in no blocks to begin with: it is brought into them once.
    assert not told and len(executor.kernels) == 4
    assert (
        said_of(executor.plan) == "4 kernels inside ONNX Runtime, 4 in blocks of channels, 3 of several nodes"
    )
    inner = executor._inside
    assert inner is not None
    kinds = [
        event["args"]["op_name"]
        for event in inner.profile(FEED)
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    assert kinds.count("ReorderInput") == kinds.count("ReorderOutput") == 5  # one a run, at the model's ends
    executor.close()


@pytest.mark.parametrize("layout", ["blocks", ""])
def test_a_sum_after_a_convolution_is_the_kernels_too(layout: str) -> None:
    graph, told = ModelGraph(residual()), list[str]()
    kernels = Convolutions(graph, layout, sums=True)
    assert [one.fused for one in kernels.candidates.values()] == [(0, 1), (2, 3), (4, 5, 6), (8, 9)]
    executor = Executor(
        graph, inside(graph, kernels.candidates), kernels.load, threads=2,
        failed=lambda step, error: told.append(f"{step.nodes}: {error}"),
    )  # fmt: skip
    assert_same(executor.run(FEED), wanted(residual(), FEED))
    assert not told and len(executor.kernels) == 4
    executor.close()


def test_plain_kernels_run_beside_those_in_blocks() -> None:
    graph = ModelGraph(residual())
    kernels = Convolutions(graph)
    first, *others = kernels.candidates
    chosen = {**kernels.candidates, **kernels.plainly({first: kernels.candidates[first]})}
    executor = Executor(graph, inside(graph, chosen), kernels.load, threads=2)
    assert_same(executor.run(FEED), wanted(residual(), FEED))
    assert len(executor.kernels) == 1 + len(others)
    executor.close()


def node(kind: str, read: str, made: str, **said: Any) -> onnx.NodeProto:
    said = {"pads": [1] * 4, **said} if kind == "Conv" else said
    return helper.make_node(kind, read.split(), [made], **said)


def in_blocks(data: bytes, sums: bool = False) -> tuple[int, list[str]]:
    """How many kernels run of those that could, and why the others do not; the values are ONNX Runtime's."""
    graph, told = ModelGraph(data), list[str]()
    kernels = Convolutions(graph, sums=sums, source=SLOW)
    executor = Executor(
        graph, inside(graph, kernels.candidates), kernels.load, threads=1,
        failed=lambda step, error: told.append(str(error)),
    )  # fmt: skip
    for feed in (FEED, {"x": -FEED["x"]}):
        assert_same(executor.run(feed), wanted(data, feed))
    assert not executor.fallen_back
    count = len(executor.kernels)
    executor.close()
    return count, told


def test_windows_of_any_kind_are_the_kernels() -> None:
    nodes = [
        node("Conv", "x w b", "c", strides=[2, 1], pads=[0, 1, 2, 0]),
        node("Conv", "c v", "d", dilations=[2, 2], pads=[2] * 4),
        node("Conv", "d w", "y", pads=[0] * 4),
    ]
    assert in_blocks(convolving(nodes)) == (3, [])


def test_a_convolution_that_takes_a_padding_in_gives_its_kernel_up_alone() -> None:
    nodes = [
        node("Pad", "x p", "q"),
        node("Conv", "q w b", "c", pads=[0] * 4),
        node("Conv", "c v", "y"),
    ]
    data = convolving(nodes, weights={"p": np.array([0, 0, 1, 1, 0, 0, 1, 1])})
    assert in_blocks(data) == (1, ["ONNX Runtime computes it over other windows"])


def test_values_that_are_called_like_nodes_of_ours_are_no_others() -> None:
    nodes = [
        node("Conv", "x w b", "node1.a"),
        node("Conv", "node1.a v b", "node0.a", dilations=[2, 2], pads=[2] * 4),
        node("MaxPool", "node0.a", "y", kernel_shape=[2, 2]),
    ]
    assert in_blocks(convolving(nodes)) == (2, [])


def test_constants_that_no_node_of_the_model_reads_stay() -> None:
    branches = {
        name: helper.make_graph(
            [node(kind, "r k", name)], name, [], [helper.make_empty_tensor_value_info(name)]
        )
        for name, kind in (("then_branch", "Mul"), ("else_branch", "Sub"))
    }
    nodes = [
        node("Conv", "x w b", "c"),
        node("Relu", "c", "r"),
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "y", **branches),
        node("Identity", "v", "z"),
    ]
    weights = {"k": np.float32([2]), "zero": np.float32(0)}
    assert in_blocks(convolving(nodes, ["y", "z"], weights)) == (1, [])


@pytest.mark.parametrize("first", ["a", "c"])
def test_of_two_convolutions_in_one_sum_one_takes_it(first: str) -> None:
    other = "c" if first == "a" else "a"
    nodes = [
        node("Conv", "x w b", "a"),
        node("Conv", "x v", "c"),
        node("Add", f"{first} {other}", "s"),
        node("Relu", "s", "y"),
    ]
    assert in_blocks(convolving(nodes)) == (2, [])


def test_a_sum_with_what_the_convolution_reads_is_right() -> None:
    nodes = [node("Conv", "x w b", "a"), node("Conv", "a v", "c"), node("Add", "c a", "y")]
    assert in_blocks(convolving(nodes), sums=True) == (2, [])


def test_a_plain_kernel_that_refuses_its_weights_gives_way_beside_those_in_blocks() -> None:
    nodes = [node("Conv", "x w b", "c"), node("Sub", "c k", "s"), node("Conv", "s v", "y")]
    k = np.ones((1, CHANNELS, SIZE, SIZE), np.float32)
    data, told = convolving(nodes, weights={"k": k}), list[str]()
    graph = ModelGraph(data)
    kernels, others = Convolutions(graph, source=SLOW), CSources(graph, REFUSES_WEIGHTS)

    def load(by: ByKernel) -> CKernel:
        return (others if by.artifact in {one.by.artifact for one in refusing} else kernels).load(by)

    refusing = others.candidates.values()
    executor = Executor(
        graph, inside(graph, {**kernels.candidates, **others.candidates}), load, threads=1,
        failed=lambda step, error: told.append(str(error)),
    )  # fmt: skip
    assert_same(executor.run(FEED), wanted(data, FEED))
    assert len(executor.kernels) == 2 and told == ["the kernel refuses its constants: error code 3"]
    executor.close()


def test_where_there_are_no_blocks_such_kernels_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opatlas.plan.inside.block_size", lambda: 0)
    graph = ModelGraph(residual())
    kernels = Convolutions(graph)
    executor = Executor(graph, inside(graph, kernels.candidates), kernels.load, threads=2)
    assert not executor.kernels
    assert_same(executor.run(FEED), wanted(residual(), FEED))
    executor.close()


def test_only_inside_a_framework_a_plan_has_kernels_in_blocks() -> None:
    graph = ModelGraph(residual())
    plan = inside(graph, Convolutions(graph).candidates)
    assert ModelPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    with pytest.raises(InvalidPlan, match="Only inside a framework"):
        check_plan(replace(plan, inside=""), graph, *PLACE)
    document = plan.to_json()
    document["steps"][1]["by"]["layout"] = "nhwc"
    with pytest.raises(InvalidPlan, match="'layout' is 'blocks', or left out"):
        ModelPlan.from_json(document)


def test_a_kernel_that_is_wrong_in_blocks_alone_is_blamed_for_it() -> None:
    graph = ModelGraph(residual())
    right = "out[s] += add;"
    assert right in SOURCE
    wrong = SOURCE.replace(right, right.replace("add;", "add + (float)blocked;"))
    kernels = Convolutions(graph, others={4: wrong})

    def build(plan: ModelPlan) -> Executor:
        return Executor(graph, plan, kernels.load, threads=2)

    plan = inside(graph, kernels.candidates)
    expected = dict(zip(graph.output_names, wanted(residual(), FEED), strict=True))
    [blamed] = blamed_kernels(graph, plan, build, FEED, expected, 60.0)
    assert blamed == kernels.candidates[4].by


@pytest.mark.parametrize("block", [8, 16])
@pytest.mark.parametrize(
    "case",
    by_day.only(
        [((2, 32, 9, 13), 48, 3, (1, 1, 1, 1)), ((2, 128, 7, 9), 128, 3, (1, 1, 1, 1))],
        [
            ((2, 128, 7, 9), 128, 3, (1, 1, 1, 1)), ((1, 256, 46, 44), 256, 3, (0, 1, 1, 0)),
            ((5, 32, 23, 23), 64, 3, (1, 1, 1, 1)), ((2, 256, 8, 12), 256, 3, (0, 0, 0, 0)),
            ((2, 32, 9, 13), 48, 3, (1, 1, 1, 1)), ((1, 16, 6, 6), 16, 3, (0, 0, 0, 0)),
            ((3, 48, 7, 31), 32, 3, (0, 1, 2, 0)), ((1, 64, 14, 14), 64, 5, (2, 2, 2, 2)),
            ((1, 16, 40, 6), 112, 5, (1, 0, 0, 2)), ((1, 256, 14, 14), 16, 3, (1, 1, 1, 1)),
        ],
    ),
)  # fmt: skip
def test_the_shipped_convolution_gives_in_blocks_what_it_gives_plainly(
    case: tuple[tuple[int, ...], int, int, tuple[int, ...]], block: int
) -> None:
    """Tiles of both sizes, in tasks from end to end and in groups, one and several."""
    x, filters, side, pads = case
    if block == 16 and not WIDE:
        pytest.skip("no AVX-512 here")
    random = np.random.default_rng(0)
    given = random.standard_normal(x).astype(np.float32)
    weights = (random.standard_normal((filters, x[1], side, side)) / 20).astype(np.float32)
    bias = random.standard_normal(filters).astype(np.float32)
    model = one_convolution(x, weights, bias, pads)
    graph = ModelGraph(model)
    placed = operator_of(graph, (0, 1), graph.outputs)
    manifest = Manifest("c-abi", "manual", placed.operator.to_json(), Setting(threads=2).to_json())
    kernel = CKernel(manifest, {"kernel.so": library(placed.operator, SOURCE, block)})
    assert kernel.code().blocks == block
    constants = dict(zip(placed.operator.constant_inputs, (weights, bias), strict=True))
    kernel.prepare(constants)
    bound = kernel.bind({placed.operator.runtime_inputs[0]: given})
    bound()
    [plain] = bound.outputs()
    [expected] = ort.InferenceSession(model).run(None, {"x": given})
    np.testing.assert_allclose(plain, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    n, f, h, w = plain.shape
    lying = aligned_like(given.reshape(x[0], x[1] // block, block, *x[2:]).transpose(0, 1, 3, 4, 2))
    made = aligned_like(np.zeros((n, f // block, h, w, block), np.float32))
    run_as_it_lies(kernel, [lying, aligned_like(weights), aligned_like(bias), made])
    np.testing.assert_allclose(made.transpose(0, 1, 4, 2, 3).reshape(plain.shape), plain, rtol=0, atol=2e-5)
    kernel.close()


def aligned_like(array: np.ndarray) -> np.ndarray:
    found = empty(Value("float32", array.shape), 64)
    found[...] = array
    return found


def run_as_it_lies(kernel: CKernel, arrays: list[np.ndarray]) -> None:
    """One run over arrays of whatever shapes, in the operator's order."""
    tensors = Tensors(arrays, [Value("float32", array.shape) for array in arrays])
    run, arguments = kernel.call(tensors)
    assert run(*arguments) == 0


def test_weights_come_out_of_their_blocks_as_they_went_in() -> None:
    from onnx import numpy_helper

    weights = np.arange(32 * 16 * 9, dtype=np.float32).reshape(32, 16, 3, 3)
    lying = weights.reshape(4, 8, 2, 8, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    given = numpy_helper.from_array(np.ascontiguousarray(lying).reshape(32, 16, 3, 3))
    assert (blocks._unblocked(given, 8) == weights).all()
