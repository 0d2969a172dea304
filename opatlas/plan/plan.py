"""A plan: which of a model's nodes run by what, in which order. PURE, and plain JSON.

Nodes and values are numbers of the model's normal form (:class:`opatlas.graph.normal.ModelGraph`). A plan
says nothing of weights: it is good for every model of its structure on its target and setting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.errors import CallerError

PLAN_VERSION = 1
MOST_STEPS = 100_000
MOST_US = 1e15
FRAMEWORKS = ("onnxruntime", "openvino", "pytorch", "torch.compile")
"""Whom a region may be left to."""


KERNEL_KINDS = ("c-abi",)
"""Artifacts that run in a model: compiled kernels write where the next step reads; a library's call would run
beside the library's own threads."""


class InvalidPlan(CallerError):
    """A plan that cannot be: broken, of another version, or not for this model, target or setting."""


@dataclass(frozen=True)
class ByKernel:
    """One operator by an implementation of the catalogue. ``tensors``: the value that each of the operator's
    tensor inputs is."""

    operator: str  # its key
    artifact: str  # SHA-256 of its manifest
    tensors: tuple[int, ...]
    said: str = ""  # what people read: its route and label


@dataclass(frozen=True)
class ByFramework:
    """Nodes left to a framework, as one model."""

    framework: str

    @property
    def said(self) -> str:
        return self.framework


@dataclass(frozen=True)
class Alternative:
    """What a step could have been, and its time there."""

    said: str
    median_us: float


@dataclass(frozen=True)
class PlanStep:
    """Some nodes, run together. ``outputs`` are the values that others need; ``predicted_us`` is the time of
    one run, None where nothing is known; ``over`` says what it was chosen over."""

    nodes: tuple[int, ...]
    outputs: tuple[int, ...]
    by: ByKernel | ByFramework
    predicted_us: float | None = None
    over: tuple[Alternative, ...] = ()

    def to_json(self) -> dict[str, Any]:
        by: dict[str, Any] = (
            {
                "operator": self.by.operator,
                "artifact": self.by.artifact,
                "tensors": list(self.by.tensors),
                "said": self.by.said,
            }
            if isinstance(self.by, ByKernel)
            else {"framework": self.by.framework}
        )
        return {
            "nodes": list(self.nodes),
            "outputs": list(self.outputs),
            "by": by,
            "predicted_us": self.predicted_us,
            "over": [{"said": one.said, "median_us": one.median_us} for one in self.over],
        }


@dataclass(frozen=True)
class ModelPlan:
    """``model``, ``target`` and ``setting`` are keys; ``steps`` stand in their order."""

    model: str
    target: str
    setting: str
    steps: tuple[PlanStep, ...]

    @property
    def kernels(self) -> list[ByKernel]:
        return [step.by for step in self.steps if isinstance(step.by, ByKernel)]

    @property
    def predicted_us(self) -> float | None:
        """Of one run; None where a step's is not known."""
        times = [step.predicted_us for step in self.steps]
        return None if None in times else math.fsum(time for time in times if time is not None)

    def to_json(self) -> dict[str, Any]:
        return {
            "plan": PLAN_VERSION,
            "model": self.model,
            "target": self.target,
            "setting": self.setting,
            "steps": [step.to_json() for step in self.steps],
        }

    @classmethod
    def from_json(cls, document: Any) -> ModelPlan:
        """Raises :class:`InvalidPlan` with one sentence for what is no plan of this version."""
        if not isinstance(document, Mapping):
            raise InvalidPlan(f"A plan is a JSON object, not {type(document).__name__}.")
        if document.get("plan") != PLAN_VERSION or isinstance(document["plan"], bool):
            raise InvalidPlan(
                f"The plan is of version {str(document.get('plan'))[:20]}; version {PLAN_VERSION} is read."
            )
        steps = _list(document, "steps")
        if not 1 <= len(steps) <= MOST_STEPS:
            raise InvalidPlan(f"A plan has 1 to {MOST_STEPS} steps, not {len(steps)}.")
        return cls(
            _text(document, "model"),
            _text(document, "target"),
            _text(document, "setting"),
            tuple(_step(number, step) for number, step in enumerate(steps)),
        )


def _step(number: int, document: Any) -> PlanStep:
    try:
        by = document["by"]
        chosen: ByKernel | ByFramework = (
            ByFramework(_text(by, "framework"))
            if "framework" in by
            else ByKernel(
                _text(by, "operator"),
                _text(by, "artifact"),
                _numbers(by, "tensors"),
                _text(by, "said"),
            )
        )
        over = tuple(
            Alternative(_text(one, "said"), _time(one, "median_us") or 0.0) for one in _list(document, "over")
        )
        return PlanStep(
            _numbers(document, "nodes"),
            _numbers(document, "outputs"),
            chosen,
            _time(document, "predicted_us"),
            over,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPlan(f"Step {number} of the plan is incomplete: {error}.") from None
    except InvalidPlan as error:
        raise InvalidPlan(f"Step {number} of the plan: {error}") from None


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str):
        raise InvalidPlan(f"'{name}' must be text.")
    return value


def _list(document: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = document.get(name)
    if not isinstance(value, list):
        raise InvalidPlan(f"'{name}' must be a list.")
    return value


def _numbers(document: Mapping[str, Any], name: str) -> tuple[int, ...]:
    values = _list(document, name)
    if not all(type(value) is int and value >= 0 for value in values):
        raise InvalidPlan(f"'{name}' must be whole numbers from 0.")
    return tuple(values)


def _time(document: Mapping[str, Any], name: str) -> float | None:
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_US:
        raise InvalidPlan(f"'{name}' must be a time in microseconds.")
    return float(value)
