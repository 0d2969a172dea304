"""Whether another implementation than PyTorch computes the same as a reference by PyTorch's calls.

PyTorch eager, the usual default, and the float64 reference come from the same builders
(``opatlas.load.torch.ops``): a wrong one would agree with itself, and a right result of others would be
judged wrong. So the first references of an operator are held against others, in this order: ONNX Runtime's
plain graph in the operator's own types, the same in float32 (it has no kernel for some types), and ONNX's
own evaluator in float64, which is slow. One of them has to agree with every set; else PyTorch's reference is
not used.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import Any

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity import Node, Operator, Value
from opatlas.identity.dtypes import CODES
from opatlas.load.dtypes import EXTENSION_TYPES, numpy_dtype
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.tolerance import is_float
from tuning.measure.outcome import Status

LONGEST_CPU_S = 5.0
"""What ONNX's evaluator, which is partly plain Python, may compute for one operator."""
AGAIN_CPU_S = 0.5
"""After so much more it is ended once more."""
SINGLE_ROUNDING, SINGLE_TIMES = 2.0**-20, 2.0**29
"""Beside a float64 operator computed in float32: a share of each value, and times what float64 is allowed."""

IN_OWN_TYPES, IN_FLOAT32, EVALUATOR = OTHERS = (
    "ONNX Runtime",
    "ONNX Runtime in float32",
    "ONNX's evaluator",
)

Feeds = Mapping[int, np.ndarray]
Run = Callable[[Feeds], list[np.ndarray]]
Make = Callable[[Operator], Run]


class Unconfirmed(OpatlasError):
    """Nobody else computes what PyTorch's calls do."""


class Confirmation:
    """Of one operator's references. ``onnxruntime`` and ``evaluator`` make what computes an operator by
    each."""

    def __init__(self, operator: Operator, constants: Feeds, onnxruntime: Make, evaluator: Make) -> None:
        self._operator, self._constants = operator, dict(constants)
        self._left_s = LONGEST_CPU_S
        single, double = retyped(operator, "float32"), retyped(operator, "float64")
        self._others: dict[str, Callable[[Feeds], list[np.ndarray]]] = {
            IN_OWN_TYPES: _once(partial(onnxruntime, operator)),
            IN_FLOAT32: _once(partial(_in, "float32", onnxruntime, single)),
            EVALUATOR: _once(partial(_in, "float64", evaluator, double)),
        }
        if single == operator:
            del self._others[IN_FLOAT32]

    def confirm(self, inputs: Feeds, references: Sequence[Reference]) -> str:
        """Who agrees with the references of one set. Raises :class:`Unconfirmed`, which says what everybody
        came to."""
        reasons = []
        for name, run in self._others.items():
            try:
                with self._limited(name):
                    made = run({**self._constants, **inputs})
                why_not = self._apart(name, made, references)
            except _TooSlow:
                why_not = f"it takes more than {LONGEST_CPU_S:g} s"
            except Exception:  # whatever a library raises for what it has no kernel for
                why_not = "it cannot compute it"
            if not why_not:
                return name
            reasons.append(f"{name}: {why_not}")
        raise Unconfirmed(f"nobody else computes what PyTorch does ({'; '.join(reasons)})")

    def _apart(self, name: str, made: Sequence[np.ndarray], references: Sequence[Reference]) -> str:
        """In what the other's outputs differ from the references; nothing where they agree."""
        values = self._operator.output_values
        made = [_as_numbers(one, value.dtype) for one, value in zip(made, values, strict=True)]
        wanted = [one.value.shape for one in references]
        if [one.shape for one in made] != wanted:
            return f"its shapes are {[one.shape for one in made]} and not {wanted}"
        if name == IN_FLOAT32:
            references = [_widened(one, value.dtype) for one, value in zip(references, values, strict=True)]
        result = compare(made, references)
        return "" if result.status is Status.OK else result.detail

    @contextmanager
    def _limited(self, name: str) -> Iterator[None]:
        """The evaluator is ended once it has computed for ``LONGEST_CPU_S`` in all; again where its own code
        catches what ends it."""
        if name != EVALUATOR or threading.current_thread() is not threading.main_thread():
            yield
            return
        clock = _Clock()
        before = signal.signal(signal.SIGVTALRM, clock.strike)
        signal.setitimer(signal.ITIMER_VIRTUAL, max(self._left_s, 1e-3), AGAIN_CPU_S)
        try:
            try:
                yield
            finally:
                clock.runs = False
        finally:
            left_s, _ = signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            self._left_s = 0.0 if clock.struck else left_s
            signal.signal(signal.SIGVTALRM, before)


