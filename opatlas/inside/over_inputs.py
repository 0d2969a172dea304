"""Whether a kernel's output may share memory with its first input: tried, since no manifest says so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.identity.operator_types import types_with
from opatlas.load.buffers import empty
from opatlas.load.c_abi import CKernel
from opatlas.load.kernel import KernelFailed

_POINTWISE = types_with("pointwise")


def may_write_over(kernel: CKernel, constants: Mapping[int, np.ndarray]) -> bool:
    """Whether a pointwise kernel (:func:`is_pointwise`) gives the same bytes in its input's memory. Its tasks
    run one after the other, so that an overwritten value which another task reads shows. It is prepared with
    these constants."""
    operator = kernel.operator
    random = np.random.default_rng(0)
    inputs = []
    for number in operator.tensor_inputs:
        value = operator.inputs[number]
        array = empty(value, kernel.alignment)
        # Of both signs, where that is safe: many operators change nothing of positive numbers.
        low = -3 if array.dtype.kind == "f" else 1
        drawn = low + (5 - low) * random.random(value.shape)
        array[...] = constants.get(number, drawn)
        inputs.append(array)
    [output] = (empty(value, kernel.alignment) for value in operator.output_values)
    try:
        kernel.prepare(constants)
        kernel.run_alone([*inputs, output])
        kernel.run_alone([*inputs, inputs[0]])
    except (KernelFailed, LoadError):  # which shows, and is told, where it runs
        return False
    return output.tobytes() == inputs[0].tobytes()


def is_pointwise(operator: Operator) -> bool:
    """Whether it computes element by element, and its one output is as its first input."""
    if len(operator.outputs) != 1 or not operator.tensor_inputs:
        return False
    first, [made] = operator.inputs[operator.tensor_inputs[0]], operator.output_values
    is_alike = first.role == "runtime" and (first.dtype, first.shape) == (made.dtype, made.shape)
    return is_alike and _POINTWISE.issuperset(operator.op_types)
