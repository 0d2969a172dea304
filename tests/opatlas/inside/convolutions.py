"""Models of convolutions, and the shipped kernel of the 3×3 ones, built for them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
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
    sources, by the convolution's number; ``sums``: with the sum after them, too."""

    def __init__(
        self, graph: ModelGraph, layout: str = BLOCKS, others: Mapping[int, str] | None = None,
        *, sums: bool = False,
    ) -> None:  # fmt: skip
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
        return CKernel(manifest, {"kernel.so": library(operator, self._others.get(by.artifact, SOURCE))})
