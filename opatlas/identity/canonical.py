"""A caller's ONNX graph as a canonical :class:`~opatlas.identity.operator.Operator`.

The order of work, node by node in topological order: check against ONNX's schema at the caller's opset, lift
to the canonical opset, read the inputs that shape the computation, infer the outputs, make every default
explicit. Then drop what no output needs, and number what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from onnx import ModelProto

from opatlas.errors import InvalidOperator
from opatlas.identity import schema as schemas
from opatlas.identity.admission.checks import check_shapes, check_step
from opatlas.identity.admission.guards import check_before
from opatlas.identity.bounds import MAX_NODES, refuse, shown
from opatlas.identity.explicit import make_explicit, prepare
from opatlas.identity.infer import infer, signature
from opatlas.identity.lift import lift
from opatlas.identity.operator import OPSET, Operator
from opatlas.identity.order import Graph, number
from opatlas.identity.read_model import read_model
from opatlas.identity.statics import read_statics, settle_statics
from opatlas.identity.workbench import NodeStep, SourceGraph, Workbench


@dataclass(frozen=True)
class Canonical:
    """A canonical operator and the caller's names of its inputs and outputs.

    ``inputs[i]`` is the caller's name of input ``i``: of a tensor always, of an input with ``data`` only
    where it was a value of the caller's (None: an attribute became it). ``outputs[i]`` names
    ``operator.outputs[i]``.
    """

    operator: Operator
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]


def canonicalise(
    model: ModelProto,
    const: Collection[str] = (),
    strides: Mapping[str, Sequence[int]] | None = None,
) -> Canonical:
    """The canonical form of a model's graph.

    Initializers and the inputs named in ``const`` become constants; ``strides`` gives inputs' layouts in
    elements (row-major and dense where not named). Raises :class:`opatlas.errors.InvalidOperator`.
    """
    return settle(read_model(model, const, strides))


def settle(source: SourceGraph) -> Canonical:
    """The canonical form of a graph that was read."""
    work = Workbench(source)
    ordered = _in_order(source)
    needed = _needed(ordered, source)
    done: list[NodeStep] = []
    for step in ordered:
        if not needed.isdisjoint(step.outputs):
            try:
                done += _settle_step(step, source.opset, work, needed)
            except InvalidOperator as error:
                error.where = error.where or step.where
                raise
    if len(done) > MAX_NODES:
        refuse(
            f"The graph has {len(done)} nodes at ONNX opset {OPSET}; at most {MAX_NODES} make one operator."
        )
    for name in source.outputs:
        if not any(name in step.outputs for step in done):
            refuse(f"Output '{shown(name)}' is no node's result; every output must be computed.", "outputs")
    numbered = number(Graph(done, work.values, source.outputs))
    inputs = tuple(
        name if work.value(name).data is None or name in source.values else work.origin.get(name)
        for name in numbered.inputs
    )
    for called, value in zip(inputs, numbered.operator.inputs, strict=True):
        if value.data is None and 0 in value.shape:
            refuse(f"'{shown(called)}' is an empty tensor {list(value.shape)}; there is nothing to compute.")
    return Canonical(numbered.operator, inputs, numbered.outputs)


def _in_order(source: SourceGraph) -> list[NodeStep]:
    """The steps with every value made before it is read."""
    if not source.steps or not source.outputs:
        refuse("The graph computes nothing; it needs at least one node and one output.", "nodes")
    makers: dict[str, int] = {}
    for index, step in enumerate(source.steps):
        for name in filter(None, step.outputs):
            if name in makers or name in source.values:
                refuse(f"Two values are called '{shown(name)}'; names must be unique.")
            makers[name] = index
    waiting: list[set[int]] = []
    readers: list[set[int]] = [set() for _ in source.steps]
    for index, step in enumerate(source.steps):
        before = set()
        for name in filter(None, step.inputs):
            if name in makers:
                before.add(makers[name])
                readers[makers[name]].add(index)
            elif name not in source.values:
                refuse(f"{shown(step.op)} reads '{shown(name)}', which nothing produces.")
        waiting.append(before)
    ready = [index for index, before in enumerate(waiting) if not before]
    order = []
    while ready:
        index = ready.pop()
        order.append(source.steps[index])
        for reader in readers[index]:
            waiting[reader].discard(index)
            if not waiting[reader]:
                ready.append(reader)
    if len(order) < len(source.steps):
        refuse("The graph has a cycle; every value must be made before it is read.")
    return order


def _needed(ordered: list[NodeStep], source: SourceGraph) -> set[str]:
    """Names of the values that some output depends on."""
    needed = set(source.outputs)
    for step in reversed(ordered):
        if not needed.isdisjoint(step.outputs):
            needed.update(name for name in step.inputs if name)
    return needed


def _settle_step(step: NodeStep, opset: int, work: Workbench, needed: set[str]) -> list[NodeStep]:
    """The canonical nodes that one of the caller's nodes becomes."""
    schema = schemas.get(step.op, opset, step.domain)
    step = NodeStep(step.op, list(step.inputs), list(step.outputs), dict(step.attrs))
    check_step(step, schema)
    if step.op != "Split":  # its parts all count, read or not
        while len(step.outputs) > max(schema.min_outputs, 1) and step.outputs[-1] not in needed:
            step.outputs.pop()
    step.outputs = [name or work.fresh() for name in step.outputs]
    lifted = _read(lift(step, opset, work), needed)
    for made in lifted:
        _finish(made, work)
    return lifted


def _read(lifted: list[NodeStep], needed: set[str]) -> list[NodeStep]:
    """Without what only a result that nobody asked for would need."""
    if len(lifted) == 1:
        return lifted
    wanted = {name for step in lifted for name in step.inputs} | needed
    return [step for step in lifted if not wanted.isdisjoint(step.outputs)]


def _finish(step: NodeStep, work: Workbench) -> None:
    """Settle one node at the canonical opset; its outputs become known values."""
    read_statics(step, work)
    prepare(step, work)
    check_before(step, work)
    outputs = infer(step, work)
    check_shapes(step, work, outputs)
    make_explicit(step, work, outputs)
    settle_statics(step, work, outputs)
    for name, value in zip(step.outputs, outputs, strict=True):
        told = work.source.expected.get(name)
        if told is not None and told != (value.dtype, value.shape):
            refuse(
                f"{step.op} on {signature(step, work)} makes {value.dtype}{list(value.shape)}, "
                f"not the {told[0]}{list(told[1])} that is declared."
            )
        work.values[name] = value
