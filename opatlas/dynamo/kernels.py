"""Kernels of the catalogue as an operator of PyTorch's: ``opatlas::call(tensors, site)``, which Inductor
leaves as it is and compiles around."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import fx

from opatlas.client.loading.function import KernelFunction
from opatlas.dynamo.operators import NodeOperator, in_place_of
from opatlas.dynamo.weights import WatchedWeights
from opatlas.errors import first_line

log = logging.getLogger("opatlas")
_numbers = itertools.count()


class SharedKernel:
    """A loaded kernel, one call at a time: what several nodes of a graph run by."""

    def __init__(self, function: KernelFunction, artifact: str) -> None:
        self.function, self.artifact = function, artifact
        self.lock = threading.Lock()


class KernelSite:
    """A kernel in the place of one node of a graph: reads tensors where they lie, writes new ones.

    Whatever fails, or is given what it was not made for, is PyTorch's own call, from then on.
    """

    def __init__(
        self, node: fx.Node, read: NodeOperator, kernel: SharedKernel, owners: Mapping[fx.Node, int]
    ) -> None:
        """``owners``: of nodes that are weights, or views of them, the number of the graph's input."""
        self.operator = read.operator
        self.tensors = tuple(dict.fromkeys(node.all_input_nodes))
        self.kernel = kernel
        self.failure = ""
        # Inductor caches what it compiled by the graph's text: the operator in the name says what is made.
        self.name = f"{read.operator.key}/{next(_numbers)}"
        self.made = [(tuple(value.shape), value.dtype) for value in self._values(node, read)]
        self._node = node
        self._read = {number: self.tensors.index(one) for number, one in read.tensors.items()}
        self._outputs = read.outputs[: len(self.made)]
        constants = set(read.operator.constant_inputs)
        watched = {number: owners[one] for number, one in read.tensors.items() if number in constants}
        self._weights = WatchedWeights(watched, read.numbers) if constants else None
        _sites[self.name] = self

    @staticmethod
    def _values(node: fx.Node, read: NodeOperator) -> Sequence[torch.Tensor]:
        value = node.meta["val"]
        return value[: len(read.outputs)] if isinstance(value, tuple | list) else [value]

    @property
    def artifact(self) -> str:
        return self.kernel.artifact

    def close(self) -> None:
        """Its kernel is not needed any more, unless other nodes run by it."""
        if self._weights is not None:
            self.kernel.function.close()

    @property
    def packed(self) -> int:
        """How often weights were packed; numbers of the call itself are none."""
        return self._weights.packed if self._weights is not None and self._weights.owners else 0

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What the node makes of its inputs, in the order of ``tensors``."""
        if not self.failure:
            try:
                return self._by_kernel(tensors)
            except Exception as error:
                self.failure = first_line(error)
                log.warning("A kernel for %s gives way to PyTorch: %s", self._node.target, self.failure)
        return self.by_pytorch(tensors)

    def by_pytorch(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The same by PyTorch's own call."""
        made = in_place_of(self._node, dict(zip(self.tensors, tensors, strict=True)))
        several = list(made) if isinstance(made, tuple | list) else [made]
        return several[: len(self.made)]

    def _by_kernel(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = {number: tensors[at] for number, at in self._read.items()}
        listed: list[Any] = [None] * len(self.operator.inputs)
        for number, tensor in given.items():
            listed[number] = tensor
        made: list[torch.Tensor] = [torch.empty(0)] * len(self.operator.outputs)
        results = []
        for (shape, dtype), number in zip(self.made, self._outputs, strict=True):
            made[number] = torch.empty(shape, dtype=dtype)
            results.append(made[number])
        for number, value in enumerate(self.operator.output_values):
            if number not in self._outputs:
                made[number] = torch.empty(value.shape, dtype=getattr(torch, value.dtype))
        with self.kernel.lock:
            if self._weights is not None:
                self._weights.pack_if_changed(self.kernel.function, given)
            self.kernel.function.bind(listed, made)()
        return results


_sites: weakref.WeakValueDictionary[str, KernelSite] = weakref.WeakValueDictionary()
"""Those of graphs that can still run."""


def _call(tensors: list[torch.Tensor], site: str) -> list[torch.Tensor]:
    return _sites[site](tensors)


def _shapes(tensors: list[torch.Tensor], site: str) -> list[torch.Tensor]:
    return [torch.empty(shape, dtype=dtype) for shape, dtype in _sites[site].made]


_library = torch.library.Library("opatlas", "DEF")
_library.define(
    "call(Tensor[] tensors, str site) -> Tensor[]",
    tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag),
)
_library.impl("call", _call, "CPU")
torch.library.register_fake("opatlas::call", _shapes, lib=_library)


def with_kernels(module: fx.GraphModule, sites: Mapping[str, KernelSite]) -> fx.GraphModule:
    """A copy of the graph in which these nodes (by name) are run by kernels."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        site = sites.get(node.name)
        if site is None:
            copied[node] = graph.node_copy(node, lambda one: copied[one])
            copied[node].meta = {}
            continue
        tensors = [copied[one] for one in site.tensors]
        made = graph.call_function(torch.ops.opatlas.call.default, (tensors, site.name))
        if isinstance(node.meta["val"], torch.Tensor):
            made = graph.call_function(getitem, (made, 0))
        copied[node] = made
    replaced = fx.GraphModule(module, graph)
    replaced.graph.lint()
    return replaced
