"""What a case of the suite is, and the operators that cases are written for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from opatlas.identity import Operator, parse_operator
from tests.tuning.measure.kernels import PREAMBLE
from tuning.measure.outcome import Status

HELPERS = r"""
#include <errno.h>
#include <fenv.h>
#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <dlfcn.h>
#define X ((float*)t[0].data)
#define Y ((float*)t[n - 1].data)
#define N count(t + n - 1)
/* a [m,k] times b [k,c]: sums in the order of k, vectors over c. */
static void matmul_rows(const opatlas_tensor* t, int64_t from, int64_t to) {
  int64_t k = t[0].shape[1], c = t[1].shape[1];
  const float *a = t[0].data, *b = t[1].data; float* y = t[2].data;
  for (int64_t i = from; i < to; i++) {
    for (int64_t j = 0; j < c; j++) y[i * c + j] = 0;
    for (int64_t p = 0; p < k; p++) {
      float v = a[i * k + p];
      for (int64_t j = 0; j < c; j++) y[i * c + j] += v * b[p * c + j];
    }
  }
}
static void matmul(const opatlas_tensor* t) { matmul_rows(t, 0, t[0].shape[0]); }
static void softmax(const opatlas_tensor* t) {
  int64_t rows = t[0].shape[0], c = t[0].shape[1];
  for (int64_t i = 0; i < rows; i++) {
    const float* x = (float*)t[0].data + i * c; float* y = (float*)t[1].data + i * c;
    float top = x[0], sum = 0;
    for (int64_t j = 1; j < c; j++) top = x[j] > top ? x[j] : top;
    for (int64_t j = 0; j < c; j++) sum += y[j] = expf(x[j] - top);
    for (int64_t j = 0; j < c; j++) y[j] /= sum;
  }
}
static void row_sums(const opatlas_tensor* t) {
  int64_t rows = t[0].shape[0], c = t[0].shape[1];
  for (int64_t i = 0; i < rows; i++) {
    double sum = 0;
    for (int64_t j = 0; j < c; j++) sum += ((float*)t[0].data)[i * c + j];
    ((float*)t[1].data)[i] = (float)sum;
  }
}
static void spin(long rounds) { for (volatile long r = 0; r < rounds; r++) { } }
static int64_t now_ns(void) { struct timespec s; clock_gettime(CLOCK_MONOTONIC, &s);
  return s.tv_sec * 1000000000LL + s.tv_nsec; }
/* Where a memory file of the harness is mapped; its size in *bytes. */
static char* mapped(const char* what, size_t* bytes) {
  FILE* f = fopen("/proc/self/maps", "r"); char line[512]; unsigned long from, to; char* found = 0;
  while (f && fgets(line, sizeof line, f))
    if (strstr(line, what) && sscanf(line, "%lx-%lx", &from, &to) == 2) {
      found = (char*)from; *bytes = to - from; break; }
  if (f) fclose(f);
  return found;
}
"""

INTRINSICS = "#include <immintrin.h>\n"
"""Three quarters of a compilation's time: only for who names one."""

