"""Plans whose kernels are ONNX Runtime's and PyTorch's own, so that only the plan can be wrong."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator
from opatlas.load.kernel import LoadedKernel
from opatlas.load.onnxruntime_recipe import OrtKernel
from opatlas.load.recipe import check_recipe
from opatlas.plan.executor import Executor
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan

ARTIFACT = "0" * 64
PLACE = ("t1:here", "s1:here")


PROMISED_US = 1e-3
"""Less than any node takes on any machine: who promises it is tried."""


class Kernels:
    """Kernels for the operators of a model."""

    def __init__(self, graph: ModelGraph, nodes: Collection[NodeAt] | None = None) -> None:
        """``nodes``: those in bodies too, unless they are given."""
        self.operators: dict[str, Operator] = {}
        self.candidates: dict[NodeAt, NodeChoice] = {}
        for number, found in graph.operators().items():
            if nodes is None or number in nodes:
                operator = found[0].operator
                self.operators[operator.key] = operator
                by = ByKernel(operator.key, ARTIFACT, found[1], "a kernel")
                self.candidates[number] = NodeChoice(by, PROMISED_US)

    def load(self, by: ByKernel) -> LoadedKernel:
        recipe = check_recipe({"library": "onnxruntime", "call": "session"}, 1)
        return OrtKernel(self.operators[by.operator], recipe)

    def load_fresh(self, by: ByKernel) -> LoadedKernel:
        """With outputs of its own, which are other arrays in each run."""
        from opatlas.load.torch.recipe import open_kernel

        return open_kernel(
            self.operators[by.operator], check_recipe({"library": "torch", "call": "eager"}, 1)
        )


def planned(graph: ModelGraph, kernels: Kernels) -> ModelPlan:
    """As it comes back from JSON."""
    return ModelPlan.from_json(with_kernels(graph, kernels.candidates, *PLACE).to_json())


def executor(graph: ModelGraph, kernels: Kernels, plan: ModelPlan | None = None, **options: Any) -> Executor:
    return Executor(graph, plan or planned(graph, kernels), kernels.load, threads=1, **options)


def wanted(data: bytes, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime gives for the whole model."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(data, options).run(None, dict(feed))


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
