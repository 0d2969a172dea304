"""Graphs as ``torch.compile`` runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from opatlas.dynamo.aten import copy_of
from opatlas.dynamo.outcome import Call


def compiled(module: fx.GraphModule, inputs: Sequence[Any]) -> Call:
    """A graph that Dynamo found."""
    from torch._inductor.compile_fx import compile_fx

    made: Call = compile_fx(copy_of(module), list(inputs))  # type: ignore[assignment]
    return made


def compiled_aten(module: fx.GraphModule, inputs: Sequence[Any]) -> Call:
    """A graph that was traced already, apart from what Dynamo knows of the first one."""
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
        made: Call = compile_fx(module, list(inputs), ignore_shape_env=True)  # type: ignore[assignment]
    return made
