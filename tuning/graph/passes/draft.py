"""What passes work on: a model's structure, the published times of its operators, and the choices so far.
PURE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from opatlas.evidence import Ratios
from opatlas.graph.fusion.candidates import FusionCandidate
from opatlas.graph.fusion.choosing import FusionQuestion
from opatlas.graph.linked import BodyPath, NodeAt
from opatlas.graph.profile import BorderCosts, ModelProfile
from opatlas.graph.structure import ModelStructure
from opatlas.plan.borders import Borders
from opatlas.plan.making import DEFAULT, NodeChoice, needed_nodes, with_kernels
from opatlas.plan.plan import Alternative, ByBodies, ByFramework, ByKernel, ModelPlan, PlanStep
from tuning.graph.in_place import times_in_place
from tuning.graph.layout.forms import LayoutForm
from tuning.graph.layout.problem import ReorderOf

ALONE = "the default alone, not in place"
"""The label of a published default's time: the operator alone, although a framework may fuse it in a
model."""
BY_ONNX_RUNTIME = "ONNX Runtime alone, not in place"
"""The same of who runs what a plan leaves."""


@dataclass(frozen=True)
class PublishedKernel:
    """The fastest implementation of an operator that can run in a model; times in microseconds, from the race
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

    def choice(
        self, operator: str, tensors: tuple[int, ...], over: Alternative, fused: tuple[int, ...] = ()
    ) -> NodeChoice:
        """The choice of this kernel for nodes that form the operator over these values."""
        by = ByKernel(operator, self.artifact, tensors, self.said)
        return NodeChoice(by, self.median_us, (over,), fused)


@dataclass(frozen=True)
class KnownOperator:
    """What the catalogue has of one operator. ``default_us``: the default's time alone; ``best``: the fastest
    of all, in words; ``onnxruntime_us``: ONNX Runtime's time alone if it was tried, in proportion to the
    default's. ``inexact``: why its fastest kernel is too inexact to be the ``kernel``."""

    default_us: float
    best: str
    kernel: PublishedKernel | None = None
    onnxruntime_us: float | None = None
    inexact: str = ""

    @property
    def left_us(self) -> float:
        """Its time alone if a plan leaves it to ONNX Runtime: the default's if ONNX Runtime's is unknown."""
        return self.default_us if self.onnxruntime_us is None else self.onnxruntime_us

    @property
    def in_plan_us(self) -> float | None:
        """The lesser of its kernel's and ONNX Runtime's time; None if neither is known."""
        times = (self.kernel.median_us if self.kernel is not None else None, self.onnxruntime_us)
        return min((time for time in times if time is not None), default=None)

    @property
    def is_left(self) -> bool:
        """Whether no kernel is faster than ONNX Runtime."""
        theirs = self.onnxruntime_us
        return self.kernel is None or (theirs is not None and theirs <= self.kernel.median_us)


@dataclass(frozen=True)
class AssumedTimes:
    """The times of one node in the default for the model as it was given, and in ONNX Runtime;
    ``is_estimate``: the latter is not measured."""

    default_us: float | None
    left_us: float | None
    is_estimate: bool = False


@dataclass(frozen=True)
class LayoutQuestion:
    """An unpublished operator: a channels-last unit, by its ``nodes`` in the model or in ``body``, or a
    reorder, which has none; with the most that it could save, in microseconds of one run."""

    operator: str
    nodes: tuple[int, ...]
    gain_us: float
    reorder: ReorderOf | None = None
    body: BodyPath = ()


