"""What a graph does beside computing: found out without running it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.nn import functional as F

from opatlas.dynamo.effects import Effects, effects_of, other_ranks

X = torch.linspace(-1.0, 1.0, 32).reshape(4, 8)
happened: list[str] = []


@torch.library.custom_op("opatlas_test::logged", mutates_args=())
def logged(x: torch.Tensor) -> torch.Tensor:
    happened.append("logged")
    return x.clone()


@logged.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("opatlas_test::scaled", mutates_args={"x"})
def scaled(x: torch.Tensor) -> None:
    happened.append("scaled")
    x.mul_(2)


@torch._dynamo.allow_in_graph
def noted(x: torch.Tensor) -> torch.Tensor:
    happened.append("noted")
    return x + 1


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gradient * 2


def effects(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Effects:
    """Of the one graph that Dynamo makes of it."""
    found: list[Effects] = []

    def backend(module: Any, inputs: Any) -> Any:
        happened.clear()  # Dynamo itself calls what is allowed in graphs
        found.append(effects_of(module, inputs))
        assert not happened
        return module.forward

    torch.compile(model, backend=backend, **kwargs)(*args)
    [one] = found
    return one


def in_no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y + x


def turning_gradients_off(x: torch.Tensor) -> torch.Tensor:
    torch._C._set_grad_enabled(False)
    return x + 1


def in_autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu"):
        return x @ x.T


def putting(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    x.index_put_((at,), x * 2.0)
    return x.add_(x.flip(0))


def into_a_view(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:].copy_(y[1:])
    return x.sum()


def into_its_own(x: torch.Tensor) -> torch.Tensor:
    made = torch.zeros(3, 1)
    made.unsqueeze_(0).add_(1.0)
    return made + x.sum()


COMPUTES = {
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), (X,), set()),
    "modes that are left": (in_no_grad, (X,), set()),
    "autocast": (in_autocast, (X,), set()),
    "vmap": (torch.func.vmap(lambda x: x.sum() * 2), (X,), set()),
    "NumPy": (lambda x: torch.from_numpy(np.tanh(x.numpy())) + x, (X,), set()),
    "attributes and numbers": (lambda x: x.to(torch.float64).size(0) * x.t() + torch.tensor(3), (X,), set()),
    "dropout that is off": (lambda x: F.dropout(x, training=False) + 1, (X,), set()),
    "an autograd function without gradients": (lambda x: Twice.apply(x) + 1, (X,), set()),
    "in place": (lambda x, y: (y.mul_(2), x + y)[1], (X.clone(), X.clone()), {1}),
    "put in place": (putting, (X.clone(), torch.arange(4)), {0}),
    "setitem": (lambda x: x.__setitem__(slice(1), 1.0) or x, (X.clone(),), {0}),
    "through a view": (into_a_view, (X.clone(), X), {0}),
    "what it made itself": (into_its_own, (X,), set()),
    "views of one memory": (lambda x, y: x.mul_(2) + y, torch.ones(8).unfold(0, 4, 2)[:2].unbind(), {0, 1}),
    "out=": (lambda x, y: torch.add(x, 1, out=y), (X, torch.empty(4, 8)), {1}),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPUTES)
def test_what_computes_may_run_on_copies_of_what_it_writes(name: str) -> None:
    model, args, written = COMPUTES[name]
    with torch.no_grad():
        found = effects(model, *args)
    assert not found.why and len(found.written) == len(written)


def test_running_statistics_are_written_though_no_schema_says_it() -> None:
    for model in (nn.BatchNorm1d(8), nn.InstanceNorm1d(4, track_running_stats=True)):
        found = effects(model.train(), X)
        assert len(found.written) >= 2 and not found.why
        torch._dynamo.reset()
        assert not effects(model.eval(), X).written
        torch._dynamo.reset()


def reshaping(x: torch.Tensor) -> torch.Tensor:
    return x.t_() + 1


ACTS = {
    "an operator of others": (lambda x: logged(x) + 1, "not PyTorch's own, .*opatlas_test.logged"),
    "a writing one of others": (lambda x: (scaled(x), x + 1)[1], "not PyTorch's own, .*opatlas_test.scaled"),
    "a function of others": (lambda x: noted(x) * 2, r"function that is not PyTorch's own \(noted\)"),
    "dropout": (lambda x: F.dropout(x, training=True), "random numbers"),
    "rand": (lambda x: x + torch.rand(8), "random numbers"),
    "randn_like": (lambda x: x + torch.randn_like(x), "random numbers"),
    "bernoulli_": (lambda x: x.clone().bernoulli_(0.5), "random numbers"),
    "multinomial": (lambda x: torch.multinomial(x.abs(), 2), "random numbers"),
    "attention with dropout": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5), "random numbers"
    ),
    "a branch": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), r"branch.*\(cond\)"),
    "a mode that stays": (turning_gradients_off, "changes how PyTorch computes"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTS)
def test_what_does_more_than_compute_is_not_run(name: str) -> None:
    model, why = ACTS[name]
    with torch.enable_grad():
        found = effects(model, X.clone())
    assert found.why and not found.written
    assert re.search(why, found.why), found.why


def test_an_autograd_function_that_gradients_are_wanted_of_is_not_run() -> None:
    assert "branch" in effects(lambda x: Twice.apply(x) + 1, X.clone().requires_grad_()).why


def test_a_form_that_an_input_gets_in_place_is_not_tried() -> None:
    module = torch.fx.symbolic_trace(reshaping)
    assert "form of an input" in effects_of(module, [X.clone()]).why


def test_a_tensor_that_the_graph_itself_holds_and_writes_to() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4, 8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count[1:].add_(1.0)
            return self.count + x

    class Tracer(torch.fx.Tracer):
        proxy_buffer_attributes = True

    model = Counting()
    module = torch.fx.GraphModule(model, Tracer().trace(model))
    assert "none of its inputs" in effects_of(module, [X]).why
    assert not model.count.any()


def test_inputs_that_cannot_be_copied() -> None:
    module = torch.fx.symbolic_trace(lambda x: x * 2)
    assert "sparse" in effects_of(module, [X.to_sparse()]).why
    assert "another class" in effects_of(module, [torch.nested.nested_tensor([X], layout=torch.jagged)]).why
    assert "neither tensors nor numbers (Generator)" in effects_of(module, [torch.Generator()]).why
    memory = np.zeros(8, np.float32)
    halves = [torch.from_numpy(memory[:6]), torch.from_numpy(memory[2:])]  # of which PyTorch does not know
    module = torch.fx.symbolic_trace(lambda x, y: x.mul_(2) + y)
    assert "several of its inputs lie in" in effects_of(module, halves).why


@pytest.mark.parametrize("key", ["CPU", "Autograd", "AutogradOther", "CompositeImplicitAutograd"])
def test_an_operator_that_somebody_has_replaced(key: str) -> None:
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("aten::erfinv", lambda x: x.clone(), key)
        assert "own any more" in effects(torch.erfinv, X).why
    torch._dynamo.reset()
    assert not effects(torch.erfinv, X).why


def test_symbolic_sizes_stay_symbolic() -> None:
    seen: list[int] = []

    def backend(module: Any, inputs: Any) -> Any:
        seen.append(len(inputs))
        assert not effects_of(module, inputs).why
        return module.forward

    run = torch.compile(lambda x: x.flip(0) + x.size(0), backend=backend, dynamic=True)
    for rows in (4, 5, 9):
        run(torch.ones(rows, 8))
    assert len(seen) == 1


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_collectives_are_not_run(one_rank: None) -> None:
    def reduced(x: torch.Tensor) -> torch.Tensor:
        return collectives.all_reduce(x, "sum", dist.group.WORLD).relu()

    def gathered(x: torch.Tensor) -> torch.Tensor:
        return collectives.all_gather_tensor(x, 0, dist.group.WORLD) + 1

    def in_place(x: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(x)
        return x + 1

    for model in (reduced, gathered, in_place):
        assert "talks to other processes" in effects(model, X.clone()).why
        torch._dynamo.reset()
    assert other_ranks() == ""
