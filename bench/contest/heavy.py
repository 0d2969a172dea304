"""The heavy sample's second half: the default of each operator that may be heavy is timed, once.

What counts is the processor's time on one thread, which hardly moves when other processes run beside; two
cores take between half of it (all is split) and all of it (nothing is).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from opatlas.errors import OpatlasError
from opatlas.identity import Operator, Setting, describe, detect_target
from opatlas.load import load
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_constants, make_runtime
from tuning.measure.shared_tensors import TensorSlot
from tuning.routes import registry

CALLS = 3  # after the first; the fastest counts

Chosen = tuple[Operator, Mapping[str, Any]]


def choose_heavy(
    candidates: Iterable[Chosen], size: int, two_threads_us: tuple[float, float]
) -> list[Mapping[str, Any]]:
    """The records of the first ``size`` operators whose default takes so long a call here, where two threads
    need half of the time of one at best."""
    least_us, most_us = 2 * two_threads_us[0], two_threads_us[1]
    kept: list[Mapping[str, Any]] = []
    for operator, record in candidates:
        try:
            took_us = one_thread_us(operator)
            said = f"{took_us / 1e3:.2f} ms"
        except (OpatlasError, RuntimeError, MemoryError) as error:
            took_us, said = 0.0, f"no time: {error}"
        print(f"{len(kept)}/{size}  {describe(operator).summary[:80]}  {said}", flush=True)
        if least_us <= took_us <= most_us:
            kept.append(record)
        if len(kept) == size:
            break
    return kept


def one_thread_us(operator: Operator) -> float:
    """Microseconds of processor time of the default's fastest call, loaded here as a job would."""
    target, setting = detect_target(), Setting(threads=1)
    choice = registry.default_candidate(operator, target, setting)
    if choice is None:
        raise RuntimeError("it has no default")
    route, candidate = choice
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        built = route.build(operator, target, setting, candidate, Path(folder))
        with closing(load(built.manifest, Path(folder))) as kernel:
            kernel.prepare(_views(operator, make_constants(operator, Dealer(rng).hand(rng))))
            run = kernel.bind(_views(operator, make_runtime(operator, DISTRIBUTIONS[0], rng)))
            took_ns = [_run_ns(run) for _ in range(1 + CALLS)]
    return min(took_ns[1:]) / 1e3


def _views(operator: Operator, spans: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Tensors with the operator's shapes and strides over flat spans."""
    found = {}
    for number, flat in spans.items():
        value = operator.inputs[number]
        found[number] = TensorSlot(0, value.dtype, value.shape, value.strides).view(flat)
    return found


def _run_ns(run: Any) -> int:
    began = time.process_time_ns()
    run()
    return time.process_time_ns() - began
