"""Runs several models of one process on shared engines: each alone, then all at once."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opatlas.errors import CallerError, first_line
from opatlas.plan.engines import DeadlinePassed, Engines
from opatlas.session import Session

Told = Callable[[str, int], None]
"""Called after each run with the model's name and its number of runs."""


@dataclass(frozen=True)
class SharingModel:
    """One of the models. ``priority_s``: how far its steps may overtake others; ``deadline_s``: the time
    limit of each of its runs."""

    name: str
    session: Session
    feed: Mapping[str, np.ndarray]
    priority_s: float = 0.0
    deadline_s: float = math.inf


@dataclass
class SharedRuns:
    """Runs of one model beside the others: microseconds of those that ended, how many deadlines passed, and
    why it stopped, if it did. ``alone_us``: its median alone on the same engines."""

    model: str
    alone_us: float | None = None
    took_us: list[float] = field(default_factory=list)
    passed: int = 0
    error: str = ""

    @property
    def runs(self) -> int:
        return len(self.took_us) + self.passed

    @property
    def median_us(self) -> float | None:
        return statistics.median(self.took_us) if self.took_us else None

    @property
    def p95_us(self) -> float | None:
        if len(self.took_us) < 2:
            return self.median_us
        return statistics.quantiles(self.took_us, n=20, method="inclusive")[-1]

    @property
    def slowdown(self) -> float | None:
        """Median shared ÷ median alone."""
        return self.median_us / self.alone_us if self.median_us and self.alone_us else None


def names_of(paths: Sequence[Path]) -> list[str]:
    """Names by file; a second equal one is called ``name-2``."""
    found: list[str] = []
    for path in paths:
        same = sum(one == path.stem or one.startswith(f"{path.stem}-") for one in found)
        name = path.stem if path.stem not in found else f"{path.stem}-{same + 1}"
        while name in found:
            name += "'"
        found.append(name)
    return found


def seconds_by_model(given: Sequence[str], names: Sequence[str], what: str) -> dict[str, float]:
    """Parses ``detector=0.05``; raises :class:`CallerError` with one sentence."""
    found: dict[str, float] = {}
    for text in given:
        name, _, value = text.rpartition("=")
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not name or not (math.isfinite(seconds) and seconds >= 0):
            raise CallerError(f"A {what} looks like {names[0]}=0.05 (seconds), not {text!r}.")
        if name not in names:
            raise CallerError(f"There is no model {name!r} to give a {what}; there are {', '.join(names)}.")
        found[name] = seconds
    return found


def inputs_by_model(given: Sequence[str], names: Sequence[str]) -> dict[str, Path]:
    """Parses ``detector=frames.npz``; raises :class:`CallerError` with one sentence."""
    found: dict[str, Path] = {}
    for text in given:
        of = [name for name in names if text.startswith(f"{name}=")]
        name = max(of, key=len, default="")  # names and files may have "=" too
        file = text[len(name) + 1 :]
        if not name or not file:
            said = f"which of {', '.join(names)} they are of"
            raise CallerError(f"Of several models --inputs says {said}: {names[0]}=inputs.npz, not {text!r}.")
        if name in found:
            raise CallerError(f"{name} takes its inputs from one file, not from {found[name]} and {file}.")
        found[name] = Path(file)
    return found


def _untold(name: str, runs: int) -> None:
    """Ignores progress."""


def run_alone(
    models: Sequence[SharingModel], engines: Engines, seconds: float, told: Told = _untold
) -> list[SharedRuns]:
    """Run each model alone on the engines for its share of ``seconds``, at least once. Fills ``alone_us``
    and, if it failed, ``error``."""
    found = []
    for model in models:
        alone = SharedRuns(model.name)
        _run(model, engines, seconds / len(models), alone, told, threading.Event(), math.inf)
        found.append(SharedRuns(model.name, alone.median_us, error=alone.error))
    return found


def run_together(
    models: Sequence[SharingModel],
    engines: Engines,
    seconds: float,
    found: Sequence[SharedRuns],
    told: Told = _untold,
) -> None:
    """Run all at once for so many ``seconds``, each at least once, into ``found``. A model that fails, or
    failed alone, stops; the others go on. Ctrl-C ends it after the current runs."""
    stop = threading.Event()
    threads = [
        threading.Thread(
            target=_run, args=(model, engines, seconds, made, told, stop, model.deadline_s), daemon=True
        )
        for model, made in zip(models, found, strict=True)
        if not made.error
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    finally:  # Ctrl-C
        stop.set()
        for thread in threads:
            thread.join()


def _run(
    model: SharingModel,
    engines: Engines,
    seconds: float,
    made: SharedRuns,
    told: Told,
    stop: threading.Event,
    deadline_s: float,
) -> None:
    model.session.share(engines, model.name, priority_s=model.priority_s)
    end = time.monotonic() + seconds
    while not stop.is_set():
        began = time.perf_counter()
        try:
            model.session.run(None, model.feed, deadline_s=deadline_s)
            made.took_us.append(1e6 * (time.perf_counter() - began))
        except DeadlinePassed:
            made.passed += 1
        except Exception as error:  # ONNX Runtime's exceptions have no base class of their own
            made.error = first_line(error)
            return
        told(model.name, made.runs)
        if time.monotonic() >= end:
            return
