"""Random models over pictures with everything that layouts must get right: shared values, residual sums,
values that are scaled by channel, concatenations, weights, branches and loops that read what is around them,
values of fewer dimensions, an output that is read too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from opatlas.graph.read import reads_of
from tests.opatlas.plan.graphs import RandomModel

SHAPE = (2, 4, 6, 5)
CHANNELS = SHAPE[1]


class RandomPictures(RandomModel):
    """A model over float32 values of one shape, the same for the same seed."""

    shape = SHAPE
    title = "pictures"

    def kinds(self, control: bool) -> list[Callable[[], None]]:
        kinds = [self.convolution, self.depthwise, self.convolution, self.pool, self.unary, self.binary]
        kinds += [self.residual, self.by_channel, self.clip, self.joined, self.normalised, self.flattened]
        return kinds + ([self.branch, self.loop] if control else [])

    def outputs(self) -> list[str]:
        """What nobody reads, so that every node is needed, and the first value."""
        read = set().union(*map(reads_of, self.nodes))
        return [name for at, name in enumerate(self.values[2:]) if at == 0 or name not in read]

    def convolution(self) -> None:
        weight = self.weight(self.random.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 6)
        bias = self.weight(self.random.standard_normal(CHANNELS))
        self.add("Conv", [self.pick(), weight, bias], pads=[1, 1, 1, 1])

    def depthwise(self) -> None:
        weight = self.weight(self.random.standard_normal((CHANNELS, 1, 3, 3)) / 3)
        self.add("Conv", [self.pick(), weight], pads=[1, 1, 1, 1], group=CHANNELS)

    def pool(self) -> None:
        kind = self.random.choice(["MaxPool", "AveragePool"])
        self.add(kind, [self.pick()], kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def unary(self) -> None:
        self.add(self.random.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu"]), [self.pick()])

    def binary(self) -> None:
        self.add(self.random.choice(["Add", "Mul", "Max"]), [self.pick(), self.pick()])

    def residual(self) -> None:
        of = self.values[-1]
        self.convolution()
        self.add("Add", [of, self.values[-1]])
        self.unary()

    def by_channel(self) -> None:
        """As squeeze and excitation scales."""
        of, mean = self.pick(), self.new()
        self.node("GlobalAveragePool", [of], [mean])
        self.add("Mul", [of, mean])

    def clip(self) -> None:
        self.add("Clip", [self.pick(), self.weight(-1.0), self.weight(1.5)])

    def joined(self) -> None:
        both = self.new()
        self.node("Concat", [self.pick(), self.pick()], [both], axis=1)
        weight = self.weight(self.random.standard_normal((CHANNELS, 2 * CHANNELS, 1, 1)) / 3)
        self.add("Conv", [both, weight])

    def normalised(self) -> None:
        numbers = [self.weight(self.random.uniform(0.5, 1.5, CHANNELS)) for _ in range(4)]
        self.add("BatchNormalization", [self.pick(), *numbers])

    def flattened(self) -> None:
        """There and back."""
        flat, softened = self.new(), self.new()
        self.node("Flatten", [self.pick()], [flat])
        self.node("Softmax", [flat], [softened])
        self.add("Reshape", [softened, self.weight(SHAPE, np.int64)])

    def branch(self) -> None:
        """A convolution of an outer value, or what goes by element, by how bright the picture is."""
        of, total, chosen = self.pick(), self.new(), self.new()
        self.node("ReduceSum", [of], [total], keepdims=0)
        self.node("Greater", [total, self.weight(0.0)], [chosen])
        made, other = self.new(), self.new()
        nodes = {
            "then_branch": (self.inner_convolution(self.pick(), made), made),
            "else_branch": (helper.make_node("Relu", [self.pick()], [other]), other),
        }
        bodies = {
            which: helper.make_graph([node], which, [], [self.tensor(out)])
            for which, (node, out) in nodes.items()
        }
        self.add("If", [chosen], **bodies)

    def loop(self) -> None:
        """Three rounds of a convolution, to which an outer value is added."""
        carried, inner, out, turn, go, kept = (self.new() for _ in range(6))
        body = helper.make_graph(
            [
                self.inner_convolution(carried, inner),
                helper.make_node("Add", [inner, self.pick()], [out]),
                helper.make_node("Identity", [go], [kept]),
            ],
            "body",
            [
                helper.make_tensor_value_info(turn, TensorProto.INT64, []),
                helper.make_tensor_value_info(go, TensorProto.BOOL, []),
                self.tensor(carried),
            ],
            [helper.make_tensor_value_info(kept, TensorProto.BOOL, []), self.tensor(out)],
        )
        trips, first = self.weight(3, np.int64), self.weight(True, np.bool_)
        self.add("Loop", [trips, first, self.pick()], body=body)

    def inner_convolution(self, of: str, made: str) -> onnx.NodeProto:
        weight = self.weight(self.random.standard_normal((CHANNELS, CHANNELS, 3, 3)) / 6)
        return helper.make_node("Conv", [of, weight], [made], pads=[1, 1, 1, 1])

    def node(self, kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        super().node(kind, inputs, outputs, name=f"n{len(self.nodes)}", **attributes)
