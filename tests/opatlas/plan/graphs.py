"""Random models with everything that a plan must get right: shared values, several outputs, weights,
constants that are computed, branches, loops, and shapes that only a run knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
ROWS, COLUMNS = 4, 6


class RandomModel:
    """A model over float32 values of one shape, the same for the same seed."""

    shape: tuple[int, ...] = (ROWS, COLUMNS)
    title = "random"

    def __init__(self, seed: int, nodes: int = 12, control: bool = True) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.values = ["x", "y"]
        self.others: list[str] = []  # values of other shapes, read by nobody
        kinds = self.kinds(control)
        for _ in range(nodes):
            kinds[self.random.integers(len(kinds))]()

    def kinds(self, control: bool) -> list[Callable[[], None]]:
        """What a node may be; ``control``: branches and loops too."""
        kinds = [self.unary, self.binary, self.product, self.split, self.computed, self.shaping]
        return kinds + ([self.branch, self.loop, self.counted] if control else [])

    def feed(self, seed: int = 0) -> dict[str, np.ndarray]:
        random = np.random.default_rng(seed)
        return {name: random.standard_normal(self.shape).astype(np.float32) for name in ("x", "y")}

    def outputs(self) -> list[str]:
        return [*self.values[2:], *self.others]

    def build(self, only: int | None = None) -> bytes:
        """``only``: so many of the last values are outputs."""
        names = self.outputs() if only is None else self.values[-only:]
        graph = helper.make_graph(
            self.nodes,
            self.title,
            [self.tensor("x"), self.tensor("y")],
            [helper.make_value_info(name, onnx.TypeProto()) for name in names],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        return model.SerializeToString()

    def unary(self) -> None:
        kind = self.random.choice(["Relu", "Tanh", "Sigmoid", "Neg", "Softmax"])
        self.add(kind, [self.pick()])

    def binary(self) -> None:
        kind = self.random.choice(["Add", "Mul", "Max", "Sub"])
        self.add(kind, [self.pick(), self.pick()])

    def product(self) -> None:
        weight = self.weight(self.random.standard_normal((COLUMNS, COLUMNS)) / COLUMNS)
        self.add("MatMul", [self.pick(), weight])

    def split(self) -> None:
        halves = [self.new(), self.new()]
        self.node("Split", [self.pick(), self.weight([2, 4], np.int64)], halves, axis=1)
        self.add("Concat", halves[::-1], axis=1)
        self.others += halves

    def computed(self) -> None:
        """A weight that is made by nodes."""
        zeros = self.new()
        self.node(
            "ConstantOfShape", [self.weight([ROWS, COLUMNS], np.int64)], [zeros],
            value=numpy_helper.from_array(np.array([0.5], np.float32)),
        )  # fmt: skip
        made = self.new()
        self.node("Add", [zeros, self.weight(self.random.standard_normal((ROWS, COLUMNS)))], [made])
        self.add("Add", [self.pick(), made])

    def shaping(self) -> None:
        """Reshape to a shape that the model computes, and back."""
        of = self.pick()
        shape, rows, flat = self.new(), self.new(), self.new()
        self.node("Shape", [of], [shape])
        self.node("Gather", [shape, self.weight([1, 0], np.int64)], [rows])
        self.node("Reshape", [of, rows], [flat])
        self.others.append(flat)
        self.add("Reshape", [flat, shape])

    def branch(self) -> None:
        """An If whose condition depends on data, and whose bodies read outer values."""
        of, total, chosen = self.pick(), self.new(), self.new()
        self.node("ReduceSum", [of], [total], keepdims=0)
        self.node("Greater", [total, self.weight(0.0)], [chosen])
        bodies = {}
        for which, kind in (("then_branch", "Relu"), ("else_branch", "Neg")):
            out = self.new()
            node = helper.make_node(kind, [self.pick()], [out])
            bodies[which] = helper.make_graph([node], which, [], [self.tensor(out)])
        self.add("If", [chosen], **bodies)

    def loop(self) -> None:
        """Three rounds; what each makes is stacked as well."""
        carried, out, seen, turn, go = (self.new() for _ in range(5))
        other = self.pick()
        kept = self.new()
        body = helper.make_graph(
            [
                helper.make_node("Add", [carried, other], [out]),
                helper.make_node("Tanh", [out], [seen]),
                helper.make_node("Identity", [go], [kept]),
            ],
            "body",
            [
                helper.make_tensor_value_info(turn, TensorProto.INT64, []),
                helper.make_tensor_value_info(go, TensorProto.BOOL, []),
                self.tensor(carried),
            ],
            [helper.make_tensor_value_info(kept, TensorProto.BOOL, []), self.tensor(out), self.tensor(seen)],
        )
        made, stacked = self.new(), self.new()
        trips, first = self.weight(3, np.int64), self.weight(True, np.bool_)
        self.node("Loop", [trips, first, self.pick()], [made, stacked], body=body)
        self.values.append(made)
        self.others.append(stacked)

    def counted(self) -> None:
        """A value whose shape depends on data, and what is made of it."""
        found, total = self.new(), self.new()
        self.node("NonZero", [self.relu(self.pick())], [found])
        self.node("ReduceSum", [found], [total], keepdims=0)
        number = self.new()
        self.node("Cast", [total], [number], to=TensorProto.FLOAT)
        self.others += [found, total]
        self.add("Add", [self.pick(), number])

    def relu(self, of: str) -> str:
        self.add("Relu", [of])
        return self.values[-1]

    def add(self, kind: Any, inputs: list[str], **attributes: Any) -> None:
        self.values.append(self.new())
        self.node(str(kind), inputs, [self.values[-1]], **attributes)

    def node(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        self.nodes.append(helper.make_node(kind, inputs, outputs, **attributes))

    def weight(self, values: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def pick(self) -> str:
        return str(self.random.choice(self.values))

    def tensor(self, name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shape)

    def new(self) -> str:
        self._made = getattr(self, "_made", 0) + 1
        return f"v{self._made}"
