"""Kernels held against PyTorch in their places of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx

from opatlas.dynamo.kernels import KernelSite
from opatlas.dynamo.outcome import are_same
from opatlas.dynamo.weights import inputs_of_graph


@contextmanager
def as_traced() -> Iterator[None]:
    """Casts are in the aten graph."""
    with torch._C._DisableAutocast(), torch.no_grad():
        yield


class NodesCompared(fx.Interpreter):
    """A run by PyTorch in which kernels make each of their nodes as well; ``wrong``: those that do not make
    the same; ``at``: the node whose kernel runs."""

    def __init__(self, module: fx.GraphModule, sites: Mapping[str, KernelSite]) -> None:
        super().__init__(module, garbage_collect_values=False)  # fused ones read what is not read any more
        self._sites = sites
        self.wrong: dict[str, str] = {}
        self.at = ""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with as_traced(), inputs_of_graph(args):
            return super().run(*args, **kwargs)

    def run_node(self, n: fx.Node) -> Any:
        site = self._sites.get(n.name)
        if site is None:
            return super().run_node(n)
        self.at = n.name
        found = site([self.env[one] for one in site.tensors])
        made = super().run_node(n)
        expected = made[: len(found)] if isinstance(made, tuple | list) else [made]
        if site.failure:
            self.wrong[n.name] = site.failure
        elif not are_same(found, expected):
            self.wrong[n.name] = "it makes other values than PyTorch"
        return made
