"""Labels of plans, for people. PURE."""

from __future__ import annotations

from opatlas.plan.plan import ONE, RESTING, ByFramework, ByKernel, ModelPlan
from opatlas.plan.regions import DEFAULT, LABELS


def said_of(plan: ModelPlan) -> str:
    """A plan's label."""
    count = len(plan.kernels)
    others = {step.by.framework for step in plan.steps if isinstance(step.by, ByFramework)} or {DEFAULT}
    labels = " and ".join(sorted(LABELS[one] for one in others))
    streams = f", in {plan.stream_count} streams" * (plan.stream_count > 1)
    streams = _threading_said(plan) + streams
    streams = f", {plan.nhwc.nodes} nodes channels-last" * bool(plan.nhwc) + streams
    if not count and len(others) == 1:
        return whole_said(*others) + streams
    rest = f", the rest by {labels}" * (others != {DEFAULT})
    several = sum(isinstance(step.by, ByKernel) and len(step.nodes) > 1 for step in plan.steps)
    rest = f", {several} of several nodes" * bool(several) + rest
    if plan.inside:
        blocked = sum(bool(by.layout) for by in plan.kernels)
        rest = f", {blocked} in blocks of channels" * bool(blocked) + rest
        return f"{count} kernels inside {LABELS[plan.inside]}{rest}"
    return f"{count} of {plan.step_count} steps by kernels{rest}{streams}"


def _threading_said(plan: ModelPlan) -> str:
    used = [step.by.threading for step in plan.steps if isinstance(step.by, ByFramework)]
    resting = ", threads resting" * (RESTING in used)
    return resting + f", {used.count(ONE)} regions on one thread" * (ONE in used)


def whole_said(framework: str) -> str:
    """The label of a whole model in a framework."""
    return f"{LABELS[framework]}, the whole model"


WHOLE = whole_said(DEFAULT)