class _TooSlow(BaseException):
    """No Exception: the evaluator's code catches those and goes on."""


@dataclass
class _Clock:
    """What a timer calls again and again; ``struck``: whether it has ended anything."""

    runs: bool = True
    struck: bool = False

    def strike(self, number: int, frame: FrameType | None) -> None:
        if self.runs:
            self.struck = True
            raise _TooSlow


def _once(make: Callable[[], Run]) -> Run:
    """What ``make`` makes, when it is first asked for."""
    made: list[Run] = []

    def run(arrays: Feeds) -> list[np.ndarray]:
        if not made:
            made.append(make())
        return made[0](arrays)

    return run


def _in(dtype: str, make: Make, operator: Operator) -> Run:
    """A retyped operator, fed with arrays of the types that it had."""
    run = make(operator)

    def converted(arrays: Feeds) -> list[np.ndarray]:
        types = [numpy_dtype(value.dtype) for value in operator.inputs]
        return run({number: np.asarray(array).astype(types[number]) for number, array in arrays.items()})

    return converted


def _as_numbers(array: np.ndarray, dtype: str) -> np.ndarray:
    """ONNX Runtime gives NumPy eight-bit floats as bytes; what NumPy cannot compare becomes float64."""
    if dtype.startswith("float8") and array.dtype == np.uint8:
        array = array.view(numpy_dtype(dtype))
    return array.astype(np.float64) if array.dtype.name in EXTENSION_TYPES else array


def _widened(reference: Reference, dtype: str) -> Reference:
    """What a float64 output computed in float32 may differ by."""
    if dtype != "float64":
        return reference
    allowed = np.zeros(reference.value.shape) if reference.allowed is None else reference.allowed
    sizes = np.nan_to_num(np.abs(reference.value), posinf=0.0)
    return Reference(reference.value, allowed * SINGLE_TIMES + sizes * SINGLE_ROUNDING + 2.0**-126)


def retyped(operator: Operator, dtype: str) -> Operator:
    """The operator with every real floating type in place of which ``dtype`` can stand."""
    fixed = {number for node in operator.nodes if node.op == "Resize" for number in node.inputs[1:]}

    def value(number: int, one: Value) -> Value:
        real = is_float(one.dtype) and not one.dtype.startswith(("complex", "float8"))
        return replace(one, dtype=dtype) if real and number not in fixed else one

    inputs = tuple(value(number, one) for number, one in enumerate(operator.inputs))
    produced = tuple(value(-1, one) for one in operator.produced)
    made = replace(operator, inputs=inputs, produced=produced)
    return replace(made, nodes=tuple(_retyped_node(made, node) for node in operator.nodes))


def _retyped_node(operator: Operator, node: Node) -> Node:
    """Attributes that say an output's type say the new one."""
    number = next(one for one in node.outputs if one >= 0)
    made = CODES[operator.value(number).dtype]
    attrs: list[tuple[str, Any]] = []
    for name, given in node.attrs:
        if (node.op, name) in (("Cast", "to"), ("EyeLike", "dtype")):
            given = made
        elif (node.op, name) == ("ConstantOfShape", "value"):
            given = (operator.value(number).dtype, *given[1:])
        attrs.append((name, given))
    return replace(node, attrs=tuple(attrs))
