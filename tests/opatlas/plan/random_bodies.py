"""Random models of branches and loops within each other: several element types and shapes, values that are
shared, handed on, swapped and captured, constants inside and outside, loops of no iteration and of an early
end, counts and conditions left out, shapes that grow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Type = tuple[str, tuple[int, ...]]
DTYPES = ("float32", "float64", "int32", "int64")
SHAPES: tuple[tuple[int, ...], ...] = ((3, 4), (4,), (3, 4), (2, 3, 4))
DEPTH = 3
OPSET = 17


class Scope:
    """A graph in the making: its nodes and weights, and the values that can be read in it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.own: list[tuple[str, Type]] = []
        self.values: list[tuple[str, Type]] = list(outer.values) if outer else []
        self.depth: int = outer.depth + 1 if outer else 0

    def has(self, name: str, kind: Type, own: bool = True) -> None:
        self.values.append((name, kind))
        if own:
            self.own.append((name, kind))


class RandomBodies:
    """The same for the same seed. ``shows``: loops stack whatever their bodies make."""

    shapes = SHAPES
    """What values have; inputs have the first."""

    def __init__(self, seed: int, shows: bool = False, nodes: int = 8) -> None:
        self.random, self.shows, self._made = np.random.default_rng(seed), shows, 0
        self.others: list[str] = []  # outputs of the model whose shapes only a run knows
        self.top = Scope()
        self.inputs = {f"x_{dtype}": (dtype, self.shapes[0]) for dtype in DTYPES}
        for name, kind in self.inputs.items():
            self.top.has(name, kind)
        self.grow(self.top, nodes)

    def feed(self, seed: int) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        feed = {
            name: random.integers(-3, 4, shape).astype(dtype) for name, (dtype, shape) in self.inputs.items()
        }
        return {**feed, "trips": np.array(random.integers(0, 5)), "flag": np.array(bool(random.integers(2)))}

    def build(self) -> bytes:
        given = [
            helper.make_tensor_value_info(name, _code(kind), kind[1]) for name, kind in self.inputs.items()
        ]
        given.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
        given.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
        names = [name for name, _ in self.top.own if name not in self.inputs] + self.others
        ends = [helper.make_value_info(name, onnx.TypeProto()) for name in names[-40:]]
        graph = helper.make_graph(self.top.nodes, "bodies", given, ends, self.top.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return bytes(model.SerializeToString())

    # ---- what a graph is made of --------------------------------------------------------------------

    def grow(self, scope: Scope, nodes: int) -> None:
        kinds = [self.unary, self.binary, self.binary, self.cast, self.clip]
        kinds += [self.branch, self.loop, self.scan] if scope.depth < DEPTH else []
        for _ in range(nodes):
            kinds[self.random.integers(len(kinds))](scope)

    def unary(self, scope: Scope) -> None:
        name, kind = self.pick(scope)
        op = self.random.choice(["Neg", "Abs"])
        self.add(scope, op, [name], kind)

    def binary(self, scope: Scope) -> None:
        name, kind = self.pick(scope)
        op = self.random.choice(["Add", "Sub", "Max"])
        self.add(scope, op, [name, self.of_kind(scope, kind)], kind)

    def cast(self, scope: Scope) -> None:
        name, (_, shape) = self.pick(scope)
        self.add(scope, "Cast", [name], ("float64", shape), to=TensorProto.DOUBLE)

    def clip(self, scope: Scope) -> None:
        name, kind = self.pick(scope)
        most = self.weight(scope, 5, (kind[0], ()))
        self.add(scope, "Clip", [name, "", most], kind)

    def branch(self, scope: Scope) -> None:
        kinds = [self.pick(scope)[1] for _ in range(self.random.integers(1, 3))]
        condition = "flag" if self.chance(0.4) else self.condition(scope)
        bodies = {}
        for which in ("then_branch", "else_branch"):
            body = Scope(scope)
            self.grow(body, self.random.integers(0, 4))
            ends = self.ends(body, kinds)
            bodies[which] = _graph(body, [], ends)
        outputs = [self.new() for _ in kinds]
        scope.nodes.append(helper.make_node("If", [condition], outputs, **bodies))
        for name, kind in zip(outputs, kinds, strict=True):
            scope.has(name, kind)

    def loop(self, scope: Scope) -> None:
        kinds = [self.pick(scope)[1] for _ in range(self.random.integers(1, 4))]
        begins = [self.of_kind(scope, kind) for kind in kinds]
        body, turn, go = Scope(scope), self.new(), self.new()
        formal = [self.new() for _ in kinds]
        for name, kind in zip(formal, kinds, strict=True):
            body.has(name, kind, own=False)
        self.grow(body, self.random.integers(0, 4))
        ends = self.ends(body, kinds, formal)
        given = [
            helper.make_tensor_value_info(turn, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
            *_unshaped(formal, kinds),
        ]
        grows = self.chance(0.25)
        if grows:  # one row more in each iteration
            longer, name = self.new(), self.new()
            given.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
            row = self.weight(body, 1, ("float32", (1, *self.shapes[0][1:])))
            body.nodes.append(helper.make_node("Concat", [name, row], [longer], axis=0))
            ends.append(longer)
            begins.append(self.of_kind(scope, ("float32", self.shapes[0])))
        on = self.goes_on(body, turn, go)
        kept = (
            [name for name, _ in body.own]
            if self.shows
            else [self.pick(body)[0] for _ in range(self.random.integers(3))]
        )
        graph = _graph(body, given, [on, *ends, *self.identified(body, kept)])
        count = ["", "trips", self.weight(scope, self.random.integers(0, 5), ("int64", ()))][
            self.random.integers(3)
        ]
        if not count and on == go:
            count = "trips"
        first = ["", "flag", ""][self.random.integers(3)]
        outputs = [self.new() for _ in (*ends, *kept)]
        scope.nodes.append(helper.make_node("Loop", [count, first, *begins], outputs, body=graph))
        for name, kind in zip(outputs, kinds, strict=False):
            scope.has(name, kind)
        if not scope.depth:
            self.others += outputs[len(kinds) :]

    def scan(self, scope: Scope) -> None:
        state, over = self.pick(scope)[1], self.pick(scope)[1]
        over = over if over[1] else ("float32", self.shapes[0])
        body, axis = Scope(scope), int(self.random.integers(len(over[1])))
        part: Type = over[0], over[1][:axis] + over[1][axis + 1 :]
        formal = [self.new(), self.new()]
        for name, kind in zip(formal, (state, part), strict=True):
            body.has(name, kind, own=False)
        self.grow(body, self.random.integers(0, 3))
        stacked = self.pick(body)
        # ONNX Runtime gives whatever lies in memory where a Scan hands a state on as it is.
        ends = [self.end(body, state), *self.identified(body, [stacked[0]])]
        given = _unshaped(formal, (state, part))
        at = int(self.random.integers(-1, len(stacked[1][1]) + 1))
        shape = list(stacked[1][1])
        shape.insert(at if at >= 0 else len(shape), over[1][axis])
        outputs = [self.new(), self.new()]
        backwards = [int(self.random.integers(2)) for _ in range(2)]
        scope.nodes.append(
            helper.make_node(
                "Scan", [self.of_kind(scope, state), self.of_kind(scope, over)], outputs,
                body=_graph(body, given, ends, [state, stacked[1]]), num_scan_inputs=1,
                scan_input_axes=[axis - len(over[1]) * int(self.random.integers(2))], scan_output_axes=[at],
                scan_input_directions=backwards[:1], scan_output_directions=backwards[1:],
            )
        )  # fmt: skip
        scope.has(outputs[0], state)
        scope.has(outputs[1], (stacked[1][0], tuple(shape)))

    # ---- parts of it --------------------------------------------------------------------------------

    def condition(self, scope: Scope) -> str:
        """Whether the largest of some value is above one."""
        name, _ = self.pick(scope)
        largest, number, above = self.new(), self.new(), self.new()
        scope.nodes.append(helper.make_node("ReduceMax", [name], [largest], keepdims=0))
        scope.nodes.append(helper.make_node("Cast", [largest], [number], to=TensorProto.FLOAT))
        one = self.weight(scope, 1, ("float32", ()))
        scope.nodes.append(helper.make_node("Greater", [number, one], [above]))
        return above

    def goes_on(self, body: Scope, turn: str, go: str) -> str:
        """The condition that a loop's body gives: as it was, always, until a count, or by its values."""
        which = self.random.integers(4)
        if which == 0:
            return go
        before = self.new()
        last = self.weight(body, self.random.integers(0, 4), ("int64", ()))
        body.nodes.append(helper.make_node("Less", [turn, last], [before]))
        if which < 3:
            return before
        both = self.new()
        body.nodes.append(helper.make_node("And", [before, self.condition(body)], [both]))
        return both

    def ends(self, body: Scope, kinds: Sequence[Type], given: Sequence[str] = ()) -> list[str]:
        """Each another value: ONNX Runtime gives whatever lies in memory for what a branch gives twice."""
        found: list[str] = []
        for kind in kinds:
            name = self.end(body, kind, given)
            found += self.identified(body, [name]) if name in found else [name]
        return found

    def end(self, body: Scope, kind: Type, given: Sequence[str] = ()) -> str:
        """An output: made inside, handed on as it was given, or a copy of an outer value or constant."""
        same = [name for name, one in body.values if one == kind]
        if not same or self.chance(0.1):
            return self.identified(body, [self.weight(body, 2, kind)])[0]
        mine = [name for name, one in body.own if one == kind]
        name = str(self.random.choice(mine if mine and self.chance(0.6) else same))
        is_inside = name in mine or name in given
        return name if is_inside and self.chance(0.7) else self.identified(body, [name])[0]

    def identified(self, body: Scope, names: Sequence[str]) -> list[str]:
        """Under names of their own: no two outputs of a body are the same, and none is an outer value."""
        made = [self.new() for _ in names]
        body.nodes.extend(
            helper.make_node("Identity", [name], [new]) for name, new in zip(names, made, strict=True)
        )
        return made

    def add(self, scope: Scope, op: str, inputs: list[str], kind: Type, **attributes: int) -> None:
        name = self.new()
        scope.nodes.append(helper.make_node(str(op), inputs, [name], **attributes))
        scope.has(name, kind)

    def pick(self, scope: Scope) -> tuple[str, Type]:
        if self.chance(0.1):
            kind = (DTYPES[self.random.integers(4)], self.shapes[self.random.integers(4)])
            return self.weight(scope, self.random.integers(-2, 3), kind), kind
        few = scope.own if scope.own and self.chance(0.6) else scope.values
        return few[self.random.integers(len(few))]

    def of_kind(self, scope: Scope, kind: Type) -> str:
        same = [name for name, one in scope.values if one == kind]
        if same and self.chance(0.9):
            return str(self.random.choice(same))
        return self.weight(scope, 3, kind)

    def weight(self, scope: Scope, value: int, kind: Type) -> str:
        name = self.new()
        values = np.asarray(value + self.random.integers(0, 2, kind[1]) if kind[1] else value).astype(kind[0])
        scope.weights.append(numpy_helper.from_array(values, name))
        return name

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def new(self) -> str:
        self._made += 1
        return f"v{self._made}"


def _unshaped(names: Sequence[str], kinds: Sequence[Type]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, _code(kind), None)
        for name, kind in zip(names, kinds, strict=True)
    ]


def _code(kind: Type) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(kind[0]))


def _graph(
    scope: Scope, given: list[onnx.ValueInfoProto], ends: Sequence[str], kinds: Sequence[Type] | None = None
) -> onnx.GraphProto:
    """``kinds``: of the outputs, which a Scan has to declare."""
    types = [onnx.TypeProto()] * len(ends)
    if kinds is not None:
        types = [helper.make_tensor_type_proto(_code(kind), kind[1]) for kind in kinds]
    ends_as = [helper.make_value_info(name, kind) for name, kind in zip(ends, types, strict=True)]
    return helper.make_graph(scope.nodes, "body", given, ends_as, scope.weights)
