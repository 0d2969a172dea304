"""PyTorch with one thread, and a contest that kernels win: on a busy host anybody may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from opatlas.dynamo import backend, contest
from opatlas.evidence import Ratios
from opatlas.plan.line_up import TimedInTurns
from tests.opatlas.client.conftest import *  # noqa: F403 - the served catalogue


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
    def standings(runs: Any, seconds: float) -> dict[str, TimedInTurns]:
        for run in runs.values():
            run()
        ratios = [1.0, *(3.0 - 0.1 * at for at in range(len(runs)))]  # the more kernels the better
        return {
            name: TimedInTurns(name, 10.0 / ratio, Ratios(ratio, 0.9 * ratio, 1.1 * ratio))
            for name, ratio in zip(runs, ratios, strict=False)
        }

    monkeypatch.setattr(contest, "line_up", standings)
    monkeypatch.setattr(contest.statistics, "median", lambda times: 99.0)
