"""A plan: which of a model's nodes run by what, in which order. PURE, and plain JSON.

Nodes and values are numbers of the model's normal form (:class:`opatlas.graph.normal.ModelGraph`). A plan
does not depend on weights: it fits every model of its structure on its target and setting.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.errors import CallerError
from opatlas.graph.channels_last import NOTHING, ChannelsLast, InvalidChannelsLast

PLAN_VERSION = 1
MOST_STEPS = 100_000
MOST_DEPTH = 16
"""The most bodies within bodies."""
MOST_US = 1e15
MOST_STREAMS = 16
FRAMEWORKS = ("onnxruntime", "openvino", "pytorch", "torch.compile", "xla")
"""Frameworks that may run a region."""
CONFINED = ("pytorch", "torch.compile", "xla")
"""Frameworks whose threads belong to the whole process: PyTorch's number of threads is set around each
region, and XLA has one pool. All of their regions run in one stream."""

INSIDE = ("onnxruntime",)
"""Frameworks that accept kernels inside their session."""

BLOCKS = "blocks"

SLEEPING, RESTING, ONE = "sleeping", "resting", "one"
THREADING = (SLEEPING, RESTING, ONE)
"""How a region of ONNX Runtime uses threads: they sleep as soon as they are idle; they spin during a run and
rest after it; or there is one."""

KERNEL_KINDS = ("c-abi",)
"""Kinds of artifacts that run in a model. Compiled kernels write where the next step reads; a library's call
would run beside the library's own threads."""


class InvalidPlan(CallerError):
    """A plan that cannot be used: broken, of another version, or for another model, target or setting."""


@dataclass(frozen=True)
class ByKernel:
    """One operator, of one node or several, by an implementation of the catalogue. ``tensors``: the value for
    each tensor input of the operator. ``layout``: :data:`BLOCKS` if, inside ONNX Runtime, it reads and writes
    blocks of channels, else ""."""

    operator: str  # its key
    artifact: str  # SHA-256 of its manifest
    tensors: tuple[int, ...]
    said: str = ""  # what people read: its route and label
    layout: str = ""


@dataclass(frozen=True)
class ByFramework:
    """Nodes left to a framework, as one model. ``threading``: one of :data:`THREADING`, for regions of ONNX
    Runtime; without meaning for a whole model."""

    framework: str
    threading: str = SLEEPING

    @property
    def said(self) -> str:
        return self.framework


@dataclass(frozen=True)
class ByBodies:
    """One branch or loop that a plan runs itself, with a plan for each body (of an If: then, else)."""

    plans: tuple[ModelPlan, ...]

    @property
    def said(self) -> str:
        return f"{sum(len(plan.kernels) for plan in self.plans)} kernels in bodies"


IN_PLACE = "ONNX Runtime in the model"
"""The label of an alternative whose time is from a profile of the model."""


@dataclass(frozen=True)
class Alternative:
    """Another implementation of a step, and its time there."""

    said: str
    median_us: float


@dataclass(frozen=True)
class PlanStep:
    """Some nodes, run together. ``outputs``: values that others need; ``predicted_us``: time of one run, None
    if unknown; ``over``: the alternatives. Steps of one ``stream`` run in order; steps of other streams run
    beside them, unless they need each other's values."""

    nodes: tuple[int, ...]
    outputs: tuple[int, ...]
    by: ByKernel | ByFramework | ByBodies
    predicted_us: float | None = None
    over: tuple[Alternative, ...] = ()
    stream: int = 0

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "nodes": list(self.nodes),
            "outputs": list(self.outputs),
            "by": _by_json(self.by),
            "predicted_us": self.predicted_us,
            "over": [{"said": one.said, "median_us": one.median_us} for one in self.over],
        }
        # Left out where it says nothing, since whoever does not know the field runs steps one by one.
        return document | ({"stream": self.stream} if self.stream else {})


