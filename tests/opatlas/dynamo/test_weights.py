"""Weights that change after a graph was compiled: read at each run, or packed and noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.opatlas.dynamo.making import KnowsAll, Linear, X, compiled


def step(model: Linear) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with torch.enable_grad():
        model(X).sum().backward()
    optimizer.step()


def load(model: Linear) -> None:
    model.load_state_dict(Linear().state_dict())


def swap(model: Linear) -> None:
    model.inner = nn.Linear(16, 8)


def add(model: Linear) -> None:
    with torch.no_grad():
        model.inner.weight.add_(1.0)


def add_in_inference(model: Linear) -> None:
    with torch.inference_mode():
        model.inner.weight.mul_(2.0)


def replace_data(model: Linear) -> None:
    model.inner.weight.data = torch.randn(8, 16)
    model.inner.weight.data = torch.randn(8, 16)  # which may lie where the first one lay


def through_data(model: Linear) -> None:
    model.inner.weight.data.add_(1.0)


def through_numpy(model: Linear) -> None:
    model.inner.bias.detach().numpy()[...] = 3.0


SEEN = [step, load, swap, add, add_in_inference, replace_data]


def changed(change: Callable[[Linear], None], **options: Any) -> tuple[bool, Any]:
    """Whether the compiled model gives what the model gives after a change, and its report."""
    torch.manual_seed(0)
    model = Linear()
    run, report = compiled(model, KnowsAll(), **options)
    with torch.no_grad():
        torch.testing.assert_close(run(X), model(X))
        torch.testing.assert_close(run(X), model(X))
    before = model(X)
    change(model)
    with torch.no_grad():
        after = model(X)
        assert not torch.allclose(before, after)
        return torch.allclose(run(X), after, atol=1e-6), report


@pytest.mark.parametrize("change", [*SEEN, through_data, through_numpy])
def test_weights_are_read_at_each_run(change: Any, kernels_win: None) -> None:
    right, report = changed(change)
    assert right and report.replaced >= 2 and report.graphs[-1].packed == 0


@pytest.mark.parametrize("change", SEEN)
def test_packed_weights_are_packed_again_when_they_change(change: Any, kernels_win: None) -> None:
    right, report = changed(change, freeze=True)
    assert right and report.replaced >= 2
    assert report.graphs[0].packed == 2, "once to begin with, once for the change"


@pytest.mark.parametrize("change", [through_data, through_numpy])
def test_what_is_written_past_pytorch_is_not_noticed_in_packed_weights(
    change: Any, kernels_win: None
) -> None:
    right, report = changed(change, freeze=True)
    assert not right and report.graphs[0].packed == 1  # docs/pytorch.md says so


def test_one_graph_of_two_models_has_the_weights_of_the_one_that_is_called(kernels_win: None) -> None:
    inner = [Linear(), Linear()]
    client = KnowsAll()
    runs = [compiled(model, client, freeze=True)[0] for model in inner]
    with torch.no_grad():
        for _ in range(2):
            for model, run in zip(inner, runs, strict=True):
                torch.testing.assert_close(run(X), model(X))
