"""Compiled kernels for plans: one source, a library for each operator, of one node or several."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Collection
from pathlib import Path

from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Operator, Setting
from opatlas.load import Manifest
from opatlas.load.c_abi import CKernel
from opatlas.load.kernel import LoadedKernel
from opatlas.load.toolchain import compile_shared
from opatlas.plan.plan import ByKernel
from tests.opatlas.plan.making import Kernels

FORMULAS = {
    "Neg": "-x", "Abs": "x < 0 ? -x : x", "Add": "x + y", "Sub": "x - y", "Max": "x > y ? x : y",
    "Add+Neg": "-(x + y)", "Add+Neg+Abs": "x + y < 0 ? -(x + y) : x + y",
}  # fmt: skip
SOURCE = """
#include "opatlas_abi.h"
#define CASE(CODE, TYPE) case CODE: for (int64_t i = 0; i < n; i++) { \\
    TYPE x = ((TYPE*)t[0].data)[i], y = ((TYPE*)t[count - 2].data)[i]; \\
    (void)y; ((TYPE*)t[count - 1].data)[i] = FORMULA; } return 0;
int opatlas_run(const opatlas_tensor* t, int32_t count, const opatlas_threads* threads, void* state) {
  int64_t n = 1;
  for (int i = 0; i < t[0].ndim; i++) n *= t[0].shape[i];
  switch (t[0].dtype) { CASE(1, float) CASE(11, double) CASE(6, int32_t) CASE(7, int64_t) }
  return 1;
}
"""


@functools.cache
def library(op_types: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        source.write_text(f"#define FORMULA {FORMULAS[op_types]}\n{SOURCE}")
        compile_shared([source], made, flags=["-fwrapv"])
        return made.read_bytes()


class CKernels(Kernels):
    """For the nodes that they do: inputs of one shape, of four element types."""

    def __init__(self, graph: ModelGraph, nodes: Collection[NodeAt] | None = None) -> None:
        super().__init__(graph, nodes)
        self.candidates = {
            at: one for at, one in self.candidates.items() if _does(self.operators[one.by.operator])
        }

    def load(self, by: ByKernel) -> LoadedKernel:
        operator = self.operators[by.operator]
        setting = Setting(threads=1).to_json()
        manifest = Manifest(kind="c-abi", route="cpp", operator=operator.to_json(), setting=setting)
        return CKernel(manifest, {"kernel.so": library("+".join(operator.op_types))})


def _does(operator: Operator) -> bool:
    values = [*operator.inputs, *operator.output_values]
    kinds = {(value.dtype, value.shape) for value in values}
    [(dtype, _)] = list(kinds)[:1]
    return (
        "+".join(operator.op_types) in FORMULAS
        and len(kinds) == 1
        and dtype in ("float32", "float64", "int32", "int64")
    )
