"""A client that knows a kernel for every operator, and models whose weights change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opatlas.client import Answer, Client, KernelFunction
from opatlas.dynamo.backend import opatlas
from opatlas.dynamo.report import TorchReport
from opatlas.identity import Operator, Setting
from opatlas.load import Manifest

ARTIFACT = "0" * 64


class KnowsAll(Client):
    """Offline; its kernels are PyTorch's own calls, so that only what is around them can be wrong.
    ``kernels`` gives others by an operator's key; ``only``: what it knows."""

    def __init__(
        self,
        cache: Path | bool = False,
        only: Callable[[Operator], bool] = lambda operator: True,
        kernels: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(setting=Setting(threads=1), cache=cache, sidecar=False, offline=True)
        self._only, self._kernels = only, kernels or {}
        self.operators: dict[str, Operator] = {}
        self.waited: list[float] = []

    def lookup_all(
        self, operators: Sequence[Any], *, wait_s: float = 0.0, wait_for: str = "first"
    ) -> list[Answer]:
        self.waited.append(wait_s)
        self.operators |= {one.key: one for one in operators}
        best = {"artifact": ARTIFACT, "kind": "c-abi", "median_us": 1.0, "route": "r", "label": "l"}
        return [
            Answer(one.key, "hit", best) if self._only(one) else Answer(one.key, "miss") for one in operators
        ]

    def load(self, answer: Answer, places: Sequence[int] | None = None) -> KernelFunction:
        operator = self.operators[answer.key]
        manifest = Manifest("c-abi", "r", operator.to_json(), Setting(threads=1).to_json(), {})
        return KernelFunction(operator, manifest, places, kernel=self._kernels.get(answer.key))


def compiled(model: Any, client: Client | None, **options: Any) -> tuple[Any, TorchReport]:
    """By PyTorch eager and kernels: Inductor takes seconds for each graph."""
    report = TorchReport()
    options = {"frameworks": ("eager",), "client": client, "report": report} | options
    return torch.compile(model, backend=opatlas, options=options), report


class Linear(nn.Module):
    """Weights that a kernel can pack, one of them through a view."""

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = inner if inner is not None else nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x))


X = torch.linspace(-1.0, 1.0, 64).reshape(4, 16)
