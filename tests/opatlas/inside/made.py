"""Models and plans with kernels in C inside one session of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting
from opatlas.load import Manifest
from opatlas.load.c_abi import CKernel
from opatlas.plan.checking import check_plan
from opatlas.plan.executor import Executor
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan
from tests.opatlas.load.kernels import compiled
from tests.opatlas.plan.making import PLACE
from tests.tuning.graph.making import model

SIZE = 20_000
"""So many that no node takes less than a microsecond, below which ONNX Runtime's profile says 0."""
X = np.linspace(-1, 1, SIZE, dtype=np.float32)
Y = np.linspace(0, 3, SIZE, dtype=np.float32)


def additions(count: int = 2, weight: bool = False) -> bytes:
    """So many one after the other, a Tanh after each; ``weight``: subtractions of a constant, which no
    operator has in another order."""
    nodes, last = [], "x"
    for at in range(count):
        nodes.append(helper.make_node("Sub" if weight else "Add", [last, "y"], [f"s{at}"], name=f"add{at}"))
        nodes.append(helper.make_node("Tanh", [f"s{at}"], [f"t{at}"]))
        last = f"t{at}"
    inputs = {"x": (SIZE,)} if weight else {"x": (SIZE,), "y": (SIZE,)}
    made = model(nodes, inputs, [last], {"y": Y} if weight else {})
    made.ir_version, made.opset_import[0].version = 8, 17
    return made.SerializeToString()


FEED = {"x": X, "y": Y}


class CSources:
    """Kernels by C sources for a model's additions and subtractions; ``others``: by the node's number.
    ``threads``: of their setting."""

    def __init__(
        self, graph: ModelGraph, source: str, others: Mapping[int, str] | None = None, *,
        threads: int = 1,
    ) -> None:  # fmt: skip
        self._threads = threads
        self.candidates: dict[Any, NodeChoice] = {}
        self._made: dict[str, tuple[Any, str]] = {}
        for at, (canonical, tensors) in graph.operators().items():
            if canonical.operator.op_types not in (("Add",), ("Sub",)):
                continue
            number = at if isinstance(at, int) else at[-1]
            artifact = f"{number:064x}"
            self._made[artifact] = (canonical.operator, (others or {}).get(number, source))
            by = ByKernel(canonical.operator.key, artifact, tensors, f"kernel of {at}")
            self.candidates[at] = NodeChoice(by, 1e-3)

    def load(self, by: ByKernel) -> CKernel:
        operator, source = self._made[by.artifact]
        setting = Setting(threads=self._threads).to_json()
        manifest = Manifest(kind="c-abi", route="cpp", operator=operator.to_json(), setting=setting)
        return CKernel(manifest, {"kernel.so": compiled(source)})


def inside(graph: ModelGraph, candidates: Mapping[Any, NodeChoice]) -> ModelPlan:
    """As it comes back from JSON, checked."""
    made = replace(with_kernels(graph, candidates, *PLACE), inside="onnxruntime")
    plan = ModelPlan.from_json(made.to_json())
    assert plan == replace(made, steps=plan.steps) and plan.kernels
    check_plan(plan, graph, *PLACE)
    return plan


def running(data: bytes, source: str, threads: int = 1, **options: Any) -> Executor:
    graph = ModelGraph(data)
    others = options.pop("others", None)
    kernels = CSources(graph, source, others, threads=threads)
    return Executor(graph, inside(graph, kernels.candidates), kernels.load, threads=threads, **options)
