"""Build and time one candidate of a search, in a process of its own.

The searching process never runs generated code and so never starts TVM's thread pool: it forks, the fork
compiles, runs, writes its time into a pipe and exits. One that crashes or hangs costs its own time only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

from tuning.routes.compiler.tvm.patches import import_tvm

_SAMPLES = 3
_SAMPLE_S = 0.01
_FIRST_LIMIT = 4.0
"""A first run this many times slower than the best so far is its only one."""


def time_module(
    module: Any, target: Any, best_s: float | None, timeout_s: float, threads: int
) -> float | None:
    """Seconds per run of the IRModule's ``main``, or None where it cannot be built, crashes or hangs."""
    return in_fork(lambda: _build_and_time(module, target, best_s, threads), timeout_s)


def in_fork(work: Callable[[], float], timeout_s: float) -> float | None:
    """``work()`` in a forked process; None if it raises, dies or takes longer."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(readable)
            os.write(writable, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)  # never back into the search, whatever was raised
    os.close(writable)
    try:
        ready, _, _ = select.select([readable], [], [], timeout_s)
        answer = os.read(readable, 64) if ready else b""
    finally:
        os.close(readable)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return float(json.loads(answer)) if answer else None


def _build_and_time(module: Any, target: Any, best_s: float | None, threads: int) -> float:
    os.environ["TVM_NUM_THREADS"] = str(threads)
    os.environ["TVM_BIND_THREADS"] = "0"  # the supervisor's choice of cores stands
    tvm = import_tvm()
    import numpy as np
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    run = tvm.tirx.build(module, target)["main"]
    random = np.random.default_rng(0)
    tensors = []
    for info in ArgInfo.from_entry_func(module, remove_preproc=False):
        shape, dtype = [int(extent) for extent in info.shape], str(info.dtype)
        array = random.random(shape) if dtype.startswith(("float", "bfloat")) else np.zeros(shape)
        tensors.append(tvm.runtime.tensor(array.astype(dtype)))
    started = time.perf_counter()
    run(*tensors)
    first_s = time.perf_counter() - started
    if best_s is not None and first_s > _FIRST_LIMIT * best_s and first_s > _SAMPLE_S:
        return first_s
    started = time.perf_counter()
    run(*tensors)
    once_s = max(time.perf_counter() - started, 1e-7)
    count = max(1, int(_SAMPLE_S / once_s))
    samples = []
    for _ in range(_SAMPLES):
        started = time.perf_counter()
        for _ in range(count):
            run(*tensors)
        samples.append((time.perf_counter() - started) / count)
    return min(samples)
