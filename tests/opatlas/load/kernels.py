"""Hand-written C kernels as artifacts, for the loader's tests."""

from __future__ import annotations

import hashlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from opatlas.identity import Node, Operator, Setting, Value
from opatlas.load import Manifest
from opatlas.load.toolchain import compile_shared

HEADER = '#include <stdlib.h>\n#include <string.h>\n#include "opatlas_abi.h"\n'

ADD = (
    HEADER
    + """
static int body(int32_t task, int32_t tasks, void* arg) {
  const opatlas_tensor* t = arg;
  int64_t n = t[0].shape[0];
  const float *x = t[0].data, *y = t[1].data;
  float* z = t[2].data;
  for (int64_t i = n * task / tasks; i < n * (task + 1) / tasks; i++) z[i] = x[i] + y[i];
  return 0;
}
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  if (n != 3) return 9;
  for (int i = 0; i < 3; i++) if ((uintptr_t)t[i].data % 64) return 64; /* aligned vector loads would trap */
  return threads->parallel_for(threads->pool, body, (void*)t, 4 * threads->count);
}
"""
)

PREPARED_ADD = (
    HEADER
    + """
/* Packs the constant second operand doubled, so that a run without prepare would give another result. */
static const char* message;
int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* threads, void** state) {
  if (n != 1 || c[0].dtype != 1) { message = "one float32 constant is wanted"; return 3; }
  const float* y = c[0].data;
  if (y[0] < 0) { message = "the first constant is negative"; return 4; }
  float* packed = malloc(sizeof(float) * c[0].shape[0]);
  for (int64_t i = 0; i < c[0].shape[0]; i++) packed[i] = 2 * y[i];
  *state = packed;
  return 0;
}
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *packed = state;
  float* z = t[2].data;
  if (!state) { message = "not prepared"; return 5; }
  if (x[0] > 1e30f) { message = "x is too large"; return 6; }
  for (int64_t i = 0; i < t[0].shape[0]; i++) z[i] = x[i] + packed[i] / 2;
  return 0;
}
void opatlas_release(void* state) { free(state); }
const char* opatlas_error(void) { return message; }
"""
)

STRIDED_COPY = (
    HEADER
    + """
/* Identity of a matrix, by the strides it is given. */
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float* x = t[0].data;
  float* y = t[1].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++)
    for (int64_t j = 0; j < t[0].shape[1]; j++)
      y[i * t[1].strides[0] + j * t[1].strides[1]] = x[i * t[0].strides[0] + j * t[0].strides[1]];
  return 0;
}
"""
)


def add_operator(size: int = 1000, constant: bool = False) -> Operator:
    second = Value("float32", (size,), "const" if constant else "runtime")
    return Operator(
        inputs=(Value("float32", (size,)), second),
        nodes=(Node("Add", (0, 1), (2,)),),
        outputs=(2,),
        produced=(Value("float32", (size,)),),
    )


@cache
def compiled(source: str, *flags: str) -> bytes:
    """The shared library, compiled once a process: most tests want one of a few."""
    with tempfile.TemporaryDirectory() as folder:
        text, library = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        text.write_text(source)
        compile_shared([text], library, flags=flags)
        return library.read_bytes()


def write_library(path: Path, library: bytes) -> None:
    path.unlink(missing_ok=True)  # a process may have the old one mapped
    path.write_bytes(library)
    path.chmod(0o755)  # as the compiler leaves it


def build(folder: Path, source: str, operator: Operator, threads: int = 1, **manifest: Any) -> Manifest:
    """Compile ``source`` into ``folder``/kernel.so and describe it."""
    (folder / "kernel.c").write_text(source)
    library = compiled(source, "-Wall", "-Werror")
    write_library(folder / "kernel.so", library)
    digest = hashlib.sha256(library).hexdigest()
    return Manifest(
        kind="c-abi",
        route="cpp",
        operator=operator.to_json(),
        setting=Setting(threads=threads).to_json(),
        files={"kernel.so": digest},
        **manifest,
    )


FAILS_LATER = (
    HEADER
    + """
/* Fails at its third call, when half of the output is written. */
static int calls;
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[0].data, *y = t[1].data;
  float* z = t[2].data;
  int fails = ++calls >= 3;
  int64_t n_done = fails ? t[0].shape[0] / 2 : t[0].shape[0];
  for (int64_t i = 0; i < n_done; i++) z[i] = fails ? -1 : x[i] + y[i];
  return fails ? 7 : 0;
}
const char* opatlas_error(void) { return "the third call is one too many"; }
"""
)

CRASHES = (
    HEADER
    + """
#include <signal.h>
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  raise(SIGSEGV);
  return 0;
}
"""
)

LOADS_NOWHERE = HEADER + "int opatlas_other(void) { return 0; }\n"

REFUSES_WEIGHTS = (
    HEADER
    + """
int opatlas_prepare(const opatlas_tensor* c, int32_t n, const opatlas_threads* threads, void** state) {
  return 3;
}
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  return 4;
}
"""
)
