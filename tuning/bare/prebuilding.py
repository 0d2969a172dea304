"""Building at home what a device then only checks and races: cubins for a named architecture, without a
device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from opatlas.identity import Setting, Target
from opatlas.identity.place.kinds import CUDA
from tuning.bare.measuring import CANDIDATES_S, QUICK
from tuning.bare.prebuilt import Prebuilt
from tuning.bare.problems import Problem
from tuning.measure.laboratory import BUILDS_ON_DEVICE, Laboratory
from tuning.measure.outcome import Outcome
from tuning.routes.base import Budget, Route

MOST_BYTES = 48 << 20
"""Of the folder: a cubin is half as large in the archive, which has some 20 MiB left for them."""
NAMED: Mapping[str, Target] = {
    "sm_90": Target(
        kind=CUDA.name,
        arch="sm_90",
        vendor="nvidia",
        isa="ptx",
        features=(),
        cache_bytes=(("l2", 50 << 20),),
        product="NVIDIA H100 80GB HBM3",
        multiprocessors=132,
        memory_gib=80,
    )
}
"""Devices that things are built for where none is: which candidates come first depends on how many
multiprocessors there are. What is built is for the architecture: an H200 has as many."""


@dataclass
class BuildCounts:
    """Problems, and builds: new ones, those that were there, those that failed; the folder's size. Of all
    functions there: how many spill or have a stack, and the most that one takes of a device."""

    problems: int = 0
    built: int = 0
    known: int = 0
    failed: int = 0
    nbytes: int = 0
    functions: int = 0
    spilling: int = 0
    most_registers: int = 0
    most_shared_bytes: int = 0


def prebuild(
    laboratory: Laboratory,
    routes: Sequence[Route],
    wanted: Sequence[Problem],
    store: Prebuilt,
    say: Callable[[str], None] = print,
) -> BuildCounts:
    """What the quick pass has for each of these problems and is not built in the worker itself, until the
    folder is as large as may travel; nothing else stays there."""
    done, target, setting = BuildCounts(), laboratory.target, Setting()
    done.nbytes = store.nbytes
    compiled = [
        route
        for route in routes
        if not route.builds_in_process and route.zygote not in BUILDS_ON_DEVICE and route.available(target)
    ]
    every = []
    for problem in wanted:
        if problem.operator is None:
            continue
        if done.nbytes > MOST_BYTES:
            say(f"{store.folder} holds {done.nbytes >> 20} MiB, as much as may travel")
            break
        done.problems += 1
        jobs = []
        for route in compiled:
            if not route.supports(problem.operator, setting):
                continue
            found = route.candidates(
                problem.operator, target, setting, Budget(CANDIDATES_S, candidates=QUICK.each)
            )
            for candidate in itertools.islice(found, QUICK.each):
                every.append((route, problem.operator, target, setting, candidate))
                if store.has(route, problem.operator, target, setting, candidate):
                    done.known += 1
                else:
                    jobs.append((route, candidate))
        with TemporaryDirectory(prefix="opatlas-bare-", dir=laboratory.home) as work:
            places = [(*job, Path(work) / str(number)) for number, job in enumerate(jobs)]
            made = laboratory.build_all(problem.operator, setting, places)
            for (route, candidate), one in zip(jobs, made, strict=True):
                if isinstance(one, Outcome):
                    done.failed += 1
                    say(f"{problem.name}: {route.name}, {candidate.label}: {one.said}")
                    continue
                done.built += 1
                done.nbytes += store.put(route, problem.operator, target, setting, candidate, one)
        say(f"{problem.name}: {len(jobs)} builds")
    store.drop_others(every)
    done.nbytes = store.nbytes
    for used in store.evidence():
        done.functions += 1
        done.spilling += bool(used.get("stack_bytes") or used.get("spilled_bytes"))
        done.most_registers = max(done.most_registers, used["registers"])
        done.most_shared_bytes = max(done.most_shared_bytes, used["shared_bytes"])
    return done
