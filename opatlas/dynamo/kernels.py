"""Kernels of the catalogue as an operator of PyTorch's: ``opatlas::call(tensors, site)``, which Inductor
leaves as it is and compiles around."""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import fx

from opatlas.client.loading.function import KernelFunction
from opatlas.dynamo.operators import NodeOperator, in_place_of
from opatlas.dynamo.weights import WatchedWeights
from opatlas.errors import first_line
from opatlas.load.buffers import element_strides
from opatlas.load.kernel import KernelFailed
from opatlas.load.torch.ops.types import TORCH_TYPES

log = logging.getLogger("opatlas")
_numbers = itertools.count()


class SharedKernel:
    """A loaded kernel, one call at a time: what several nodes of a graph run by."""

    def __init__(self, function: KernelFunction, artifact: str) -> None:
        self.function, self.artifact = function, artifact
        self.lock = threading.Lock()


class KernelSite:
    """A kernel in the place of one node of a graph, or of several: reads tensors where they lie, writes new
    ones.

    Whatever fails, or is given what it was not made for, is PyTorch's own call, from then on.
    """

    def __init__(
        self,
        node: fx.Node,
        read: NodeOperator,
        kernel: SharedKernel,
        owners: Mapping[fx.Node, int],
        inner: Sequence[fx.Node] = (),
    ) -> None:
        """``owners``: of nodes that are weights, or views of them, the number of the graph's input;
        ``inner``: nodes before this one that it does too, in order, which nobody else reads."""
        self.operator = read.operator
        self.inner = tuple(inner)
        given = (one for part in (*inner, node) for one in part.all_input_nodes if one not in inner)
        self.tensors = tuple(dict.fromkeys(given))
        self.kernel = kernel
        self.failure = ""
        # Inductor caches what it compiled by the graph's text: the operator in the name says what is made.
        self.name = f"{read.operator.key}/{next(_numbers)}"
        self.made = [(tuple(value.shape), value.dtype) for value in self._values(node, read)]
        self._node = node
        self._read = {number: self.tensors.index(one) for number, one in read.tensors.items()}
        self._outputs = read.outputs[: len(self.made)]
        self._all = [(one.shape, TORCH_TYPES[one.dtype]) for one in self.operator.output_values]
        self._runtime = [
            (number, (value := self.operator.inputs[number]).shape, element_strides(value))
            for number in self.operator.runtime_inputs
        ]
        self._alignment = kernel.function.manifest.alignment
        self._quick: Callable[[Sequence[int]], None] | None = None
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
        return self._weights.packed if self._weights is not None and self.packs_weights else 0

    @property
    def packs_weights(self) -> bool:
        return self._weights is not None and bool(self._weights.owners)

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
        known: dict[fx.Node, Any] = dict(zip(self.tensors, tensors, strict=True))
        for one in self.inner:
            known[one] = in_place_of(one, known)
        made = in_place_of(self._node, known)
        several = list(made) if isinstance(made, tuple | list) else [made]
        return several[: len(self.made)]

    def _by_kernel(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        given = {number: tensors[at] for number, at in self._read.items()}
        made = [torch.empty(shape, dtype=dtype) for shape, dtype in self._all]
        with self.kernel.lock:
            if self._weights is not None and self._weights.pack_if_changed(self.kernel.function, given):
                self._quick = None
            if not self._ran_by_address(given, made):
                listed: list[Any] = [None] * len(self.operator.inputs)
                for number, tensor in given.items():
                    listed[number] = tensor
                self.kernel.function.bind(listed, made)()
        return [made[number] for number in self._outputs]

    def _ran_by_address(self, given: Mapping[int, torch.Tensor], made: Sequence[torch.Tensor]) -> bool:
        """Whether that was possible, which spares most of what a call costs beside the kernel."""
        if self._quick is None or self.kernel.function.failure:  # at another node of the graph
            self._quick = self.kernel.function.by_address()
            if self._quick is None:
                return False
        addresses = []
        for number, shape, stride in self._runtime:
            tensor = given[number]
            if tensor.shape != shape or tensor.stride() != stride:
                return False
            addresses.append(tensor.data_ptr())
        addresses += [one.data_ptr() for one in made]
        if any(address % self._alignment for address in addresses):
            return False
        try:
            self._quick(addresses)
        except KernelFailed:
            self._quick = None
            return False
        return True


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


def with_kernels(
    module: fx.GraphModule, sites: Mapping[str, KernelSite], *, as_operators: bool
) -> fx.GraphModule:
    """A copy of the graph in which these nodes (by name) are run by kernels: ``as_operators`` of PyTorch's,
    for who compiles around them, else by calls, which cost less."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    inner = {node for site in sites.values() for node in site.inner}
    for node in module.graph.nodes:
        if node in inner:
            continue
        site = sites.get(node.name)
        if site is None:
            copied[node] = graph.node_copy(node, lambda one: copied[one])
            copied[node].meta = {}
            continue
        tensors = [copied[one] for one in site.tensors]
        if as_operators:
            made = graph.call_function(torch.ops.opatlas.call.default, (tensors, site.name))
        else:
            made = graph.call_function(_function(site), (tensors,))
        if isinstance(node.meta["val"], torch.Tensor):
            made = graph.call_function(getitem, (made, 0))
        copied[node] = made
    replaced = fx.GraphModule(module, graph)
    replaced.graph.lint()
    return replaced


def _function(site: KernelSite) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """With a name, which a graph wants of what it calls."""

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return site(tensors)

    return kernel
