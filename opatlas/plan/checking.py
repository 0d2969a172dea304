"""Checks that a plan computes what its model does; each failed check gives one sentence. PURE.

A plan may come from anywhere, so nothing in it is trusted: every needed node must run once, after what it
reads. A kernel's operator must be the canonical operator of its nodes.
"""

from __future__ import annotations

from opatlas.errors import InvalidOperator
from opatlas.graph.fused import operator_of
from opatlas.graph.normal import ModelGraph
from opatlas.plan.plan import (
    CONFINED,
    FRAMEWORKS,
    ByBodies,
    ByFramework,
    ByKernel,
    InvalidPlan,
    ModelPlan,
    PlanStep,
)


def check_plan(plan: ModelPlan, graph: ModelGraph, target: str, setting: str) -> None:
    """Raises :class:`InvalidPlan` unless running the plan's steps in their order gives the model's outputs on
    this target and setting (their keys)."""
    for name, said, wanted in (
        ("model", plan.model, graph.key),
        ("target", plan.target, target),
        ("setting", plan.setting, setting),
    ):
        if said != wanted:
            raise InvalidPlan(f"The plan is for the {name} {said[:80]}, not for {wanted}.")
    if plan.nhwc != graph.nhwc:
        raise InvalidPlan(
            "The plan has other nodes run channels-last than the graph that it is checked with."
        )
    ready = set(graph.inputs) | {number for number in range(len(graph.names)) if graph.is_constant(number)}
    done: set[int] = set()
    for number, step in enumerate(plan.steps):
        try:
            _check_step(step, graph, ready, done)
            if isinstance(step.by, ByBodies):
                _check_bodies(step, step.by, graph, target, setting)
        except InvalidPlan as error:
            raise InvalidPlan(f"Step {number} of the plan {error}") from None
        done |= set(step.nodes)
        ready |= set(step.outputs)
    if missing := [number for number in graph.outputs if number not in ready]:
        raise InvalidPlan(f"The plan never makes the model's output '{graph.names[missing[0]]}'.")
    _check_streams(plan)
    _check_inside(plan)


def _check_inside(plan: ModelPlan) -> None:
    """One session is one framework's and chooses its own order of nodes."""
    if not plan.inside:
        if any(by.layout for by in plan.kernels):
            raise InvalidPlan("Only inside a framework kernels read and write blocks of channels.")
        return
    others = {one.by for one in plan.every_step if isinstance(one.by, ByFramework)} - {
        ByFramework(plan.inside)
    }
    if others or plan.stream_count > 1 or plan.nhwc:
        raise InvalidPlan(f"The plan runs inside {plan.inside}, and says that some of it runs otherwise.")


def _check_streams(plan: ModelPlan) -> None:
    """Frameworks that set the threads of the whole process must run in one stream. A plan does not say which
    steps wait for which: that follows from what they read and write (:mod:`opatlas.streams.ordering`). No
    steps may wait in a circle."""
    confined = {
        step.stream
        for step in plan.steps
        if isinstance(step.by, ByFramework) and step.by.framework in CONFINED
    }
    if len(confined) > 1:
        raise InvalidPlan(f"The plan runs regions by {', '.join(CONFINED)} in more than one stream.")


def _check_step(step: PlanStep, graph: ModelGraph, ready: set[int], done: set[int]) -> None:
    if not step.nodes or max(step.nodes) >= len(graph.nodes):
        raise InvalidPlan(f"names nodes that the model does not have; it has {len(graph.nodes)}.")
    if done.intersection(step.nodes) or len(set(step.nodes)) < len(step.nodes):
        raise InvalidPlan("runs a node that has run before.")
    made: set[int] = set()
    for number in sorted(step.nodes):
        node = graph.nodes[number]
        if late := node.reads - ready - made:
            raise InvalidPlan(f"reads '{graph.names[min(late)]}' before it is made.")
        made |= node.makes
    repeated = len(set(step.outputs)) < len(step.outputs)
    if not step.outputs or repeated or not made.issuperset(step.outputs):
        raise InvalidPlan("gives values that its nodes do not make.")
    if isinstance(step.by, ByKernel):
        _check_kernel(step, step.by, graph)
    elif not isinstance(step.by, ByBodies) and step.by.framework not in FRAMEWORKS:
        raise InvalidPlan(f"is left to {step.by.framework[:40]!r}; regions run by {', '.join(FRAMEWORKS)}.")


def _check_kernel(step: PlanStep, by: ByKernel, graph: ModelGraph) -> None:
    if len(step.nodes) == 1:
        _check_outputs(step, graph)
    try:
        found = operator_of(graph, step.nodes, step.outputs)
    except InvalidOperator as error:
        raise InvalidPlan(f"is a kernel for what is no operator: {error}") from None
    if found.operator.key != by.operator or found.tensors != by.tensors:
        raise InvalidPlan("is a kernel of another operator than its nodes are.")
    if found.outputs != step.outputs:
        raise InvalidPlan("gives its outputs in another order than its operator.")


def _check_bodies(step: PlanStep, by: ByBodies, graph: ModelGraph, target: str, setting: str) -> None:
    bodies = graph.nodes[step.nodes[0]].bodies
    if len(step.nodes) != 1 or not bodies:
        raise InvalidPlan("has plans for bodies, and is no branch or loop that can be taken apart.")
    if len(by.plans) != len(bodies):
        raise InvalidPlan(f"has plans for {len(by.plans)} bodies; its node has {len(bodies)}.")
    _check_outputs(step, graph)
    for number, (plan, body) in enumerate(zip(by.plans, bodies, strict=True)):
        if plan.stream_count > 1:
            raise InvalidPlan(f"runs its body {number} in several streams; a body runs in its step's.")
        try:
            check_plan(plan, body.graph, target, setting)
        except InvalidPlan as error:
            raise InvalidPlan(f"has no sound plan for its body {number}: {error}") from None


def _check_outputs(step: PlanStep, graph: ModelGraph) -> None:
    if tuple(number for number in graph.nodes[step.nodes[0]].outputs if number >= 0) != step.outputs:
        raise InvalidPlan("leaves out an output of its node.")
