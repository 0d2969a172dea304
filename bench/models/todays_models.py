"""Models that people run today, by their papers' sizes: float32, seeded random weights, batch norms folded.

``python -m bench.models.todays_models FOLDER`` writes each as an ONNX file, for ``MODELS=FOLDER make bench
ONLY=models``. No trained weight is needed: what a run takes does not depend on them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from bench.models.made_models import GraphBuilder, as_model

PIXELS = 224
CLASSES = 1000
TOKENS = 128
"""The length of what the language models read."""


class Layers(GraphBuilder):
    """A graph's layers: of images ``[1, C, H, W]``, or of tokens ``[1, T, C]``."""

    def conv(
        self,
        x: str,
        inside: int,
        outside: int,
        size: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        pad: int = -1,
    ) -> str:
        """With a bias; padded so that the map keeps its size, unless ``pad`` says how far."""
        fan_in = inside // groups * size * size
        shape = (outside, inside // groups, size, size)
        weight = self.constant(self.random.standard_normal(shape) * math.sqrt(2 / fan_in))
        bias = self.constant(0.02 * self.random.standard_normal(outside))
        pads = [size // 2 if pad < 0 else pad] * 4
        return self.add(
            "Conv", x, weight, bias, kernel_shape=[size] * 2, strides=[stride] * 2, group=groups, pads=pads
        )

    def relu6(self, x: str) -> str:
        return self.add("Clip", x, self.constant(0.0), self.constant(6.0))

    def silu(self, x: str) -> str:
        return self.add("Mul", x, self.add("Sigmoid", x))

    def hard_swish(self, x: str) -> str:
        return self.add("HardSwish", x)

    def relu(self, x: str) -> str:
        return self.add("Relu", x)

    def gelu_tanh(self, x: str) -> str:
        """GPT-2's approximation."""
        cube = self.add("Pow", x, self.constant(3.0))
        inner = self.add("Add", x, self.add("Mul", cube, self.constant(0.044715)))
        tanh = self.add("Tanh", self.add("Mul", inner, self.constant(math.sqrt(2 / math.pi))))
        half = self.add("Mul", x, self.constant(0.5))
        return self.add("Mul", half, self.add("Add", tanh, self.constant(1.0)))

    def squeeze_excite(self, x: str, channels: int, narrow: int, act: Callable[[str], str], gate: str) -> str:
        pooled = self.add("GlobalAveragePool", x)
        hidden = act(self.conv(pooled, channels, narrow))
        how = {"alpha": 1 / 6, "beta": 0.5} if gate == "HardSigmoid" else {}
        return self.add("Mul", x, self.add(gate, self.conv(hidden, narrow, channels), **how))

    def classify(self, x: str, inside: int) -> str:
        """Of a map: its mean, and a linear layer."""
        pooled = self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)
        return self.linear(pooled, inside, CLASSES)

    def embed(self, ids: str, rows: int, width: int) -> str:
        table = self.constant(0.5 * self.random.standard_normal((rows, width)))
        return self.add("Gather", table, ids, axis=0)

    def image_model(self, name: str, y: str) -> bytes:
        image, classes = [1, 3, PIXELS, PIXELS], [1, CLASSES]
        return as_model(self, name, {"x": (TensorProto.FLOAT, image)}, {y: (TensorProto.FLOAT, classes)})


def mobilenet_v2() -> bytes:
    """Sandler et al. 2018: inverted residuals."""
    made = Layers(0)
    x, width = made.relu6(made.conv("x", 3, 32, 3, stride=2)), 32
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, outside, times, first_stride in rows:
        for turn in range(times):
            stride = first_stride if turn == 0 else 1
            inner = width * expand
            y = made.relu6(made.conv(x, width, inner)) if expand > 1 else x
            y = made.relu6(made.conv(y, inner, inner, 3, stride=stride, groups=inner))
            y = made.conv(y, inner, outside)
            x, width = made.add("Add", x, y) if stride == 1 and width == outside else y, outside
    return made.image_model("mobilenet_v2", made.classify(made.relu6(made.conv(x, width, 1280)), 1280))


def mobilenet_v3() -> bytes:
    """Howard et al. 2019, the large one: hard swish and squeeze-and-excite."""
    made = Layers(0)
    x, width = made.hard_swish(made.conv("x", 3, 16, 3, stride=2)), 16
    for size, inner, outside, squeezed, swish, stride in (
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
        (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
        (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    ):  # fmt: skip
        act = made.hard_swish if swish else made.relu
        y = act(made.conv(x, width, inner)) if inner != width else x
        y = act(made.conv(y, inner, inner, size, stride=stride, groups=inner))
        if squeezed:
            y = made.squeeze_excite(y, inner, -(-inner // 4 // 8) * 8, made.relu, "HardSigmoid")
        y = made.conv(y, inner, outside)
        x, width = made.add("Add", x, y) if stride == 1 and width == outside else y, outside
    pooled = made.add("GlobalAveragePool", made.hard_swish(made.conv(x, width, 960)))
    hidden = made.hard_swish(made.linear(made.add("Flatten", pooled, axis=1), 960, 1280))
    return made.image_model("mobilenet_v3", made.linear(hidden, 1280, CLASSES))


def efficientnet_b0() -> bytes:
    """Tan and Le 2019."""
    made = Layers(0)
    x, width = made.silu(made.conv("x", 3, 32, 3, stride=2)), 32
    rows = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    )  # fmt: skip
    for expand, outside, times, first_stride, size in rows:
        for turn in range(times):
            stride = first_stride if turn == 0 else 1
            inner = width * expand
            y = made.silu(made.conv(x, width, inner)) if expand > 1 else x
            y = made.silu(made.conv(y, inner, inner, size, stride=stride, groups=inner))
            y = made.squeeze_excite(y, inner, width // 4, made.silu, "Sigmoid")
            y = made.conv(y, inner, outside)
            x, width = made.add("Add", x, y) if stride == 1 and width == outside else y, outside
    return made.image_model("efficientnet_b0", made.classify(made.silu(made.conv(x, width, 1280)), 1280))


def convnext() -> bytes:
    """Liu et al. 2022, the tiny one: 7×7 depthwise convolutions, the rest of a block channels-last."""
    made = Layers(0)

    def norm(x: str, width: int) -> str:
        last = made.norm(made.add("Transpose", x, perm=[0, 2, 3, 1]), width)
        return made.add("Transpose", last, perm=[0, 3, 1, 2])

    def block(x: str, width: int) -> str:
        y = made.add("Transpose", made.conv(x, width, width, 7, groups=width), perm=[0, 2, 3, 1])
        y = made.feed_forward(made.norm(y, width), width, made.gelu)
        scaled = made.add("Mul", y, made.constant(np.full(width, 0.1)))
        return made.add("Add", x, made.add("Transpose", scaled, perm=[0, 3, 1, 2]))

    x, width = norm(made.conv("x", 3, 96, 4, stride=4, pad=0), 96), 96
    for number, times in enumerate((3, 3, 9, 3)):
        if number:
            x, width = made.conv(norm(x, width), width, 2 * width, 2, stride=2, pad=0), 2 * width
        for _ in range(times):
            x = block(x, width)
    pooled = made.add("Flatten", made.add("GlobalAveragePool", x), axis=1)
    return made.image_model("convnext", made.linear(made.norm(pooled, width), width, CLASSES))


def vit_b_16() -> bytes:
    """Dosovitskiy et al. 2021."""
    made, width, length = Layers(0), 768, (PIXELS // 16) ** 2 + 1
    patches = made.conv("x", 3, width, 16, stride=16, pad=0)
    flat = made.add("Reshape", patches, made.constant([1, width, length - 1], np.int64))
    x = made.add("Transpose", flat, perm=[0, 2, 1])
    x = made.add("Concat", made.constant(0.02 * made.random.standard_normal((1, 1, width))), x, axis=1)
    x = made.add("Add", x, made.constant(0.02 * made.random.standard_normal((1, length, width))))
    for _ in range(12):
        x = made.add("Add", x, made.attention(made.norm(x, width), width, 12, length))
        x = made.add("Add", x, made.feed_forward(made.norm(x, width), width, made.gelu))
    first = made.add("Gather", made.norm(x, width), made.constant(0, np.int64), axis=1)
    return made.image_model("vit_b_16", made.linear(first, width, CLASSES))


def bert_base() -> bytes:
    """Devlin et al. 2018, without a head: ids and a mask of ones and zeros in, hidden states out."""
    made, width = Layers(0), 768
    place = made.constant(0.5 * made.random.standard_normal((1, TOKENS, width)))
    kind = made.constant(0.5 * made.random.standard_normal(width))
    x = made.add("Add", made.add("Add", made.embed("ids", 30522, width), place), kind)
    x = made.norm(x, width)
    seen = made.add("Cast", "mask", to=TensorProto.FLOAT)
    hidden = made.add("Mul", made.add("Sub", made.constant(1.0), seen), made.constant(-10000.0))
    mask = made.add("Reshape", hidden, made.constant([1, 1, 1, TOKENS], np.int64))
    for _ in range(12):
        x = made.norm(made.add("Add", x, made.attention(x, width, 12, TOKENS, mask)), width)
        x = made.norm(made.add("Add", x, made.feed_forward(x, width, made.gelu)), width)
    tokens = (TensorProto.INT64, [1, TOKENS])
    given = {x: (TensorProto.FLOAT, [1, TOKENS, width])}
    return as_model(made, "bert_base", {"ids": tokens, "mask": tokens}, given)


def gpt2_small() -> bytes:
    """Radford et al. 2019: a prompt's logits, without a cache."""
    made, width, words = Layers(0), 768, 50257
    x = made.add(
        "Add", made.embed("ids", words, width),
        made.constant(0.1 * made.random.standard_normal((1, TOKENS, width))),
    )  # fmt: skip
    mask = made.constant(np.triu(np.full((1, 1, TOKENS, TOKENS), -10000.0), 1))
    for _ in range(12):
        x = made.add("Add", x, made.attention(made.norm(x, width), width, 12, TOKENS, mask))
        x = made.add("Add", x, made.feed_forward(made.norm(x, width), width, made.gelu_tanh))
    logits = made.add("MatMul", made.norm(x, width), made.weight(width, words))
    given = {logits: (TensorProto.FLOAT, [1, TOKENS, words])}
    return as_model(made, "gpt2_small", {"ids": (TensorProto.INT64, [1, TOKENS])}, given)


MODELS: dict[str, Callable[[], bytes]] = {
    made.__name__: made
    for made in (mobilenet_v2, mobilenet_v3, efficientnet_b0, convnext, vit_b_16, bert_base, gpt2_small)
}


def main(folder: str, *names: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in names or MODELS:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(MODELS[name]())
        nodes = len(onnx.load(path).graph.node)
        print(f"{path}: {nodes} nodes, {path.stat().st_size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
