"""What passes work on: a model's structure, what is published of its operators, and what was chosen so far.
PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from opatlas.evidence import Ratios
from opatlas.graph.structure import ModelStructure
from opatlas.plan.making import NodeChoice, with_kernels
from opatlas.plan.plan import ByKernel, ModelPlan, PlanStep
from tuning.graph.fusion.candidates import FusionCandidate
from tuning.graph.fusion.choosing import FusionQuestion

ALONE = "the default alone, not in place"
"""What a published default's time is: of the operator by itself, where a framework may fuse it in a model."""
BY_ONNX_RUNTIME = "ONNX Runtime alone, not in place"
"""The same of who runs what a plan leaves."""


@dataclass(frozen=True)
class PublishedKernel:
    """The fastest implementation of an operator that can run in a model; times in microseconds, of the race
    that published it."""

    implementation: int
    artifact: str  # SHA-256 of its manifest
    route: str
    method: str
    label: str
    median_us: float
    default_us: float
    ratios: Ratios
    is_default: bool = False

    @property
    def said(self) -> str:
        return f"{self.route} {self.label}"


@dataclass(frozen=True)
class KnownOperator:
    """What the catalogue has of one operator. ``default_us``: the default's time, alone; ``best``: who is
    fastest of all, in words; ``onnxruntime_us``: ONNX Runtime's time where it was tried, alone, in proportion
    to the default's."""

    default_us: float
    best: str
    kernel: PublishedKernel | None = None
    onnxruntime_us: float | None = None

    @property
    def left_us(self) -> float:
        """What it takes, alone, where a plan leaves it to ONNX Runtime: the default's time where ONNX
        Runtime's is not known."""
        return self.default_us if self.onnxruntime_us is None else self.onnxruntime_us


@dataclass(frozen=True)
class PlanDraft:
    """``published`` by operator key; ``chosen`` kernels by node, a fused one under its last node.
    ``together``: what nodes that are left to ONNX Runtime as one operator take, under their last; the others
    of them take nothing. ``fusions``: what may be fused; ``questions``: those of them that nothing is
    published of, by their numbers, those first that might save most."""

    structure: ModelStructure
    published: Mapping[str, KnownOperator]
    chosen: Mapping[int, NodeChoice] = field(default_factory=dict)
    together: Mapping[int, float] = field(default_factory=dict)
    fusions: tuple[FusionCandidate, ...] = ()
    questions: tuple[FusionQuestion, ...] = ()

    def default_us(self, node: int) -> float | None:
        """Of one node by itself; None where nothing is published."""
        found = self.published.get(self.structure.nodes[node].operator)
        return found.default_us if found is not None else None

    def left_us(self, node: int) -> float | None:
        """Of one node where it is left to ONNX Runtime; None where nothing is published."""
        if node in self.together:
            return self.together[node]
        found = self.published.get(self.structure.nodes[node].operator)
        return found.left_us if found is not None else None

    def plan(self, target: str, setting: str) -> ModelPlan:
        """The draft as a plan, each step's time predicted where the times of all its nodes are known."""
        made = with_kernels(self.structure, self.chosen, target, setting)
        return replace(made, steps=tuple(map(self._predicted, made.steps)))

    def _predicted(self, step: PlanStep) -> PlanStep:
        if isinstance(step.by, ByKernel):
            return step
        times = [self.left_us(node) for node in step.nodes]
        known = [time for time in times if time is not None]
        return replace(step, predicted_us=math.fsum(known) if len(known) == len(times) else None)


PlanPass = Callable[[PlanDraft], PlanDraft]
"""What it is given it does not change."""
