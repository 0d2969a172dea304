"""The C wrapper that makes Halide's object file an Opatlas kernel, with no Halide beside it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path

from opatlas.identity import Operator
from opatlas.identity.dtypes import item_bytes
from opatlas.identity.strides import dense_strides
from tuning.routes.compiler.halide.lower import Operand
from tuning.routes.compiler.halide.table import ALIGNMENT

FUNCTION = "halide_kernel"
VERSION_SCRIPT = "{ global: opatlas_run; opatlas_prepare; opatlas_release; opatlas_error; local: *; };\n"
"""Linker script that hides everything but the ABI: several kernels live in one process."""

_CODES = {"i": 0, "u": 1, "f": 2, "b": 4}  # halide_type_code_t; "b": bfloat


def wrapper_source(operator: Operator, operands: Sequence[Operand]) -> str:
    """The C file: the fixed part (``shim_runtime.c``), then a buffer for each operand, in the compiled
    function's order, and the call."""
    count = len(operator.tensor_inputs) + len(operator.outputs)
    state, offsets = _place(operands)
    arguments = ", ".join(f"&b{i}" for i in range(len(operands)))
    parts = [
        Path(__file__).with_name("shim_runtime.c").read_text(),
        f"extern int {FUNCTION}(const void*{', Buffer*' * len(operands)});\n",
        "int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, "
        "void* state) {",
        f'  if (n != {count}) return fail("opatlas_run: wrong number of tensors");',
        *([_NO_STATE] if state else ["  (void)state;"]),
        *(_buffer(i, operand, offsets.get(i)) for i, operand in enumerate(operands)),
        f"  return {FUNCTION}(threads, {arguments});",
        "}",
        *(_prepare(operator, operands, offsets, state) if state else []),
    ]
    return "\n".join(parts) + "\n"


def packed_bytes(operands: Sequence[Operand]) -> int:
    """Bytes that opatlas_prepare keeps."""
    return _place(operands)[0]


def _place(operands: Sequence[Operand]) -> tuple[int, dict[int, int]]:
    """Size of the packed constants and where each begins."""
    total, offsets = 0, {}
    for i, operand in enumerate(operands):
        if operand.order is not None:
            offsets[i] = total
            size = prod(operand.shape) * item_bytes(operand.dtype)
            total += -(-size // ALIGNMENT) * ALIGNMENT
    return total, offsets


def _buffer(index: int, operand: Operand, offset: int | None) -> str:
    """A halide_buffer_t on the stack; Halide's axes are counted from the innermost."""
    shape, strides = operand.shape, operand.strides
    if operand.order is not None:
        shape = tuple(shape[axis] for axis in operand.order)
        strides = dense_strides(shape)
    sizes = ", ".join(
        f"{{0, {extent}, {stride}, 0}}"
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True)
    )
    data = f"tensors[{operand.position}].data" if offset is None else f"(char*)state + {offset}"
    code, bits = _CODES[operand.dtype[0]], item_bytes(operand.dtype) * 8
    return (
        f"  Dimension d{index}[] = {{{sizes}}};\n"
        f"  Buffer b{index} = {{0, 0, {data}, 0, {{{code}, {bits}, 1}}, {len(shape)}, d{index}, 0}};"
    )


def _prepare(
    operator: Operator, operands: Sequence[Operand], offsets: dict[int, int], state: int
) -> list[str]:
    numbers = operator.tensor_inputs
    lines = [
        "int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads, "
        "void** state) {",
        f"  char* made = n == {len(operator.constant_inputs)} ? aligned_alloc({ALIGNMENT}, {state}) : 0;",
        "  (void)threads;",
        "  *state = made;",
        '  if (!made) return fail("opatlas_prepare: no memory, or wrong number of constants");',
    ]
    for i, offset in offsets.items():
        operand = operands[i]
        order, item = operand.order or (), item_bytes(operand.dtype)
        constant = operator.constant_inputs.index(numbers[operand.position])
        shape = [operand.shape[axis] for axis in order]
        steps = {"shape": shape, "to": _in_bytes(dense_strides(tuple(shape)), item)}
        steps["from"] = _in_bytes([operand.strides[axis] for axis in order], item)
        arrays = ", ".join(f"(const int64_t[]){{{', '.join(map(str, values))}}}" for values in steps.values())
        lines.append(f"  copy(made + {offset}, constants[{constant}].data, {len(shape)}, {arrays}, {item});")
    return [*lines, "  return 0;", "}", "void opatlas_release(void* state) { free(state); }"]


def _in_bytes(strides: Sequence[int], item: int) -> list[int]:
    return [stride * item for stride in strides]


_NO_STATE = '  if (!state) return fail("opatlas_run: opatlas_prepare has not been called");'
