"""Models of convolutions, and the shipped kernel of the 3×3 ones, built for them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator, Setting
from opatlas.load import Manifest
from opatlas.load.c_abi import CKernel
from opatlas.load.needs import machine_features
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import BLOCKS, ByKernel
from tests.tuning.graph.making import model
from tuning.routes.manual.compiling import compile_kernel
from tuning.routes.manual.header import NAME, header

SOURCE = (Path(__file__).parents[3] / "tuning/kernels/examples/winograd.c").read_text()
SLOW = """
/* Any convolution of one group, with the sum and the Relu after it, plainly and in any blocks. */
#include <string.h>
#include "opatlas_operator.h"
static float* at(const opatlas_tensor* t, int64_t n, int64_t c, int64_t y, int64_t x) {
  const int64_t *s = t->shape, b = t->ndim == 5 ? s[4] : 1;
  return (float*)t->data + (((n * s[1] + c / b) * s[2] + y) * s[3] + x) * b + c % b;
}
int32_t opatlas_blocks(void) { return 8 + 16; }
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const opatlas_tensor *x = t, *w = t + 1, *made = t + n - 1, *bias = 0, *other = 0;
  if (strstr(OPATLAS_OP, "Add")) other = x; /* unless it is another */
  for (int i = 2; i < n - 1; i++) *(t[i].ndim == 1 ? &bias : &other) = t + i;
  for (int64_t m = 0; m < OUT0_DIM0 * OUT0_DIM1 * OUT0_DIM2 * OUT0_DIM3; m++) {
    int64_t column = m % OUT0_DIM3, row = m / OUT0_DIM3 % OUT0_DIM2, plane = m / OUT0_DIM3 / OUT0_DIM2;
    int64_t f = plane % OUT0_DIM1, image = plane / OUT0_DIM1;
    double sum = bias ? ((float*)bias->data)[f] : 0;
    for (int64_t k = 0; k < IN1_DIM1 * IN1_DIM2 * IN1_DIM3; k++) {
      int64_t c = k / IN1_DIM3 / IN1_DIM2, i = k / IN1_DIM3 % IN1_DIM2, j = k % IN1_DIM3;
      int64_t y = row * ATTR_STRIDES_0 - ATTR_PADS_0 + i * ATTR_DILATIONS_0;
      int64_t z = column * ATTR_STRIDES_1 - ATTR_PADS_1 + j * ATTR_DILATIONS_1;
      if (y < 0 || y >= IN0_DIM2 || z < 0 || z >= IN0_DIM3) continue;
      sum += *at(x, image, c, y, z) * *at(w, f, c, i, j);
    }
    if (other) sum += *at(other, image, f, row, column);
    *at(made, image, f, row, column) = strstr(OPATLAS_OP, "Relu") && sum < 0 ? 0 : sum;
  }
  return 0;
}
"""
WIDE = "avx512f" in machine_features()
FLAGS = {8: ["-O1", "-mavx2", "-mfma"], 16: ["-O1", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]}
"""By the vectors that they make, which are the blocks that the kernel takes."""
BLOCK = 16 if WIDE else 8
SIZE, CHANNELS = 10, 32
FEED = {"x": np.random.default_rng(0).standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)}


def residual(side: int = 3) -> bytes:
    """Two convolutions with a Relu each, one whose result is added to what the first made before its Relu,
    and a pooling between two more."""
    random = np.random.default_rng(1)
    weights = {
        name: (random.standard_normal((CHANNELS, CHANNELS, side, side)) / 20).astype(np.float32)
        for name in ("w1", "w2", "w3", "w4")
    }
    weights |= {f"b{at}": random.standard_normal(CHANNELS).astype(np.float32) for at in (1, 2, 4)}
    pads = {"pads": [side // 2] * 4}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], **pads),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["c2"], **pads),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("Conv", ["r2", "w3"], ["c3"], **pads),
        helper.make_node("Add", ["c3", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r3"]),
        helper.make_node("MaxPool", ["r3"], ["p"], kernel_shape=[2, 2], strides=[1, 1]),
        helper.make_node("Conv", ["p", "w4", "b4"], ["c4"], **pads),
        helper.make_node("Relu", ["c4"], ["r4"]),
        helper.make_node("GlobalAveragePool", ["r4"], ["y"]),
    ]
    made = model(nodes, {"x": (1, CHANNELS, SIZE, SIZE)}, ["y"], weights)
    made.ir_version = 8
    made.opset_import[0].version = 17
    return made.SerializeToString()


def convolving(
    nodes: Sequence[onnx.NodeProto],
    outputs: Sequence[str] = ("y",),
    weights: Mapping[str, np.ndarray] = {},
) -> bytes:
    """A model of ``x``, ``w`` and ``v`` (windows of 3×3), and ``b``."""
    random = np.random.default_rng(2)
    shape = (CHANNELS, CHANNELS, 3, 3)
    own = {name: (random.standard_normal(shape) / 20).astype(np.float32) for name in "wv"}
    own["b"] = random.standard_normal(CHANNELS).astype(np.float32)
    made = model(list(nodes), {"x": (1, CHANNELS, SIZE, SIZE)}, list(outputs), {**own, **weights})
    made.ir_version, made.opset_import[0].version = 8, 17
    return made.SerializeToString()


def one_convolution(
    x: tuple[int, ...], weights: np.ndarray, bias: np.ndarray, pads: tuple[int, ...]
) -> bytes:
    """With a Relu after it."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    made = model(nodes, {"x": x}, ["y"], {"w": weights, "b": bias})
    made.ir_version, made.opset_import[0].version = 8, 17
    return made.SerializeToString()