OPERATORS: dict[str, dict[str, object]] = {
    "relu": {"op": "Relu", "inputs": [{"shape": [128, 128], "dtype": "float32"}]},
    "matmul": {
        "op": "MatMul",
        "inputs": [{"shape": [96, 160], "dtype": "float32"}, {"shape": [160, 128], "dtype": "float32"}],
    },
    "linear": {
        "op": "MatMul",
        "inputs": [
            {"shape": [96, 160], "dtype": "float32"},
            {"shape": [160, 128], "dtype": "float32", "const": True},
        ],
    },
    "softmax": {
        "op": "Softmax", "attrs": {"axis": -1}, "inputs": [{"shape": [64, 512], "dtype": "float32"}]
    },
    "sums": {
        "op": "ReduceSum",
        "attrs": {"keepdims": 0},
        "inputs": [{"shape": [64, 4096], "dtype": "float32"}, {"shape": [1], "dtype": "int64", "data": [1]}],
    },
    "exp": {"op": "Exp", "inputs": [{"shape": [128, 128], "dtype": "float32"}]},
    "total": {
        "op": "ReduceSum",
        "attrs": {"keepdims": 0},
        "inputs": [{"shape": [65536], "dtype": "float32"}, {"shape": [1], "dtype": "int64", "data": [0]}],
    },
    "large": {"op": "Relu", "inputs": [{"shape": [512, 1536], "dtype": "float32"}]},
    "tiny": {"op": "Relu", "inputs": [{"shape": [16], "dtype": "float32"}]},
    "power": {"op": "Pow", "inputs": [{"shape": [128, 128], "dtype": "float32"}] * 2},
    "infinities": {"op": "IsInf", "inputs": [{"shape": [128, 128], "dtype": "float32"}]},
    "whole sum": {"op": "Add", "inputs": [{"shape": [128, 128], "dtype": "int64"}] * 2},
    "factors": {
        "op": "ReduceProd",
        "attrs": {"keepdims": 0},
        "inputs": [{"shape": [64, 512], "dtype": "float32"}, {"shape": [1], "dtype": "int64", "data": [1]}],
    },
    "largest": {
        "op": "ReduceMax",
        "attrs": {"keepdims": 0},
        "inputs": [{"shape": [64, 4096], "dtype": "float32"}, {"shape": [1], "dtype": "int64", "data": [1]}],
    },
    "where largest": {
        "op": "ArgMax",
        "attrs": {"axis": 1, "keepdims": 0},
        "inputs": [{"shape": [64, 512], "dtype": "float32"}],
    },
    "conv": {
        "op": "Conv",
        "attrs": {"pads": [1, 1, 1, 1]},
        "inputs": [
            {"shape": [1, 16, 32, 32], "dtype": "float32"},
            {"shape": [16, 16, 3, 3], "dtype": "float32", "const": True},
        ],
    },
    "turned": {
        "op": "Transpose", "attrs": {"perm": [1, 0]}, "inputs": [{"shape": [128, 128], "dtype": "int64"}]
    },
    "rows of a table": {
        "op": "Gather",
        "attrs": {"axis": 0},
        "inputs": [{"shape": [20000, 8], "dtype": "float32"}, {"shape": [256], "dtype": "int64"}],
    },
    "batch norm": {
        "op": "BatchNormalization",
        "inputs": [
            {"shape": [1, 16, 32, 32], "dtype": "float32"},
            *[{"shape": [16], "dtype": "float32", "const": True}] * 4,
        ],
    },
    "attention": {
        "op": "Attention",
        "inputs": [
            *[{"shape": [1, 4, 64, 32], "dtype": "float32"}] * 3,
            {"shape": [64, 64], "dtype": "float32"},
        ],
    },
    "quantise": {
        "op": "QuantizeLinear",
        "inputs": [
            {"shape": [128, 128], "dtype": "float32"},
            {"shape": [], "dtype": "float32"},
            {"shape": [], "dtype": "uint8"},
        ],
    },
    "dequantise": {
        "op": "DequantizeLinear",
        "inputs": [
            {"shape": [128, 128], "dtype": "uint8"},
            {"shape": [], "dtype": "float32"},
            {"shape": [], "dtype": "uint8"},
        ],
    },
    "quantise by itself": {
        "op": "DynamicQuantizeLinear", "inputs": [{"shape": [64, 128], "dtype": "float32"}], "outputs": 3
    },
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One kernel. ``source`` is what stands in the braces of ``opatlas_run``, ``before`` what precedes it."""

    name: str
    trick: str  # one sentence for people
    source: str
    before: str = ""
    operator: str = "relu"
    threads: int = 1
    alignment: int = 64

    @property
    def text(self) -> str:
        run = "int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* p, void* s) {\n"
        needed = INTRINSICS if "_mm" in self.before + self.source else ""
        return f"{needed}{HELPERS}{self.before}\n{run}{self.source}\nreturn 0; }}\n"


@dataclass(frozen=True)
class Cheat:
    """A case that must be refused: with one of ``statuses`` and ``words`` in the detail (one of those)."""

    case: Case
    caught: str  # one sentence for people: how
    statuses: tuple[Status, ...]
    words: tuple[str, ...] = ("",)
    values: tuple[str, ...] = ()  # kinds of values that draw it out, where others do not

    @property
    def by_a_clock(self) -> bool:
        """Whether what refuses it is a time, which a busy machine can hide."""
        return "new values" in self.words or bool({Status.SLOWER, Status.TIMED_OUT} & set(self.statuses))


@cache
def operator_of(name: str) -> Operator:
    return parse_operator(OPERATORS[name])


__all__ = ["OPERATORS", "PREAMBLE", "Case", "Cheat", "operator_of"]
