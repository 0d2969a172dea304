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

from opatlas.dynamo import backend, contest, held, limits, sharing
from opatlas.dynamo.report import GraphReport, TorchReport
from tests.opatlas.dynamo.making import KnowsAll, X, compiled
from tests.opatlas.dynamo.test_effects import happened, logged, noted

BOTH = ("eager", "inductor")


@pytest.fixture
def inductor(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Has another run in Inductor's place, which takes seconds for each graph: given the graph's own run."""

    def instead(make: Callable[[Any], Any]) -> None:
        for place in (contest, backend):
            monkeypatch.setattr(place, "compiled", lambda module, inputs: make(module.forward))
        monkeypatch.setattr(contest, "compiled_aten", lambda module, inputs: module.forward)

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
        torch.compile(module, backend=asks)(x[:, 0])
    assert len(graphs) == 1 and report.graphs[0].frameworks and report.replaced >= 1


def test_memory_that_is_shared_only_later_is_seen(inductor: Any, kernels_win: None) -> None:
    """What Inductor makes of two tensors reads the second before it writes to the first."""
    inductor(lambda run: lambda x, y: (lambda before: (x.mul_(2), (x + before,))[1])(y.clone()))
    run, report = timed(lambda x, y: x.mul_(2) + y)
    memory = torch.ones(8)
    with torch.no_grad():
        torch.testing.assert_close(run(torch.ones(4), torch.ones(4)), torch.full((4,), 3.0))
        torch.testing.assert_close(run(memory[:4], memory[2:6]), torch.tensor([4.0, 4.0, 3.0, 3.0]))
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


@pytest.mark.parametrize(("model", "effect"), [(lambda x: logged(x) + 1, "logged"), (with_hooks(), "hook")])
def test_an_effect_happens_once_a_call(model: Any, effect: str, inductor: Any, kernels_win: None) -> None:
    run, report = timed(model)
    happened.clear()
    with torch.no_grad():
        for calls in (1, 2, 3):
            run(X[:, :8])
            assert happened == [effect] * calls
    if effect == "logged":
        [graph] = report.graphs
        assert graph.chosen == "PyTorch eager" and "not PyTorch's own" in graph.why


def test_a_function_that_may_stand_in_graphs_runs_in_each_call(inductor: Any, kernels_win: None) -> None:
    run, report = timed(lambda x: noted(x) * 2)
    with torch.no_grad():
        run(X)
        happened.clear()  # Dynamo itself calls it, to know what it makes
        run(X)
    assert happened == ["noted"] and "not PyTorch's own (noted)" in report.graphs[0].why


@pytest.mark.parametrize(
    "draw", [F.dropout, lambda x: x + torch.rand(16), lambda x: torch.multinomial(x.abs(), 2)]
)
def test_random_numbers_are_those_that_pytorch_draws(draw: Any, inductor: Any, kernels_win: None) -> None:
    run, report = timed(draw)
    for gradients in (False, True):
        for _ in range(2):
            torch.manual_seed(7)
            expected, state = draw(X), torch.get_rng_state()
            torch.manual_seed(7)
            with torch.set_grad_enabled(gradients):
                assert torch.equal(run(X), expected)
            assert torch.equal(torch.get_rng_state(), state)
    assert {graph.chosen for graph in report.graphs} == {"PyTorch eager"}


def test_a_branch_runs_in_eager(inductor: Any, kernels_win: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    run, report = timed(model)
    with torch.no_grad():
        for x in (X, X.abs(), -X.abs()):
            torch.testing.assert_close(run(x), x + (1 if x.sum() > 0 else -1))
    assert "branch" in report.graphs[0].why and report.graphs[0].chosen == "PyTorch eager"


def test_several_ranks_run_the_same(
    inductor: Any, kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("is_initialized", True), ("get_world_size", 2), ("get_rank", 0)):
        monkeypatch.setattr(dist, name, lambda *_, value=value: value)
    inductor(lambda run: pytest.fail("Inductor has compiled"))
    run, report = timed(nn.Linear(16, 4))
    with torch.no_grad():
        run(X)
    assert report.graphs[0].chosen == "PyTorch eager" and "is one of 2" in report.graphs[0].why


# ---- what is left to Inductor ---------------------------------------------------------------------------


def wrong_from(rows: int, runs: list[int]) -> Any:
    """Inductor that is wrong for so many rows and more."""

    def make(run: Any) -> Any:
        def call(*args: Any) -> Any:
            [x] = [one for one in args if isinstance(one, torch.Tensor)]
            runs.append(len(x))
            return tuple(one + (len(x) >= rows) for one in run(*args))

        return call

    return make


@pytest.mark.parametrize("rows", [0, 6, 1000])
def test_sizes_that_change_are_held_against_eager(
    rows: int, inductor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[int] = []
    inductor(wrong_from(rows, runs))
    run, report = timed(writes_and_doubles)
    sizes = (4, 5, 6, 5, 7, 8, 9, 10)
    with torch.no_grad():
        for size in sizes:
            mine, theirs = torch.randn(size, 8).repeat(2, 1, 1)
            torch.testing.assert_close(run(mine), writes_and_doubles(theirs))
            torch.testing.assert_close(mine, theirs)
    last = report.graphs[-1]
    if rows < 1000:
        assert last.chosen == "PyTorch eager" and last.left_out == {"torch.compile": held.OTHER_VALUES}
        told = [one.getMessage() for one in caplog.records if "not by torch.compile" in one.getMessage()]
        assert len(told) == 1 and last.name in told[0]
    else:
        assert last.chosen == "torch.compile" and last.held == held.MOST_SIZES
        assert runs[-1] == 10 and runs.count(10) == 1  # after so many sizes it runs for the caller alone


def writes_and_doubles(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1.0).relu() * 2


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


@pytest.mark.parametrize("wrong", [False, True])
def test_gradients_are_held_against_eager(wrong: bool, inductor: Any) -> None:
    inductor(lambda run: (lambda *args: tuple(map(WrongGradient.apply, run(*args)))) if wrong else run)
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Softmax(-1)).train()
    expected, x = copy.deepcopy(model), torch.randn(4, 16)
    run, report = timed(model)
    for one in (run, expected):
        one(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    graph = report.graphs[0]
    assert graph.chosen == ("PyTorch eager" if wrong else "torch.compile") and graph.held == (not wrong)


def test_holding_leaves_no_trace() -> None:
    """Not in what is written to, not in ``grad``, not in hooks, not in random numbers."""
    hooks: list[str] = []
    weight, x = torch.ones(4, requires_grad=True), torch.ones(4)
    weight.register_hook(lambda gradient: hooks.append("hook"))

    def model(w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        x.mul_(2)
        return (w * x,)

    def drawing(w: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        torch.rand(1)
        return model(w, x)

    row = GraphReport("graph")
    graph = held.HeldGraph(drawing, model, [weight, x], frozenset((1,)), row, ("a", "b"), 60.0)
    state = torch.get_rng_state()
    graph._hold([weight, x])
    assert row.held == 1 and not hooks and weight.grad is None and x.tolist() == [1.0] * 4
    assert torch.equal(torch.get_rng_state(), state) and weight._version == x._version == 0


def test_what_inductor_cannot_run_is_eagers(inductor: Any) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("out of luck\nat length")

    inductor(lambda run: fails)
    model = nn.Linear(16, 4)
    run, report = timed(model)
    torch.testing.assert_close(run(X), model(X))
    assert report.graphs[0].left_out == {"torch.compile": "out of luck"}


# ---- first runs that do not end -------------------------------------------------------------------------


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What does not end before the test does. Whoever waits for it gives up as soon as it has begun, and
    for nothing else, however busy the host."""
    begun, over = threading.Event(), threading.Event()

    class GivesUp(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            while not (self.is_set() or begun.is_set()):
                super().wait(0.01)
            begun.clear()
            return self.is_set()

    def run(*args: Any) -> None:
        begun.set()
        over.wait()

    monkeypatch.setattr(limits, "Event", GivesUp)
    yield run
    over.set()


@pytest.mark.parametrize("compiles", [False, True])
def test_inductor_that_does_not_end_is_left(compiles: bool, inductor: Any, never: Any) -> None:
    inductor(lambda run: never() if compiles else never)
    model = nn.Linear(16, 4)
    run, report = timed(model, limit_s=1.0)
    with torch.no_grad():
        torch.testing.assert_close(run(X), model(X))
    assert report.graphs[0].chosen == "PyTorch eager"
    assert report.graphs[0].left_out == {"torch.compile": "it had not ended after 1 s"}


def test_what_is_left_to_inductor_and_does_not_end_is_eagers(inductor: Any, never: Any) -> None:
    inductor(lambda run: never)
    run, report = timed(torch.relu, limit_s=1.0)
    with torch.no_grad():
        torch._dynamo.mark_dynamic(x := X.clone(), 0)
        torch.testing.assert_close(run(x), torch.relu(x))
    assert "sizes change" in report.graphs[0].why
    assert report.graphs[0].left_out == {"torch.compile": "it had not ended after 1 s"}


class Always(dict[str, Any]):
    """The same kernel for whatever is asked."""

    def get(self, key: str, default: Any = None) -> Any:
        return self["kernel"]


def test_a_kernel_that_does_not_end_is_left(never: Any, kernels_win: None) -> None:
    class Endless:
        binds_outputs = True

        def bind(self, inputs: Any, outputs: Any = None) -> Any:
            return never

        def close(self) -> None:
            pass

    run, report = compiled(torch.tanh, KnowsAll(kernels=Always(kernel=Endless())), limit_s=1.0)
    with torch.no_grad():
        torch.testing.assert_close(run(X), torch.tanh(X))
    assert report.replaced == 0
    assert report.graphs[0].left_out == {"aten.tanh.default": "it had not ended after 1 s"}


@pytest.mark.parametrize(
    ("seconds", "chosen"), [((3.0, 1.0), "torch.compile"), ((1.0, 3.0), "PyTorch eager")]
)
def test_what_takes_too_long_for_turns_runs_once_more(
    seconds: tuple[float, float], chosen: str, inductor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(seconds)
    monkeypatch.setattr(contest, "LEAST_RUNS", 1e12)
    monkeypatch.setattr(contest, "line_up", lambda *_, **__: pytest.fail("turns"))
    monkeypatch.setattr(contest.Contest, "_seconds", lambda *_: next(left))
    run, report = timed(nn.Linear(16, 4))
    with torch.no_grad():
        run(X)
    [graph] = report.graphs
    assert graph.chosen == chosen and "each was timed once" in graph.left_out["turns"]


# ---- Inductor itself ------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_where_inductor_is_wrong_eager_runs(dynamic: bool | None) -> None:
    """PyTorch's issue 198270: a flip reads what was put in place before."""

    def model(x: torch.Tensor) -> torch.Tensor:
        x.index_put_((torch.arange(x.size(0)),), x * 2.0)
        return x.add_(x.flip(0))

    report = TorchReport()
    options = {"client": KnowsAll(only=lambda one: False), "report": report, "try_s": 0.1}
    run = torch.compile(model, backend=backend.opatlas, options=options, dynamic=dynamic)
    with torch.no_grad():
        for size in (4, 6, 9, 6):
            mine, theirs = torch.randn(size, 8).repeat(2, 1, 1)
            torch.testing.assert_close(run(mine), model(theirs))
            torch.testing.assert_close(mine, theirs)
    for graph in report.graphs:
        assert graph.left_out == {"torch.compile": held.OTHER_VALUES} and graph.chosen == "PyTorch eager"


@pytest.mark.nightly
def test_training_by_inductor_is_held_and_right() -> None:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    model = nn.Sequential(*layers).train()
    expected, report = copy.deepcopy(model), TorchReport()
    run = torch.compile(model, backend=backend.opatlas, options={"report": report, "offline": True})
    for rows in (2, 2, 3, 4):
        x = torch.randn(rows, 3, 8, 8)
        for one in (run, expected):
            one(x).square().sum().backward()
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    for mine, theirs in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-4)
    assert {(graph.chosen, graph.held >= 1) for graph in report.graphs} == {("torch.compile", True)}