@dataclass(frozen=True)
class ModelPlan:
    """``model``, ``target`` and ``setting`` are keys; ``steps`` are in order.

    ``nhwc``: the nodes that run channels-last, bodies included (bodies' plans do not say). If there are any,
    the steps' numbers are those of the model's laid-out form (:mod:`opatlas.graph.laid_out`). ``inside``: the
    framework in whose one session all steps run, with kernels as its operators; "" if steps run one by one.
    Bodies' plans do not say that either.
    """

    model: str
    target: str
    setting: str
    steps: tuple[PlanStep, ...]
    nhwc: ChannelsLast = NOTHING
    inside: str = ""

    @property
    def every_step(self) -> Iterator[PlanStep]:
        """All steps, with those of bodies in place of a branch's or loop's."""
        for step in self.steps:
            if isinstance(step.by, ByBodies):
                for plan in step.by.plans:
                    yield from plan.every_step
            else:
                yield step

    @property
    def kernels(self) -> list[ByKernel]:
        """The kernels of all steps, bodies included."""
        return [step.by for step in self.every_step if isinstance(step.by, ByKernel)]

    @property
    def step_count(self) -> int:
        return sum(1 for _ in self.every_step)

    @property
    def stream_count(self) -> int:
        """The number of streams."""
        return len({step.stream for step in self.steps}) or 1

    @property
    def predicted_us(self) -> float | None:
        """Time of one run; None if a step's is unknown, or if streams overlap."""
        if self.stream_count > 1:
            return None
        times = [step.predicted_us for step in self.steps]
        return None if None in times else math.fsum(time for time in times if time is not None)

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "plan": PLAN_VERSION,
            "model": self.model,
            "target": self.target,
            "setting": self.setting,
            "steps": [step.to_json() for step in self.steps],
        }
        # Left out where it says nothing: whoever does not know it runs the same steps one by one.
        return document | self.nhwc.to_json() | ({"inside": self.inside} if self.inside else {})

    @classmethod
    def from_json(cls, document: Any) -> ModelPlan:
        """Raises :class:`InvalidPlan` with one sentence for anything but a plan of this version."""
        if not isinstance(document, Mapping):
            raise InvalidPlan(f"A plan is a JSON object, not {type(document).__name__}.")
        if document.get("plan") != PLAN_VERSION or isinstance(document["plan"], bool):
            raise InvalidPlan(
                f"The plan is of version {str(document.get('plan'))[:20]}; version {PLAN_VERSION} is read."
            )
        return _plan(document, 0)


def _by_json(by: ByKernel | ByFramework | ByBodies) -> dict[str, Any]:
    if isinstance(by, ByFramework):
        # Left out where it is the usual one: plans that were kept before have none.
        return {"framework": by.framework} | ({"threading": by.threading} if by.threading != SLEEPING else {})
    if isinstance(by, ByBodies):
        return {"bodies": [plan.to_json() for plan in by.plans]}
    return {
        "operator": by.operator,
        "artifact": by.artifact,
        "tensors": list(by.tensors),
        "said": by.said,
    } | ({"layout": by.layout} if by.layout else {})


def _plan(document: Mapping[str, Any], depth: int) -> ModelPlan:
    """``depth``: of a body's plan, which may have no steps if it only passes values on."""
    steps = _list(document, "steps")
    least = 0 if depth else 1
    if not least <= len(steps) <= MOST_STEPS:
        raise InvalidPlan(f"A plan has {least} to {MOST_STEPS} steps, not {len(steps)}.")
    return ModelPlan(
        _text(document, "model"),
        _text(document, "target"),
        _text(document, "setting"),
        tuple(_step(number, step, depth) for number, step in enumerate(steps)),
        _channels_last(document, depth),
        _inside(document, depth),
    )


def _inside(document: Mapping[str, Any], depth: int) -> str:
    inside = document.get("inside", "")
    if inside not in ("", *INSIDE) or (inside and depth):
        raise InvalidPlan(f"'inside' is said of the model's plan, and one of {', '.join(INSIDE)}.")
    return str(inside)


def _channels_last(document: Mapping[str, Any], depth: int) -> ChannelsLast:
    try:
        found = ChannelsLast.from_json(document)
    except InvalidChannelsLast as error:
        raise InvalidPlan(str(error)) from None
    if found and depth:
        raise InvalidPlan("What lies channels-last in a body is said by the model's plan, not by the body's.")
    return found


def _step(number: int, document: Any, depth: int) -> PlanStep:
    try:
        by = _by(document["by"], depth)
        over = tuple(
            Alternative(_text(one, "said"), _time(one, "median_us") or 0.0) for one in _list(document, "over")
        )
        return PlanStep(
            _numbers(document, "nodes"),
            _numbers(document, "outputs"),
            by,
            _time(document, "predicted_us"),
            over,
            _stream(document),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidPlan(f"Step {number} of the plan is incomplete: {error}.") from None
    except InvalidPlan as error:
        raise InvalidPlan(f"Step {number} of the plan: {error}") from None


def _stream(document: Mapping[str, Any]) -> int:
    stream = document.get("stream", 0)
    if type(stream) is not int or not 0 <= stream < MOST_STREAMS:
        raise InvalidPlan(f"'stream' must be a whole number from 0 to {MOST_STREAMS - 1}.")
    return stream


def _by(document: Any, depth: int) -> ByKernel | ByFramework | ByBodies:
    if "framework" in document:
        threading = document.get("threading", SLEEPING)
        if threading not in THREADING:
            raise InvalidPlan(f"'threading' must be one of {', '.join(THREADING)}.")
        return ByFramework(_text(document, "framework"), threading)
    if "bodies" in document:
        if depth >= MOST_DEPTH:
            raise InvalidPlan(f"bodies are nested deeper than {MOST_DEPTH} levels.")
        return ByBodies(tuple(_plan(one, depth + 1) for one in _list(document, "bodies")))
    if (layout := document.get("layout", "")) not in ("", BLOCKS):
        raise InvalidPlan(f"'layout' is {BLOCKS!r}, or left out.")
    return ByKernel(
        _text(document, "operator"),
        _text(document, "artifact"),
        _numbers(document, "tensors"),
        _text(document, "said"),
        layout,
    )


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