@dataclass(frozen=True)
class ChosenLayouts:
    """``row_us`` and ``us``: of one run with every unit in row-major and as chosen, over the units with known
    times; ``estimated_us``: the unmeasured part; ``gap``: by which share the best may be below it at most.
    ``questions``: those first that could change the choice most. ``ratios``: by key of a published
    channels-last operator, the unit's row-major time ÷ this; None if nothing that runs in a plan has it."""

    units: int
    reorders: int
    row_us: float
    us: float
    estimated_us: float
    gap: float
    questions: tuple[LayoutQuestion, ...]
    ratios: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanDraft:
    """The choices so far. ``published``: operators by key. ``chosen``: kernels by node, a fused one under its
    last node; ``apart``: kernels of nodes that a fused operator replaces.

    ``groups``: nodes left to ONNX Runtime as one operator, under the last one; ``together``: their time,
    there. ``fusions``: what may be fused; ``questions``: unpublished fusions by number, those first that
    might save most; ``ratios``: of published ones by key, the nodes' time ÷ theirs, None if nothing that runs
    in a plan has it. ``forms``: what may run channels-last; ``reorders``: keys of the operators that change
    layouts; ``layouts``: the result. ``assumed``: times of nodes that a pass inserted, or put into another
    layout.

    ``bodies``: drafts of the bodies of branches and loops, by node and body, with numbers of their own;
    ``runs``: how often one run of the model runs this one. ``in_place`` and ``borders``, if a profile has
    them: ONNX Runtime's times in place, and the cost of cuts. Only the model's draft has ``published``,
    ``reorders`` and ``layouts``.
    """

    structure: ModelStructure
    published: Mapping[str, KnownOperator]
    chosen: Mapping[int, NodeChoice] = field(default_factory=dict)
    apart: Mapping[int, NodeChoice] = field(default_factory=dict)
    together: Mapping[int, float] = field(default_factory=dict)
    fusions: tuple[FusionCandidate, ...] = ()
    questions: tuple[FusionQuestion, ...] = ()
    ratios: Mapping[str, float | None] = field(default_factory=dict)
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    forms: tuple[LayoutForm, ...] = ()
    reorders: Mapping[ReorderOf, str] = field(default_factory=dict)
    layouts: ChosenLayouts | None = None
    assumed: Mapping[int, AssumedTimes] = field(default_factory=dict)
    bodies: Mapping[tuple[int, int], PlanDraft] = field(default_factory=dict)
    runs: float = 1.0
    in_place: Mapping[int, float] = field(default_factory=dict)
    borders: BorderCosts | None = None

    @classmethod
    def of_bodies(
        cls,
        structure: ModelStructure,
        published: Mapping[str, KnownOperator],
        runs: Mapping[BodyPath, float],
        body: BodyPath = (),
        profile: ModelProfile | None = None,
    ) -> PlanDraft:
        """A draft without choices, for the model and its bodies. ``runs``: of each in one run of the model;
        ``profile``: ONNX Runtime's times in place, if they count."""
        inner = {
            (node, which): cls.of_bodies(one.graph, published, runs, (*body, node, which), profile)
            for node, found in enumerate(structure.nodes)
            for which, one in enumerate(found.bodies)
        }
        made = cls(structure, published, bodies=inner, runs=runs[body])
        if profile is None:
            return made
        in_place = times_in_place(structure, profile, made.left_us, body)
        return replace(made, in_place=in_place, borders=profile.borders)

    def each(self, change: Callable[[BodyPath, PlanDraft], PlanDraft], body: BodyPath = ()) -> PlanDraft:
        """A draft with ``change`` applied to the model's and to each body's; ``change`` is also given the
        place."""
        inner = {at: one.each(change, (*body, *at)) for at, one in self.bodies.items()}
        return change(body, replace(self, bodies=inner))

    def everywhere(self, body: BodyPath = ()) -> Iterator[tuple[BodyPath, PlanDraft]]:
        """This draft and those of needed bodies, by place."""
        yield body, self
        needed = frozenset(needed_nodes(self.structure)) if self.bodies else frozenset()
        for (node, which), one in self.bodies.items():
            if node in needed:
                yield from one.everywhere((*body, node, which))

    def default_us(self, node: int) -> float | None:
        """Of one node alone, of a branch or loop by its contents; None if a time is not published."""
        if (node, 0) in self.bodies:
            return self._inner_us(node, lambda draft, one: draft.default_us(one))
        if node in self.assumed:
            return self.assumed[node].default_us
        found = self.published.get(self.structure.nodes[node].operator)
        return found.default_us if found is not None else None

    def left_us(self, node: int) -> float | None:
        """Of one node that is left to ONNX Runtime; None if a time is not published."""
        if (node, 0) in self.bodies:
            return self._inner_us(node, lambda draft, one: draft.left_us(one))
        return self.together[node] if node in self.together else self.left_apart_us(node)

    def left_apart_us(self, node: int) -> float | None:
        """The same for the node alone, even if it is left to ONNX Runtime with others now; not for branches
        and loops."""
        if node in self.assumed:
            return self.assumed[node].left_us
        if node in self.in_place:
            return self.in_place[node]
        found = self.published.get(self.structure.nodes[node].operator)
        return found.left_us if found is not None else None

    @cached_property
    def fusion_of(self) -> dict[tuple[int, ...], FusionCandidate]:
        """By nodes."""
        return {one.nodes: one for one in self.fusions}

    def known_fused(self, nodes: tuple[int, ...]) -> KnownOperator | None:
        """Several nodes as one operator in row-major, chosen or not."""
        candidate = self.fusion_of.get(nodes)
        return self.published.get(candidate.placed.operator.key) if candidate is not None else None

    def fused_us(self, nodes: tuple[int, ...]) -> float | None:
        known = self.known_fused(nodes)
        return known.in_plan_us if known is not None else None

    def row_major_us(self, nodes: tuple[int, ...]) -> float | None:
        """The least time of these nodes in row-major, alone or as one operator; None if the former is
        unknown."""
        parts = [self.apart_us(node) for node in nodes]
        times = (_sum(parts), self.fused_us(nodes))
        return min((time for time in times if time is not None), default=None) if None not in parts else None

    @property
    def units(self) -> dict[int, tuple[int, ...]]:
        """Nodes that run as one operator now, by the last one."""
        return {one.fused[-1]: one.fused for one in self.chosen.values() if one.fused} | dict(self.groups)

    @property
    def kernels_apart(self) -> dict[int, NodeChoice]:
        """The kernels that would be chosen without fusion."""
        return {at: one for at, one in self.chosen.items() if not one.fused} | dict(self.apart)

    def apart_us(self, node: int) -> float | None:
        """Of one node alone, even if it is fused now: by its kernel, else in ONNX Runtime."""
        kernel = self.apart.get(node, self.chosen.get(node))
        if kernel is not None and not kernel.fused:
            return kernel.median_us
        return self.left_us(node) if (node, 0) in self.bodies else self.left_apart_us(node)

    def ends_us(self, step: PlanStep) -> float:
        """The cost of a region's two ends, as far as it was measured."""
        if self.borders is None or not isinstance(step.by, ByFramework):
            return 0.0
        return self.borders.ends_us(self.cut.bytes_of(step))

    def cut_us(self, plan: ModelPlan) -> float:
        """The cost of all regions' ends in one run, those in bodies that the plan runs included."""
        found = [self.ends_us(step) for step in plan.steps]
        for step in plan.steps:
            for which, inner in enumerate(step.by.plans if isinstance(step.by, ByBodies) else ()):
                one = self.bodies[step.nodes[0], which]
                found.append(one.cut_us(inner) * one.runs / self.runs)
        return math.fsum(found)

    @cached_property
    def cut(self) -> Borders:
        """What is converted at each cut."""
        return Borders.of_structure(self.structure)

    def _inner_us(self, node: int, us_of: Callable[[PlanDraft, int], float | None]) -> float | None:
        found = list[float | None]()
        for which in range(len(self.structure.nodes[node].bodies)):
            inner = self.bodies[node, which]
            each = [us_of(inner, one) for one in needed_nodes(inner.structure)]
            found.append(_scaled(_sum(each), inner.runs / self.runs))
        return _sum(found)

    def plan(self, target: str, setting: str) -> ModelPlan:
        """The draft as a plan; a step's time is predicted if the times of all its nodes are known."""
        return self._predicted(with_kernels(self.structure, self.chosen_everywhere(), target, setting))

    def chosen_everywhere(self) -> dict[NodeAt, NodeChoice]:
        """Kernels of the model and its bodies, by the places of their nodes."""
        found = dict[NodeAt, NodeChoice](self.chosen.items())
        for within, one in self.bodies.items():
            for at, choice in one.chosen_everywhere().items():
                found[*within, *(at if isinstance(at, tuple) else (at,))] = choice
        return found

    def parts(self, plan: ModelPlan) -> Iterator[tuple[BodyPath, PlanDraft, Sequence[PlanStep]]]:
        """The plan's steps, and those of each body, with its place and its draft. A body that is left to ONNX
        Runtime with its node is one step."""
        return self._parts((), plan.steps)

    def _parts(
        self, body: BodyPath, steps: Sequence[PlanStep]
    ) -> Iterator[tuple[BodyPath, PlanDraft, Sequence[PlanStep]]]:
        yield body, self, steps
        for step in steps:
            for node in step.nodes:
                for which, inner in enumerate(self.structure.nodes[node].bodies):
                    if (one := self.bodies.get((node, which))) is None:
                        continue
                    own: Sequence[PlanStep] = (PlanStep(tuple(needed_nodes(inner.graph)), (), DEFAULT),)
                    if isinstance(step.by, ByBodies):
                        own = step.by.plans[which].steps
                    yield from one._parts((*body, node, which), own)

    def _predicted(self, plan: ModelPlan) -> ModelPlan:
        return replace(plan, steps=tuple(map(self._predicted_step, plan.steps)))

    def _predicted_step(self, step: PlanStep) -> PlanStep:
        if isinstance(step.by, ByKernel):
            return step
        if isinstance(step.by, ByBodies):
            inner = [self.bodies[step.nodes[0], which] for which in range(len(step.by.plans))]
            plans = [one._predicted(plan) for one, plan in zip(inner, step.by.plans, strict=True)]
            times = [
                _scaled(plan.predicted_us, one.runs / self.runs)
                for one, plan in zip(inner, plans, strict=True)
            ]
            return replace(step, by=ByBodies(tuple(plans)), predicted_us=_sum(times))
        return replace(
            step, predicted_us=_sum([self.ends_us(step), *(self.left_us(node) for node in step.nodes)])
        )


def _sum(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return math.fsum(known) if len(known) == len(times) else None


def _scaled(us: float | None, runs: float) -> float | None:
    return None if us is None else us * runs


PlanPass = Callable[[PlanDraft], PlanDraft]
"""It does not change the draft that it is given."""
