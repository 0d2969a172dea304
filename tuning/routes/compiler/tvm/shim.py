"""The C wrapper that makes TVM's object file an Opatlas kernel, with no TVM beside it."""

from __future__ import annotations

from pathlib import Path

from opatlas.identity import Operator
from opatlas.identity.dtypes import item_bytes
from tuning.routes.base import RouteError
from tuning.routes.compiler.tvm.lower import Buffer, WrapperPlan, WrapperStep
from tuning.routes.compiler.tvm.table import ALIGNMENT

LITERAL_LIMIT_BYTES = 1 << 20
"""Constants that TVM folds into the code, written out as C: more than this is refused."""

VERSION_SCRIPT = "{ global: opatlas_run; opatlas_prepare; opatlas_release; opatlas_error; local: *; };\n"
"""Linker script that hides everything but the ABI: several kernels live in one process."""

_CODES = {"i": 0, "u": 1, "f": 2, "bf": 4, "b": 6}  # DLPack's DLDataTypeCode


def wrapper_source(plan: WrapperPlan, operator: Operator) -> str:
    """The C file: the fixed part (``shim_runtime.c``), then this plan's calls."""
    total = sum(len(literal) for literal in plan.literals)
    if total > LITERAL_LIMIT_BYTES:
        raise RouteError(f"TVM folds {total} bytes of constants into the code; at most {LITERAL_LIMIT_BYTES}")
    count = len(operator.tensor_inputs) + len(operator.outputs)
    constants = {operator.tensor_inputs.index(n): i for i, n in enumerate(operator.constant_inputs)}
    fixed = Path(__file__).with_name("shim_runtime.c").read_text()
    parts = [
        fixed,
        f"#define TENSORS {count}\n#define SCRATCH_BYTES {plan.scratch_bytes}\n"
        f"#define STATE_BYTES {plan.state_bytes}\n",
        *(_literal(i, data) for i, data in enumerate(plan.literals)),
        *(f"extern int __tvm_ffi_{symbol}(void*, const Any*, int32_t, Any*);\n" for symbol in plan.functions),
        _steps("run_steps", plan.run, {}),
        _ENTRY,
    ]
    if plan.state_bytes:
        parts += [_steps("prepare_steps", plan.prepare, constants), _PREPARE]
    return "\n".join(parts)


def _literal(index: int, data: bytes) -> str:
    values = ",".join(str(byte) for byte in data) or "0"
    aligned = f"__attribute__((aligned({ALIGNMENT})))"
    return f"static const unsigned char literal_{index}[] {aligned} = {{{values}}};\n"


def _steps(name: str, steps: list[WrapperStep], tensors: dict[int, int]) -> str:
    """A function that does the steps in order. ``tensors`` renumbers the tensor arguments (for prepare,
    which gets the constants only); empty: as they are."""
    lines = [
        f"static int {name}(const opatlas_tensor* tensors, char* scratch, char* state) {{",
        "  (void)tensors; (void)scratch; (void)state;",
    ]
    for step in steps:
        if not step.function:
            source, target = (_pointer(buffer, tensors) for buffer in step.buffers)
            lines.append(f"  memcpy({target}, {source}, {step.buffers[1].bytes});")
            continue
        fields = [_tensor(buffer, tensors) for buffer in step.buffers]
        lines.append("  {")
        lines.append(f"    Tensor t[{len(fields)}] = {{")
        lines += [f"      {field}," for field in fields]
        lines.append("    };")
        lines.append(f"    int code = call(__tvm_ffi_{step.function}, t, {len(fields)});")
        lines.append("    if (code) return code;")
        lines.append("  }")
    return "\n".join([*lines, "  return 0;", "}", ""])


def _pointer(buffer: Buffer, tensors: dict[int, int]) -> str:
    if buffer.where == "tensor":
        return f"tensors[{tensors[buffer.index] if tensors else buffer.index}].data"
    if buffer.where == "literal":
        return f"(void*)literal_{buffer.index}"
    return f"{buffer.where} + {buffer.index}"


def _tensor(buffer: Buffer, tensors: dict[int, int]) -> str:
    shape = ", ".join(str(extent) for extent in buffer.shape) or "1"
    kind = "b" if buffer.dtype == "bool" else buffer.dtype.rstrip("0123456789")
    code = _CODES[{"int": "i", "uint": "u", "float": "f", "bfloat": "bf"}.get(kind, kind)]
    bits = item_bytes(buffer.dtype) * 8
    return (
        f"{{{_pointer(buffer, tensors)}, {{1, 0}}, {len(buffer.shape)}, {{{code}, {bits}, 1}}, "
        f"(int64_t[]){{{shape}}}, 0, 0}}"
    )


_ENTRY = """
int opatlas_run(const opatlas_tensor* tensors, int32_t n, const opatlas_threads* threads, void* state) {
  char* scratch = 0;
  int code;
  if (n != TENSORS) return fail("opatlas_run: wrong number of tensors");
  if (STATE_BYTES && !state) return fail("opatlas_run: opatlas_prepare has not been called");
  if (SCRATCH_BYTES && !(scratch = take(SCRATCH_BYTES))) return fail("opatlas_run: no memory");
  current = threads;
  code = run_steps(tensors, scratch, state);
  current = 0;
  if (scratch) give(scratch);
  return code;
}
"""

_PREPARE = """
int opatlas_prepare(const opatlas_tensor* constants, int32_t n, const opatlas_threads* threads,
                    void** state) {
  char* scratch = 0;
  char* made = aligned_alloc(ALIGNMENT, STATE_BYTES);
  int code;
  (void)n;
  if (!made) return fail("opatlas_prepare: no memory");
  current = threads;
  code = prepare_steps(constants, scratch, made);
  current = 0;
  if (code) {
    free(made);
    made = 0;
  }
  *state = made;
  return code;
}

void opatlas_release(void* state) { free(state); }
"""
