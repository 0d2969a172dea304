"""A user's graph runs once for each call, whatever is timed and compared beside it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from opatlas.dynamo import backend, contest, held, sharing
from opatlas.dynamo.report import GraphReport, TorchReport
from opatlas.errors import first_line
from tests.opatlas.dynamo.making import KnowsAll, X, compiled
from tests.opatlas.dynamo.test_effects import happened, logged, noted

BOTH = ("eager", "inductor")


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Has another run in Inductor's place, which takes seconds for each graph: given the graph's own run."""

    def instead(make: Callable[[Any], Any]) -> None:
        for place in (contest, backend):
            monkeypatch.setattr(place, "compiled", lambda module, inputs: make(module.forward))

    instead(lambda run: run)
    return instead


def timed(model: Any, **options: Any) -> tuple[Any, TorchReport]:
    """By both of PyTorch's own, timed for a moment."""
    client = KnowsAll(only=lambda operator: False)
    return compiled(model, client, **{"frameworks": BOTH, "try_s": 0.02} | options)


class Cache(nn.Module):
    """A decoder's step with its cache and its position in buffers, which has no place for another step."""

    def __init__(self, steps: int = 3) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, steps, 8))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(1, self.position, x)
        seen = torch.arange(self.keys.size(1)) <= self.position
        self.position += 1
        return (x @ self.keys.transpose(1, 2)).masked_fill(~seen, -1.0).softmax(-1) @ self.keys


class Halving(nn.Module):
    """Whose input and buffer are nothing after some thousand runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.mul_(0.5)
        x.mul_(0.5)
        return x * self.scale


# ---- what is written to ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (Cache, torch.ones(1, 1, 8)),
        (Halving, torch.ones(4)),
        (lambda: nn.BatchNorm1d(8).train(), X[:, :8].clone()),
        (lambda: nn.InstanceNorm1d(4, track_running_stats=True).train(), X),
    ],
)
def test_state_is_as_after_as_many_calls_of_the_model(make: Any, x: torch.Tensor, inductor: Any) -> None:
    model = make()
    expected = copy.deepcopy(model)
    run, report = timed(model)
    with torch.no_grad():
        for _ in range(3):
            mine, theirs = x.clone(), x.clone()
            torch.testing.assert_close(run(mine), expected(theirs))
            torch.testing.assert_close(mine, theirs)
            torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert len(report.graphs[0].frameworks) == 2 and not report.graphs[0].left_out, str(report)


def test_each_run_of_a_contest_has_what_the_first_had_and_runs_are_counted(inductor: Any) -> None:
    seen: list[tuple[float, float]] = []

    def seeing(run: Any) -> Any:
        return lambda *args: seen.append((float(args[0][0]), float(args[1][0]))) or run(*args)

    inductor(seeing)
    run, _ = timed(Halving())
    with torch.no_grad():
        run(torch.ones(4))
    tried = seen[:-1] if seen[-1] != seen[0] else seen
    assert set(tried) == {(1.0, 1.0)}
    assert 10 < len(tried) < 2 * contest.MOST_IN_TURN * 60


def test_nothing_of_the_callers_changes_while_a_graph_is_compiled(inductor: Any, kernels_win: None) -> None:
    x, module = torch.ones(2, 4).t(), Halving()
    graphs: list[Any] = []

    def asks(graph: Any, inputs: Any) -> Any:
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        before = [(one._version, one.data_ptr(), one.stride(), one.clone()) for one in tensors]
        random, gradients = torch.get_rng_state(), torch.is_grad_enabled()
        backend.opatlas(graph, inputs, options={"client": KnowsAll(), "frameworks": BOTH, "report": report})
        for one, (version, address, stride, values) in zip(tensors, before, strict=True):
            assert (one._version, one.data_ptr(), one.stride(), one.grad) == (version, address, stride, None)
            assert torch.equal(one, values)
        assert torch.equal(torch.get_rng_state(), random) and torch.is_grad_enabled() == gradients
        graphs.append(graph)
        return graph.forward

    report = TorchReport()
    with torch.no_grad():
        torch.compile(module, backend=asks)(x[0])
    assert len(graphs) == 1 and report.graphs[0].frameworks and report.replaced >= 1


def test_memory_that_is_shared_only_later_is_seen(inductor: Any, kernels_win: None) -> None:
    """What Inductor makes of two tensors reads the second before it writes to the first."""
    inductor(lambda run: lambda x, y: (lambda before: (x.mul_(2), (x + before,))[1])(y.clone()))
    run, report = timed(lambda x, y: x.mul_(2) + y)
    memory = torch.ones(8)
    with torch.no_grad():
        torch.testing.assert_close(run(torch.ones(4), torch.ones(4)), torch.full((4,), 3.0))
        torch.testing.assert_close(run(memory[:4], memory[2:6]), torch.tensor([3.0, 3.0, 4.0, 4.0]))
        torch.testing.assert_close(run(torch.ones(4), torch.ones(4)), torch.full((4,), 3.0))
    assert [graph.chosen for graph in report.graphs] == ["torch.compile"]


def test_inputs_that_share_memory_are_found_by_where_they_lie() -> None:
    memory = torch.ones(8)
    args = [memory[:2], 3, torch.ones(4), memory[4:], torch.ones(0)]
    tensors = sharing.tensors_among(args)
    assert sharing.shared_with_written(args, tensors, frozenset((0,))) == {(0, 3)}
    assert sharing.shared_with_written(args, tensors, frozenset((2,))) == frozenset()


# ---- what does more than compute ------------------------------------------------------------------------


def with_hooks() -> nn.Module:
    model = nn.Linear(8, 4)
    model.register_forward_hook(lambda *_: happened.append("hook"))
    return model


@pytest.mark.parametrize(
    ("model", "effect"),
    [(lambda x: logged(x) + 1, "logged"), (lambda x: noted(x) * 2, "noted"), (with_hooks(), "hook")],
)
def test_an_effect_happens_once_a_call(model: Any, effect: str, inductor: Any, kernels_win: None) -> None:
    run, report = timed(model)
    with torch.no_grad():
        run(X[:, :8])
        happened.clear()  # Dynamo itself calls what is allowed in graphs
        torch._dynamo.reset()
        for calls in (1, 2, 3):
            run(X[:, :8])
            assert happened.count(effect) - (effect == "noted") == calls or effect != "noted"
            assert effect == "noted" or happened.count(effect) == calls
    if effect != "hook":
        assert report.graphs[0].chosen == "PyTorch eager" and "not PyTorch's own" in report.graphs[0].why
