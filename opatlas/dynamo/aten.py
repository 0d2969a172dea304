"""The graph that Dynamo hands over, in PyTorch's own operators, without a change to how it is called."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._functorch.aot_autograd import aot_module_simplified
from torch._ops import OpOverload

from opatlas.dynamo.operators import made_by
from opatlas.dynamo.outcome import copies_of
from opatlas.errors import OpatlasError

SIZES_CHANGE = "its sizes change from call to call: dynamic=False gives each a graph of its own"
Run = Callable[[list[Any]], Any]


class LeftToPyTorch(OpatlasError):
    """A graph that takes no part; says why."""


class AtenGraph:
    """An inference graph: ``module`` in aten, its writes to inputs at its end; ``inputs``: what it was called
    with when it was compiled; ``written``: numbers of the inputs in whose memory it writes, as far as that is
    known. Raises :class:`LeftToPyTorch`."""

    def __init__(self, module: fx.GraphModule, inputs: Sequence[Any], written: frozenset[int]) -> None:
        self.inputs = list(inputs)
        self._known = written
        self._captured: fx.GraphModule | None = None
        self._run: Run | None = None
        self._outer = aot_module_simplified(
            copy_of(module), list(inputs), fw_compiler=self._capture, keep_inference_input_mutations=True
        )
        self._check()

    def _capture(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Run:
        self._captured = gm

        def run(args: list[Any]) -> Any:
            assert self._run is not None
            return self._run(args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def _check(self) -> None:
        placeholders = self.placeholders
        if len(placeholders) != len(self.inputs):
            raise LeftToPyTorch("some of its inputs are views of one another")
        for node, given in zip(placeholders, self.inputs, strict=True):
            seen = node.meta.get("val")
            if isinstance(given, torch.Tensor) and (
                not isinstance(seen, torch.Tensor) or (seen.shape, seen.dtype) != (given.shape, given.dtype)
            ):
                raise LeftToPyTorch("some of its inputs are views of one another")
        for node in self.calls:
            tensors = (one for one in made_by(node) if isinstance(one, torch.Tensor))
            if any(isinstance(size, torch.SymInt) for one in tensors for size in one.shape):
                raise LeftToPyTorch(SIZES_CHANGE)

    @property
    def module(self) -> fx.GraphModule:
        if self._captured is None:
            raise LeftToPyTorch("it computes nothing")
        return self._captured

    @property
    def placeholders(self) -> list[fx.Node]:
        return [node for node in self.module.graph.nodes if node.op == "placeholder"]

    @property
    def calls(self) -> list[fx.Node]:
        """Nodes that call an operator."""
        nodes = [node for node in self.module.graph.nodes if node.op == "call_function"]
        return [node for node in nodes if node.target.__name__ != "getitem"]  # type: ignore[union-attr]

    @cached_property
    def written(self) -> frozenset[int]:
        """Numbers of the inputs in whose memory the graph writes."""
        numbers = {node: number for number, node in enumerate(self.placeholders)}
        found = [
            one
            for node in self.calls
            if isinstance(node.target, OpOverload) and node.target._schema.is_mutable
            for one in node.all_input_nodes
        ]
        return self._known.union(numbers[node] for node in found if node in numbers)

    @property
    def parameters(self) -> list[int]:
        """Numbers of the inputs that are a model's parameters, and are not written to."""
        return [
            at
            for at, one in enumerate(self.inputs)
            if isinstance(one, torch.nn.Parameter) and at not in self.written and not one.is_inference()
        ]

    def example(self) -> list[Any]:
        """Inputs for trying: those that the graph writes to are copies."""
        return copies_of(self.inputs, self.written)

    def digest(self) -> str:
        """Of what it computes: its text, and the layout of every value."""
        text = [self.module.code]
        for node in self.module.graph.nodes:
            values = [one for one in made_by(node) if isinstance(one, torch.Tensor)]
            text += [f"{node.name}{one.dtype}{tuple(one.shape)}{one.stride()}" for one in values]
        return hashlib.sha256("\n".join(text).encode()).hexdigest()

    def run_by(self, run: Run) -> Callable[..., Any]:
        """Called as Dynamo calls a graph, running the aten graph by ``run`` (which is given a list)."""

        def call(*args: Any) -> Any:
            self._run = run
            return self._outer(*args)

        return call


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """The graph copied, its tensors shared: whoever compiles a graph may change it."""
    graph = copy.deepcopy(module.graph)
    copied = fx.GraphModule(module, graph)
    copied.meta = dict(module.meta)
    for name in ("_param_name_to_source", "_source_to_user_stacks"):
        if hasattr(module, name):
            setattr(copied, name, getattr(module, name))
    for before, after in zip(module.graph.nodes, graph.nodes, strict=True):
        if hasattr(before, "_dynamo_source"):
            after._dynamo_source = before._dynamo_source
    return copied
