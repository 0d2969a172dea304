"""Models that no file holds: a transformer encoder, and a decoder with a loop that may end early. Seeded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR = 17, 8


class GraphBuilder:
    """Nodes and seeded weights of one graph: each layer gives the name of its output."""

    def __init__(self, seed: int, prefix: str = "") -> None:
        self.prefix = prefix
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{self.prefix}{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"{self.prefix}c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        """Normal, scaled by fan-in."""
        return self.constant(self.random.standard_normal(shape) / math.sqrt(shape[0]))

    def linear(self, x: str, inside: int, outside: int) -> str:
        product = self.add("MatMul", x, self.weight(inside, outside))
        return self.add("Add", product, self.constant(0.02 * self.random.standard_normal(outside)))

    def norm(self, x: str, size: int) -> str:
        scale = self.constant(1 + 0.1 * self.random.standard_normal(size))
        shift = self.constant(0.02 * self.random.standard_normal(size))
        return self.add("LayerNormalization", x, scale, shift, axis=-1)

    def gelu(self, x: str) -> str:
        """By the error function, as PyTorch exports it."""
        erf = self.add("Erf", self.add("Div", x, self.constant(math.sqrt(2))))
        gate = self.add("Mul", x, self.add("Add", erf, self.constant(1.0)))
        return self.add("Mul", gate, self.constant(0.5))

    def feed_forward(self, x: str, width: int, act: Callable[[str], str]) -> str:
        return self.linear(act(self.linear(x, width, 4 * width)), 4 * width, width)

    def attention(self, x: str, width: int, heads: int, length: int, mask: str = "") -> str:
        """Of tokens ``[1, length, width]``; ``mask`` is added to the scores before their softmax."""
        size = width // heads
        apart = self.constant([1, length, heads, size], np.int64)

        def split(order: list[int]) -> str:
            return self.add("Transpose", self.add("Reshape", self.linear(x, width, width), apart), perm=order)

        q, k, v = split([0, 2, 1, 3]), split([0, 2, 3, 1]), split([0, 2, 1, 3])
        scores = self.add("Mul", self.add("MatMul", q, k), self.constant(1 / math.sqrt(size)))
        if mask:
            scores = self.add("Add", scores, mask)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), v)
        together = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        joined = self.add("Reshape", together, self.constant([1, length, width], np.int64))
        return self.linear(joined, width, width)


def encoder(*, layers: int = 4, hidden: int = 256, heads: int = 4, length: int = 128, seed: int = 0) -> bytes:
    """Blocks as BERT's over float32 ``[1, length, hidden]``: attention, then a network of four times the
    width with the exact GELU, each added to what it reads and normalised."""
    made = GraphBuilder(seed)
    x = _blocks(made, "x", layers, hidden, heads, length)
    shape = [1, length, hidden]
    return as_model(made, "encoder", {"x": (TensorProto.FLOAT, shape)}, {x: (TensorProto.FLOAT, shape)})


def two_tower(
    *, layers: int = 2, hidden: int = 256, heads: int = 4, length: int = 128, seed: int = 0
) -> bytes:
    """Two encoders that need nothing of each other, of a query and of a document (float32 ``[1, length,
    hidden]`` each), and how alike their means are."""
    made = GraphBuilder(seed)
    shape = (TensorProto.FLOAT, [1, length, hidden])
    means = [
        made.add("ReduceMean", _blocks(made, name, layers, hidden, heads, length), axes=[1], keepdims=0)
        for name in ("query", "document")
    ]
    alike = made.add("Mul", *means)
    return as_model(
        made, "two_tower", {"query": shape, "document": shape}, {alike: (TensorProto.FLOAT, [1, hidden])}
    )


def _blocks(made: GraphBuilder, x: str, layers: int, hidden: int, heads: int, length: int) -> str:
    for _ in range(layers):
        x = made.norm(made.add("Add", x, made.attention(x, hidden, heads, length)), hidden)
        x = made.norm(made.add("Add", x, made.feed_forward(x, hidden, made.gelu)), hidden)
    return x


def decoder(*, hidden: int = 256, vocabulary: int = 512, most: int = 64, seed: int = 0) -> bytes:
    """Greedy decoding from a float32 state ``[1, hidden]``: a Loop whose body makes a token out of the state
    and the token before, at most ``most`` of them, which ends with the first that is larger than nine tenths
    of the vocabulary. Gives the tokens, whose number only a run knows, and the last state."""
    made = GraphBuilder(seed)
    body = GraphBuilder(seed + 1, "in_")
    embedded = body.add("Gather", body.weight(vocabulary, hidden), "token", axis=0)
    mixed = body.add("Add", body.linear("state", hidden, hidden), embedded)
    state = body.norm(body.add("Add", body.add("Tanh", mixed), "state"), hidden)
    logits = body.linear(state, hidden, vocabulary)
    token = body.add("ArgMax", logits, axis=-1, keepdims=0)
    last = body.add("Squeeze", token, body.constant([0], np.int64))
    going = body.add("Less", last, body.constant(vocabulary * 9 // 10, np.int64))
    carried = (helper.make_tensor_value_info(name, *kind) for name, kind in (
        ("turn", (TensorProto.INT64, [])), ("go", (TensorProto.BOOL, [])),
        ("token", (TensorProto.INT64, [1])), ("state", (TensorProto.FLOAT, [1, hidden])),
    ))  # fmt: skip
    given = (helper.make_tensor_value_info(name, *kind) for name, kind in (
        (going, (TensorProto.BOOL, [])), (token, (TensorProto.INT64, [1])),
        (state, (TensorProto.FLOAT, [1, hidden])), ("said", (TensorProto.INT64, [1])),
    ))  # fmt: skip
    body.nodes.append(helper.make_node("Identity", [token], ["said"]))
    inside = helper.make_graph(body.nodes, "step", list(carried), list(given), body.weights)
    given_first = [made.constant(most, np.int64), made.constant(True, np.bool_), made.constant([0], np.int64)]
    first = made.linear("x", hidden, hidden)
    made.nodes.append(
        helper.make_node("Loop", [*given_first, first], ["token", "state", "tokens"], body=inside)
    )
    return as_model(
        made,
        "decoder",
        {"x": (TensorProto.FLOAT, [1, hidden])},
        {"tokens": (TensorProto.INT64, ["turns", 1]), "state": (TensorProto.FLOAT, [1, hidden])},
    )


def as_model(made: GraphBuilder, name: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> bytes:
    graph = helper.make_graph(
        made.nodes,
        name,
        [helper.make_tensor_value_info(one, *kind) for one, kind in inputs.items()],
        [helper.make_tensor_value_info(one, *kind) for one, kind in outputs.items()],
        made.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = IR
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())
