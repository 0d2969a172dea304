"""TVM's own JSON tuning database, filled to a size, answering the same operators in process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, to_onnx

RECORDS_PER_WORKLOAD = 10  # what ten tuned candidates of an operator leave


class TvmDatabase:
    """A JSONDatabase with ``records`` records, those of ``operators`` among them.

    The filler are matrix products of many shapes. Recorded times grow with an operator's work, as real ones
    do: TVM keeps one list sorted by time and reads it from its start until it meets the workload.
    """

    def __init__(self, folder: Path, operators: Sequence[Operator], records: int) -> None:
        from tvm.s_tir.meta_schedule.database import JSONDatabase
        from tvm.target import Target

        folder.mkdir(parents=True, exist_ok=True)
        self.target = Target({"kind": "llvm", "num-cores": 2})
        self.database = JSONDatabase(work_dir=str(folder))
        self.modules = [_lower(operator) for operator in operators]
        for module, operator in zip(self.modules, operators, strict=True):
            self._commit(module, _work(operator) * 1e-11)
        filler = 0
        while len(self.database) < records:
            m, n, k = 16 + filler % 97, 32 + filler // 97 % 89, 64 + filler // 8633 % 83
            self._commit(_matmul(m, n, k), (1 + filler % 1000) * 1e-6)
            filler += 1

    def query_all_ms(self) -> float:
        """Time of asking for every operator's best record once."""
        started = time.perf_counter()
        for module in self.modules:
            record = self.database.query_tuning_record(module, self.target, "main")
            assert record is not None
        return (time.perf_counter() - started) * 1e3

    def _commit(self, module: Any, seconds: float) -> None:
        from tvm.s_tir import Schedule
        from tvm.s_tir.meta_schedule.arg_info import ArgInfo
        from tvm.s_tir.meta_schedule.database import TuningRecord

        workload = self.database.commit_workload(module)
        schedule = Schedule(module)
        # An empty trace counts as invalid and is never returned.
        schedule.annotate(schedule.get_sblock("root"), "opatlas.bench", 1)
        arguments = ArgInfo.from_prim_func(module["main"])
        for number in range(RECORDS_PER_WORKLOAD):
            times = [seconds * (1 + number / 10)]
            record = TuningRecord(schedule.trace, workload, times, self.target, arguments)
            self.database.commit_tuning_record(record)


def _work(operator: Operator) -> float:
    from opatlas.identity import describe

    description = describe(operator)
    return max(description.flops, description.bytes_moved, 1.0)


def _lower(operator: Operator) -> Any:
    """The operator's first PrimFunc as a module with the one function ``main``."""
    import tvm
    from tvm.relax import transform
    from tvm.relax.frontend.onnx import from_onnx
    from tvm.tirx import PrimFunc

    module = from_onnx(to_onnx(operator), keep_params_in_input=True)
    for one_pass in (transform.LegalizeOps(), transform.FuseOps(), transform.FuseTIR()):
        module = one_pass(module)
    function = next(f for f in module.functions.values() if isinstance(f, PrimFunc))
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def _matmul(m: int, n: int, k: int) -> Any:
    import tvm
    from tvm import te

    left, right = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((m, n), lambda i, j: te.sum(left[i, r] * right[r, j], axis=r), name="C")
    return tvm.IRModule({"main": te.create_prim_func([left, right, product])})
