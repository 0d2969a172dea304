"""The bodies of If, Loop and Scan, each walked with the types that its node gives it.

A Loop's carried value has a type inside only where every iteration leaves it the type that it had before: it
is taken as it begins, and where the body makes another shape of it, it is walked anew as a value of unknown
shape. What a body reads of the graph around it is there under its name; constants stay constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from opatlas.errors import InvalidModel
from opatlas.graph.read import MAX_NODES, captured, label, made_in, reads_of, renamed_graph, sort_nodes
from opatlas.graph.types import TensorType
from opatlas.graph.walk import Body, Walk

ROUNDS = 3
"""Walks of one loop's body: as it begins; without what changes its shape; with nothing known of what is
carried."""
MOST_EFFORT = 4 * MAX_NODES
"""Nodes of bodies that are walked for one model: loops within loops would be walked again and again."""

Visit = Callable[[Walk, onnx.GraphProto], None]


@dataclass(frozen=True)
class Opened:
    """Bodies that were walked, and what is known of their node's outputs; or why they could not be."""

    bodies: tuple[Body, ...] = ()
    types: Mapping[str, TensorType] = field(default_factory=dict)
    shut: str = ""


def opened(outer: Walk, node: onnx.NodeProto, visit: Visit) -> Opened:
    """The bodies of a branch or loop. ``visit`` walks a graph whose inputs' types are known. Nothing is
    raised: what is wrong with a body that is never run is nobody's error."""
    how = _HOW.get(node.op_type)
    if how is None or node.domain not in ("", "ai.onnx"):
        return Opened(shut=f"{node.op_type} is not taken apart")
    try:
        return how(outer, node, visit)
    except InvalidModel as error:
        return Opened(shut=str(error).removesuffix("."))


def _if(outer: Walk, node: onnx.NodeProto, visit: Visit) -> Opened:
    graphs = [_graph(outer, node, name, 0, len(node.output)) for name in ("then_branch", "else_branch")]
    bodies = [Body(graph, _walked(outer, graph, {}, visit), _reads(graph)) for graph in graphs]
    types = {}
    for at, name in enumerate(node.output):
        kinds = {body.walk.types.get(body.graph.output[at].name) for body in bodies}
        if len(kinds) == 1 and (kind := kinds.pop()) is not None:
            types[name] = kind
    return Opened(tuple(bodies), types)


def _loop(outer: Walk, node: onnx.NodeProto, visit: Visit) -> Opened:
    carried = list(node.input[2:])
    graph = _graph(outer, node, "body", 2 + len(carried), 1 + len(node.output))
    turn, go = graph.input[:2]
    given = {
        turn.name: TensorType(onnx.TensorProto.INT64, _as_declared(turn)),
        go.name: TensorType(onnx.TensorProto.BOOL, _as_declared(go)),
    }
    formal = [value.name for value in graph.input[2:]]
    made = [value.name for value in graph.output[1:]]
    walk, known = _settle(outer, graph, given, dict(zip(formal, carried, strict=True)), made, visit)
    return Opened((Body(graph, walk, _reads(graph)),), _named(node.output, (known[name] for name in formal)))


def _scan(outer: Walk, node: onnx.NodeProto, visit: Visit) -> Opened:
    if outer.opset < 9:
        raise InvalidModel(f"Scan of ONNX opset {outer.opset} is not taken apart")
    form = scan_form(node)
    graph = _graph(outer, node, "body", len(node.input), len(node.output))
    formal = [value.name for value in graph.input]
    given, lengths = {}, set[int]()
    for at, name in enumerate(node.input[form.states :]):
        kind = outer.types.get(name)
        if kind is None or not kind.shape:
            raise InvalidModel("the shape of what it goes over is not known")
        axis = form.input_axes[at]
        if not -len(kind.shape) <= axis < len(kind.shape):
            raise InvalidModel(f"it goes over axis {axis} of {len(kind.shape)}")
        axis %= len(kind.shape)
        lengths.add(kind.shape[axis])
        given[formal[form.states + at]] = TensorType(kind.element, kind.shape[:axis] + kind.shape[axis + 1 :])
    if len(lengths) != 1:
        raise InvalidModel("what it goes over is of different lengths")
    [length] = lengths
    states = dict(zip(formal[: form.states], node.input[: form.states], strict=True))
    made = [value.name for value in graph.output]
    walk, known = _settle(outer, graph, given, states, made, visit)
    kinds: list[TensorType | None] = [known[name] for name in states]
    for name, axis in zip(made[form.states :], form.output_axes, strict=True):
        kinds.append(_stacked(walk.types.get(name), axis, length))
    return Opened((Body(graph, walk, _reads(graph)),), _named(node.output, kinds))


_HOW: Mapping[str, Callable[[Walk, onnx.NodeProto, Visit], Opened]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}


@dataclass(frozen=True)
class ScanForm:
    """How a Scan goes: how many of its inputs are states, and for each of what it goes over and of what it
    stacks the axis (as the file says it, so maybe negative) and whether it goes backwards."""

    states: int
    input_axes: tuple[int, ...]
    backwards: tuple[bool, ...]
    output_axes: tuple[int, ...]
    prepends: tuple[bool, ...]


