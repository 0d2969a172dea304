"""Plans run as ONNX Runtime runs the whole model; parts that fail go over to it; buffers are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from opatlas.errors import CallerError, LoadError
from opatlas.graph.normal import ModelGraph
from opatlas.load.kernel import KernelFailed
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor, ModelFailed
from opatlas.plan.making import whole
from opatlas.plan.plan import ByKernel
from tests import by_day
from tests.opatlas.plan.graphs import RandomModel
from tests.opatlas.plan.making import (
    ARTIFACT,
    PLACE,
    Kernels,
    assert_same,
    executor,
    planned,
    wanted,
)
from tests.tuning.graph.making import model


@pytest.mark.parametrize("seed", by_day.first(8, range(24)))
def test_a_random_model_gives_every_value_that_onnx_runtime_gives(seed: int) -> None:
    made = RandomModel(seed)
    for only in (None, 3):  # every value is an output; only the last are, so that buffers are shared
        data = made.build(only)
        graph = ModelGraph(data)
        every = list(graph.operators())
        share = np.random.default_rng(seed).random(len(every))
        kernels = Kernels(graph, [at for at, one in zip(every, share, strict=True) if one < 0.6])
        plan = planned(graph, kernels)
        check_plan(plan, graph, *PLACE)
        running = executor(graph, kernels, plan)
        for feed in (made.feed(1), made.feed(2), made.feed(1)):
            assert_same(running.run(feed), wanted(data, feed))


@pytest.mark.parametrize("seed", range(4))
def test_kernels_with_outputs_of_their_own_are_copied_into_the_plans(seed: int) -> None:
    made = RandomModel(seed, control=False)
    data = made.build(3)
    graph = ModelGraph(data)
    kernels = Kernels(graph)
    running = Executor(graph, planned(graph, kernels), kernels.load_fresh, threads=1)
    for feed in (made.feed(1), made.feed(2)):
        assert_same(running.run(feed), wanted(data, feed))


def chain(length: int = 6) -> bytes:
    nodes = [
        helper.make_node("Relu" if at % 2 else "Tanh", [f"v{at}"], [f"v{at + 1}"]) for at in range(length)
    ]
    return _older(model(nodes, {"v0": (64, 64)}, [f"v{length}"]))


def _older(made: onnx.ModelProto) -> bytes:
    made.ir_version = 10
    return made.SerializeToString()


FEED = {"v0": np.linspace(-2, 2, 64 * 64, dtype=np.float32).reshape(64, 64)}


def test_a_chain_of_any_length_needs_two_buffers() -> None:
    for length in (4, 12):
        graph = ModelGraph(chain(length))
        running = executor(graph, Kernels(graph))
        assert running.peak_bytes == 2 * 64 * 64 * 4
        assert_same(running.run(FEED), wanted(chain(length), FEED))


class Failing:
    """A kernel that fails from its n-th run on, having written garbage."""

    def __init__(self, kernel: Any, good_runs: int) -> None:
        self._kernel, self.left = kernel, good_runs
        self.operator = kernel.operator

    def prepare(self, constants: Any) -> None:
        self._kernel.prepare(constants)

    def bind(self, inputs: Any) -> Failing:
        self._bound = self._kernel.bind(inputs)
        return self

    def __call__(self) -> None:
        self.left -= 1
        self._bound()
        if self.left < 0:
            self._bound.poison()
            raise KernelFailed("the kernel failed: out of luck")

    def outputs(self) -> Any:
        return self._bound.outputs()

    def close(self) -> None:
        self._kernel.close()


def test_a_kernel_that_fails_at_its_1000th_run_goes_over_to_the_default_in_that_run() -> None:
    graph = ModelGraph(chain())
    kernels, told = Kernels(graph, [2]), []
    running = Executor(
        graph, planned(graph, kernels), lambda by: Failing(kernels.load(by), 999), threads=1,
        failed=lambda step, error: told.append((step.nodes, str(error))),
    )  # fmt: skip
    expected = wanted(chain(), FEED)
    for _ in range(1002):
        assert_same(running.run(FEED), expected)
    assert told == [((2,), "the kernel failed: out of luck")]


def test_a_kernel_that_cannot_be_loaded_costs_the_model_nothing() -> None:
    graph = ModelGraph(chain())
    kernels, told = Kernels(graph), []

    def load(by: ByKernel) -> Any:
        raise LoadError("needs avx1024")

    running = Executor(
        graph, planned(graph, kernels), load, threads=1, failed=lambda step, error: told.append(step)
    )
    assert_same(running.run(FEED), wanted(chain(), FEED))
    assert len(told) == 6


def test_what_is_revoked_is_out_of_the_next_run() -> None:
    graph, gone = ModelGraph(chain()), set[str]()
    kernels, told = Kernels(graph, [1]), []
    running = Executor(
        graph, planned(graph, kernels), kernels.load, threads=1, revoked=lambda: gone,
        failed=lambda step, error: told.append(str(error)),
    )  # fmt: skip
    running.run(FEED)
    assert told == []
    gone.add(ARTIFACT)
    for _ in range(2):
        assert_same(running.run(FEED), wanted(chain(), FEED))
    assert told == ["it was revoked"]


def test_a_default_that_fails_says_where() -> None:
    """A Gather whose index is out of bounds: ONNX Runtime refuses it at run time."""
    made = model(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Gather", ["r", "i"], ["y"])],
        {"x": (4, 4)}, ["y"],
    )  # fmt: skip
    made.graph.input.append(helper.make_tensor_value_info("i", onnx.TensorProto.INT64, [1]))
    graph = ModelGraph(_older(made))
    running = executor(graph, Kernels(graph, [0]))
    feed = {"x": np.ones((4, 4), np.float32), "i": np.array([2])}
    assert running.run(feed)[0].shape == (1, 4)
    with pytest.raises(ModelFailed, match=r"Gather.*out of data bounds"):
        running.run(feed | {"i": np.array([9])})
    assert running.run(feed)[0].shape == (1, 4)
    alone = Executor(graph, whole(graph, *PLACE), lambda by: None, threads=1)  # type: ignore[arg-type, return-value]
    with pytest.raises(ModelFailed, match="out of data bounds"):
        alone.run(feed | {"i": np.array([9])})


@pytest.mark.parametrize(
    ("feed", "sentence"),
    [
        ({}, "takes the inputs v0; none are given"),
        ({**FEED, "w": FEED["v0"]}, "takes the inputs v0; v0, w are given"),
        ({"v0": FEED["v0"][:3]}, r"'v0' is float32 \[3, 64\]; the model takes float32 \[64, 64\]"),
        ({"v0": FEED["v0"].astype(np.float64)}, "'v0' is float64"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_and_harm_nothing(feed: Any, sentence: str) -> None:
    graph = ModelGraph(chain())
    for running in (executor(graph, Kernels(graph)), executor(graph, Kernels(graph, []))):
        with pytest.raises(CallerError, match=sentence):
            running.run(feed)
        assert_same(running.run(FEED), wanted(chain(), FEED))


def test_outputs_are_the_callers_own_and_inputs_may_lie_in_any_order() -> None:
    graph = ModelGraph(chain())
    running = executor(graph, Kernels(graph))
    [first] = running.run(FEED)
    kept = first.copy()
    turned = np.asfortranarray(-FEED["v0"])
    assert_same(running.run({"v0": turned}), wanted(chain(), {"v0": -FEED["v0"]}))
    assert (first == kept).all()


def test_a_profile_has_every_step_once() -> None:
    graph = ModelGraph(chain())
    running = executor(graph, Kernels(graph, [0, 3]))
    times = running.profile(FEED)
    assert [one.step.nodes for one in times] == [(0,), (1, 2), (3,), (4, 5)]
    assert all(one.us > 0 for one in times)
