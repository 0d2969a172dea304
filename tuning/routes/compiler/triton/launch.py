"""What a template asks Triton for: one kernel with its numbers, and the launch that goes with it.

PURE: nothing of Triton is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from opatlas.identity import Operator, Setting, Target, Value

Configuration = Mapping[str, int]
"""One point of a template's configuration space, as a candidate carries it: plain JSON."""

TYPES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "bool": "i1"}
"""Our dtypes → Triton's names."""
FLOATS = ("float16", "bfloat16", "float32")
MOST_ELEMENTS = 2**31 - 1
"""Kernels count places in 32 bits."""


@dataclass(frozen=True)
class Pointer:
    """One argument of a kernel: its name there, the dtype of what it points at, and as a launch plan says
    it (``{"input": 0}``)."""

    name: str
    dtype: str
    argument: Mapping[str, int]


@dataclass(frozen=True)
class TritonLaunch:
    """A launch of one kernel, and one after it (``then`` is its grid) that the kernel tells from the first by
    its argument ``phase``. ``kernel`` is ``module:function`` of ``kernels``; where ``text`` is given, the
    function is in that source instead. ``numbers`` are compiled in. ``workspace_bytes``: of the pointers into
    it."""

    kernel: str
    pointers: tuple[Pointer, ...]
    numbers: Mapping[str, Any]
    grid: tuple[int, int, int]
    warps: int
    stages: int
    text: str = ""
    then: tuple[int, int, int] | None = None
    workspace_bytes: int = 0

    @property
    def grids(self) -> tuple[tuple[int, int, int], ...]:
        return (self.grid,) if self.then is None else (self.grid, self.then)


class Template(Protocol):
    """Kernels of one form, for many operators."""

    name: str
    types: frozenset[str]  # of ONNX

    def missing(self, operator: Operator) -> str | None:
        """Why it is not for this operator; None where it is."""
        ...

    def configurations(self, operator: Operator, target: Target, setting: Setting) -> Iterator[Configuration]:
        """The whole space for this operator, the most promising first; never empty."""
        ...

    def launch(self, operator: Operator, setting: Setting, configuration: Configuration) -> TritonLaunch:
        """With these numbers."""
        ...


def of_input(name: str, operator: Operator, number: int) -> Pointer:
    return Pointer(name, operator.inputs[number].dtype, {"input": number})


def of_output(name: str, operator: Operator, number: int = 0) -> Pointer:
    return Pointer(name, operator.output_values[number].dtype, {"output": number})


def in_workspace(name: str) -> Pointer:
    """Sums of float32."""
    return Pointer(name, "float32", {"workspace": 0})


def has_tma(target: Target) -> bool:
    """Whether the device has an engine that moves blocks of tensors."""
    return int(target.arch.removeprefix("sm_").rstrip("af")) >= 90


def single(operator: Operator, types: frozenset[str]) -> str | None:
    """Why the operator is not one node of these types with one output; None where it is."""
    if len(operator.nodes) != 1 or operator.nodes[0].op not in types or operator.nodes[0].domain:
        return f"it is not one of {', '.join(sorted(types))}"
    if len(operator.outputs) != 1 or len(operator.nodes[0].outputs) != 1:
        return f"{operator.nodes[0].op} with more than one output"
    return None


def unwieldy(operator: Operator, *, strided: bool = False) -> str | None:
    """What no template takes; ``strided``: this one reads inputs where they lie."""
    for value in (*operator.inputs, *operator.produced):
        if value.data is None and value.dtype not in TYPES:
            return f"the Triton templates have no {value.dtype}"
        if 0 in value.shape:
            return "the Triton templates take no empty tensors"
        if elements(value.shape) > MOST_ELEMENTS:
            return f"the Triton templates count to {MOST_ELEMENTS} elements"
        if value.strides is not None and not strided:
            return "this Triton template takes dense tensors only"
    return None


def elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def steps(value: Value) -> tuple[int, ...]:
    """A tensor's strides in elements."""
    if value.strides is not None:
        return value.strides
    made, step = [], 1
    for size in reversed(value.shape):
        made.append(step)
        step *= size
    return tuple(reversed(made))


def power_of_two(number: int, least: int = 1) -> int:
    """The smallest that is not below ``number`` and ``least``."""
    return max(least, 1 << max(0, number - 1).bit_length())


def parts(whole: int, size: int) -> int:
    """How many parts of ``size`` the whole has, the last one perhaps smaller."""
    return -(-whole // size)
