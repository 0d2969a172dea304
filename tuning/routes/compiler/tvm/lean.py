"""TVM's parts, imported lean and patched, for the modules that nobody loads but who compiles."""

from __future__ import annotations

from tuning.routes.compiler.tvm.patches import import_tvm

tvm = import_tvm()
ir, relax, tirx = tvm.ir, tvm.relax, tvm.tirx
Schedule, Trace = tvm.s_tir.Schedule, tvm.s_tir.Trace
ScheduleError = tvm.s_tir.schedule.ScheduleError
ms = tvm.s_tir.meta_schedule
