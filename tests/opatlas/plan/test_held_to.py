"""Whoever shall run a model agrees with ONNX Runtime over several examples, not over one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opatlas.graph.examples import checking_inputs, narrower
from opatlas.graph.given_model import random_inputs
from opatlas.graph.normal import ModelGraph
from opatlas.plan import held_to, regions
from opatlas.plan.choosing import Chosen, choose
from opatlas.plan.executor import Executor
from opatlas.plan.held_to import HeldTo
from opatlas.plan.limits import TookTooLong
from opatlas.plan.making import whole
from opatlas.plan.plan import ModelPlan
from tests.opatlas.graph.test_examples import graph_of
from tests.opatlas.plan.making import PLACE

pytest.importorskip("torch")

node = helper.make_node
INT64, INT16, BOOL, FLOAT = TensorProto.INT64, TensorProto.INT16, TensorProto.BOOL, TensorProto.FLOAT


class Instead:
    """A framework that computes by a function of the inputs."""

    def __init__(self, answer: Callable[..., np.ndarray]) -> None:
        self._answer = answer

    def run(self, inputs: Any) -> list[np.ndarray]:
        return [self._answer(*inputs)]

    def bind(self, inputs: Any, outputs: Any) -> Any:
        raise NotImplementedError


def chosen(monkeypatch: pytest.MonkeyPatch, graph: ModelGraph, answer: Callable[..., np.ndarray]) -> Chosen:
    """``answer``: what PyTorch gives."""
    real = regions.open_region

    def opened(framework: str, part: regions.ModelPart, threads: int, **options: Any) -> Any:
        return Instead(answer) if framework == "pytorch" else real(framework, part, threads, **options)

    monkeypatch.setattr("opatlas.plan.executor.open_region", opened)

    def build(plan: ModelPlan) -> Executor:
        return Executor(graph, plan, lambda by: pytest.fail("it has no kernel"), threads=1)

    feed = random_inputs(graph)
    return choose(
        graph, {}, PLACE, build, feed, 1, 0.0,
        frameworks=("pytorch",), examples=checking_inputs(graph, feed),
    )  # fmt: skip


def saturated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.clip(a.astype(np.int32) + b, -(2**15), 2**15 - 1).astype(np.int16)


WRONG: dict[str, tuple[list[Any], dict[str, Any], Callable[..., np.ndarray]]] = {
    "negative numbers": ([node("Abs", ["x"], ["y"])], {"x": (INT64, (64,))}, lambda x: x),
    "numbers beyond a byte": (
        [node("Neg", ["x"], ["y"])], {"x": (INT64, (64,))}, lambda x: -(x.astype(np.int8).astype(np.int64))),
    "results beyond the type": (
        [node("Add", ["a", "b"], ["y"])], {"a": (INT16, (64,)), "b": (INT16, (64,))}, saturated),
    "a mask that hides": (
        [node("Where", ["m", "x", "n"], ["y"])],
        {"m": (BOOL, (64,)), "x": (FLOAT, (64,)), "n": (FLOAT, (64,))},
        lambda m, x, n: x,
    ),
    "what is beyond one": (
        [node("Tanh", ["x"], ["y"])], {"x": (FLOAT, (64,))}, lambda x: np.tanh(np.clip(x, -3.5, 3.5))),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_who_is_wrong_over_other_numbers_takes_no_part(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    nodes, inputs, answer = WRONG[case]
    found = chosen(monkeypatch, graph_of(nodes, inputs, {}), answer)
    assert found.standings == ()
    assert found.refused["PyTorch eager"].endswith("in ONNX Runtime over numbers of the types' whole ranges")


def test_who_is_right_over_all_of_them_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = graph_of([node("Abs", ["x"], ["y"])], {"x": (INT64, (64,))}, {})
    found = chosen(monkeypatch, graph, np.abs)
    assert found.refused == {} and len(found.standings) == 2


def held(graph: ModelGraph, examples: list[dict[str, np.ndarray]], base: dict[str, np.ndarray]) -> HeldTo:
    default = Executor(graph, whole(graph, *PLACE), lambda by: pytest.fail("none"), threads=1)
    return HeldTo(default, base, examples, limit_s=60.0)


class Always:
    """In place of an executor: gives the same, whatever it is given."""

    def __init__(self, given: np.ndarray) -> None:
        self._given, self.feeds = given, list[Any]()

    def hands_over(self, feed: Any) -> bool:
        return False

    def run(self, feed: Any) -> list[np.ndarray]:
        self.feeds.append(feed)
        return [self._given]


def test_an_example_that_onnx_runtime_refuses_is_narrowed() -> None:
    graph = graph_of([node("Gather", ["t", "i"], ["y"])], {"t": (FLOAT, (4,)), "i": (INT64, (1,))}, {})
    base = {"t": np.ones(4, np.float32), "i": np.zeros(1, np.int64)}
    example = {"t": np.full(4, 5, np.float32), "i": np.array([9])}
    asked = Always(np.array([5], np.float32))
    assert held(graph, [example], base).why_wrong(asked, 60.0) == ""  # type: ignore[arg-type]
    assert asked.feeds == [{"t": example["t"], "i": base["i"]}]


def test_examples_take_no_longer_than_they_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_to, "MOST_S", 0.0)
    graph = graph_of([node("Abs", ["x"], ["y"])], {"x": (FLOAT, (2,))}, {})
    base = {"x": np.ones(2, np.float32)}
    wrong = Always(np.zeros(2, np.float32))
    assert held(graph, [base], base).why_wrong(wrong, 60.0) == "" and wrong.feeds == []  # type: ignore[arg-type]


class Endless(Always):
    """In place of an executor: its run ends once it is told to."""

    def __init__(self) -> None:
        super().__init__(np.zeros(1, np.float32))
        self.told, self.closed = threading.Event(), threading.Event()

    def run(self, feed: Any) -> list[np.ndarray]:
        self.told.wait(60.0)
        return super().run(feed)

    def close(self) -> None:
        self.closed.set()


def test_who_does_not_end_over_an_example_is_left_and_closed_once_it_does() -> None:
    graph = graph_of([node("Abs", ["x"], ["y"])], {"x": (FLOAT, (2,))}, {})
    base, endless = {"x": np.ones(2, np.float32)}, Endless()
    with pytest.raises(TookTooLong):
        held(graph, [base], base).why_wrong(endless, 0.01)  # type: ignore[arg-type]
    assert not endless.closed.is_set()
    endless.told.set()
    assert endless.closed.wait(60.0)


class Late(Always):
    """In place of the default: it is ended over whatever it is given."""

    def run(self, feed: Any, limit_s: float = 0.0) -> list[np.ndarray]:
        super().run(feed)
        raise TookTooLong("it did not end")


def test_an_example_over_which_the_default_does_not_end_is_left_out_at_once() -> None:
    base = {"a": np.zeros(1, np.int64), "b": np.zeros(1, np.int64)}
    late = Late(np.zeros(1))
    found = HeldTo(late, base, [{name: one + 1 for name, one in base.items()}], 1.0)  # type: ignore[arg-type]
    assert found.why_wrong(Always(np.ones(1)), 60.0) == "" and len(late.feeds) == 1  # type: ignore[arg-type]


def test_what_is_no_array_is_narrowed_as_it_is() -> None:
    base = {"s": [np.ones(2)], "i": np.zeros(1, np.int64), "f": np.zeros(1)}
    example = {**base, "i": np.ones(1, np.int64), "f": np.ones(1)}
    without = {**example, "i": base["i"]}
    assert list(narrower(example, base)) == [without, {**base, "i": example["i"]}, without]  # type: ignore[arg-type]