def scan_form(node: onnx.NodeProto) -> ScanForm:
    """Read off a Scan's attributes. Raises :class:`InvalidModel` where they do not fit each other."""
    numbers = {one.name: one for one in node.attribute}
    over = numbers["num_scan_inputs"].i if "num_scan_inputs" in numbers else 0
    states = len(node.input) - over
    stacked = len(node.output) - states
    if over < 1 or states < 0 or stacked < 0:
        raise InvalidModel(f"it goes over {over} of {len(node.input)} inputs")

    def each(name: str, count: int) -> tuple[int, ...]:
        found = tuple(numbers[name].ints) if name in numbers else (0,) * count
        if len(found) != count:
            raise InvalidModel(f"'{name}' has {len(found)} numbers, not {count}")
        return found

    return ScanForm(
        states,
        each("scan_input_axes", over),
        tuple(map(bool, each("scan_input_directions", over))),
        each("scan_output_axes", stacked),
        tuple(map(bool, each("scan_output_directions", stacked))),
    )


def _settle(
    outer: Walk,
    graph: onnx.GraphProto,
    given: Mapping[str, TensorType],
    carried: Mapping[str, str],
    made: Sequence[str],
    visit: Visit,
) -> tuple[Walk, dict[str, TensorType | None]]:
    """The body walked with the types of what is carried (formal name → what it begins as) as every iteration
    has them, and these types. ``made``: what each becomes, in order, and more."""
    known = {name: outer.types.get(outer.settled(first)) for name, first in carried.items()}
    for attempt in range(ROUNDS):
        walk = _walked(outer, graph, {**given, **known}, visit)
        moving = [
            name
            for name, after in zip(carried, made, strict=False)
            if known[name] is not None and walk.types.get(after) != known[name]
        ]
        if not moving:
            break
        known |= dict.fromkeys(moving if attempt < ROUNDS - 2 else carried)
    return walk, known


def _walked(
    outer: Walk, graph: onnx.GraphProto, given: Mapping[str, TensorType | None], visit: Visit
) -> Walk:
    outer.effort[0] += len(graph.node)
    if outer.effort[0] > MOST_EFFORT:
        raise InvalidModel("the model's loops are nested too deeply to be taken apart")
    walk = Walk(outer.opset, outer.domains, names=outer.names, effort=outer.effort, dims=outer.dims)
    for name in _reads(graph):
        if name in outer.types:
            walk.types[name] = outer.types[name]
        elif name in outer.blocked:
            walk.blocked[name] = outer.blocked[name]
        else:
            raise InvalidModel(f"it reads '{name}', which nothing makes")
        if name in outer.values:
            walk.values[name] = outer.values[name]
        if name in outer.constants:
            walk.constants.add(name)
        if name in outer.initializers:
            walk.initializers[name] = outer.initializers[name]
    for name, kind in given.items():
        if kind is None:
            walk.blocked[name] = "its input's shape changes with the iterations of a loop"
        else:
            walk.types[name] = kind
    visit(walk, graph)
    return walk


def _graph(outer: Walk, node: onnx.NodeProto, name: str, inputs: int, outputs: int) -> onnx.GraphProto:
    """A body as it can be walked: nodes in an order in which they can run, outer values by the names that
    they have by now."""
    graph = next((one.g for one in node.attribute if one.name == name and one.HasField("g")), None)
    if graph is None or len(graph.input) != inputs or len(graph.output) != outputs:
        raise InvalidModel(f"its '{name}' does not fit {label(node)}")
    if graph.sparse_initializer:
        raise InvalidModel("a sparse tensor")
    own = made_in(graph)
    if len(set(own)) < len(own):
        raise InvalidModel("two of its values have the same name")
    names = {one: outer.settled(one) for one in captured(graph) if one in outer.same}
    if names or not _is_sorted(graph):
        graph = renamed_graph(graph, names)
        sort_nodes(graph)
    return graph


def _is_sorted(graph: onnx.GraphProto) -> bool:
    waiting = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        if not waiting.isdisjoint(reads_of(node)):
            return False
        waiting.difference_update(node.output)
    return True


def _reads(graph: onnx.GraphProto) -> tuple[str, ...]:
    return tuple(sorted(captured(graph)))


def _as_declared(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """A counter or condition is a number, or a list of one."""
    return (1,) if len(value.type.tensor_type.shape.dim) == 1 else ()


def _stacked(kind: TensorType | None, axis: int, length: int) -> TensorType | None:
    if kind is None:
        return None
    rank = len(kind.shape) + 1
    if not -rank <= axis < rank:
        raise InvalidModel(f"it stacks along axis {axis} of {rank}")
    axis %= rank
    return TensorType(kind.element, (*kind.shape[:axis], length, *kind.shape[axis:]))


def _named(names: Sequence[str], kinds: Iterable[TensorType | None]) -> dict[str, TensorType]:
    """Of outputs that somebody asked for, those whose type is known."""
    return {name: kind for name, kind in zip(names, kinds, strict=False) if name and kind is not None}
