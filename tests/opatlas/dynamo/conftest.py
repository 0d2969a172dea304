"""PyTorch with one thread, and a contest that kernels win: on a busy host anybody may."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from opatlas.dynamo import backend, contest
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue
from tests.opatlas.plan.standings import the_more_kernels_the_better


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    backend._told.clear()
    yield
    torch.set_num_threads(before)
    torch._dynamo.reset()


@pytest.fixture
def kernels_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "line_up", the_more_kernels_the_better)
    monkeypatch.setattr(contest.statistics, "median", lambda times: 99.0)