@functools.cache
def library(operator: Operator, source: str, block: int = BLOCK) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        head = header(operator, Setting(threads=2))
        made, log = compile_kernel(source, (NAME, head), "c", FLAGS[block], Path(folder))
        assert made is not None, log
        return made.read_bytes()


class Convolutions:
    """The kernel for a model's convolutions, with the Relu after them where there is one. ``others``: other
    sources, by the convolution's number; ``sums``: with the sum after them, too; ``source``: the kernel's."""

    def __init__(
        self, graph: ModelGraph, layout: str = BLOCKS, others: Mapping[int, str] | None = None,
        *, sums: bool = False, source: str = SOURCE,
    ) -> None:  # fmt: skip
        self._source = source
        self._others = {f"{number:064x}": source for number, source in (others or {}).items()}
        self.operators: dict[str, Operator] = {}
        self.candidates: dict[int, NodeChoice] = {}
        readers: dict[int, list[int]] = {}
        for number, node in enumerate(graph.nodes):
            for value in node.reads:
                readers.setdefault(value, []).append(number)
        for number, node in enumerate(graph.nodes):
            if node.proto.op_type != "Conv":
                continue
            nodes = [number]
            for kind in ("Add", "Relu") if sums else ("Relu",):
                after = readers.get(graph.nodes[nodes[-1]].outputs[0], [])
                if len(after) == 1 and graph.nodes[after[0]].proto.op_type == kind:
                    nodes += after
            placed = operator_of(graph, nodes, graph.nodes[nodes[-1]].outputs)
            artifact = f"{number:064x}"
            self.operators[artifact] = placed.operator
            by = ByKernel(placed.operator.key, artifact, placed.tensors, "winograd", layout)
            fused = tuple(nodes) if len(nodes) > 1 else ()
            self.candidates[nodes[-1]] = NodeChoice(by, 1e-3, fused=fused)

    def plainly(self, at: Mapping[int, NodeChoice]) -> dict[int, NodeChoice]:
        return {number: replace(one, by=replace(one.by, layout="")) for number, one in at.items()}

    def load(self, by: ByKernel) -> CKernel:
        operator = self.operators[by.artifact]
        setting = Setting(threads=2).to_json()
        manifest = Manifest(kind="c-abi", route="manual", operator=operator.to_json(), setting=setting)
        source = self._others.get(by.artifact, self._source)
        return CKernel(manifest, {"kernel.so": library(operator, source)})
