"""Stage 2: MetaSchedule's evolutionary search in slices that go on where the last one stopped.

What is kept in the work folder: TVM's own JSON database (workload and records) and ``search.json`` (slices
done, seconds used, trials). Nothing else is needed to resume; the cost model is trained again from the
records, which is quicker than reading one back and needs no pickle. ``given.json`` are records that the
worker brings (this operator's from elsewhere, its neighbours'), ``records.json`` what it takes away
(``known.py``); the search starts from the former and ends with the latter.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Candidate, RouteError, SearchRecord
from tuning.routes.compiler.tvm import known
from tuning.routes.compiler.tvm.compile import lower_only
from tuning.routes.compiler.tvm.heaviest import heaviest
from tuning.routes.compiler.tvm.lean import ms, tvm
from tuning.routes.compiler.tvm.machine import machine_of
from tuning.routes.compiler.tvm.tiles import TileSearch
from tuning.routes.compiler.tvm.transfer import Adapter, digest_of, trace_record
from tuning.routes.compiler.tvm.trial import time_module
from tuning.routes.compiler.tvm.untuned import apply_variant, plain

BATCH = 12
"""Trials between two generations of the search."""
_TRIAL_LIMIT_S = 4.0
_TOP = 3
_TILE_SHARE = 0.4
"""Of a slice, at most, for other sizes of the hand-written tiles; what they leave is evolution's."""
_GENERATION_S = 4.0
"""Allowed for the first generation of candidates, which cannot be interrupted."""
_USABLE = 0.93
"""Of a slice; the rest is for what follows the last trial (reading the best back)."""
_RELEARN = 96
"""Records that the cost model is trained on when a slice starts."""


@dataclass
class SearchProgress:
    """What ``search.json`` holds."""

    slices: int = 0
    trials: int = 0
    failed: int = 0
    seconds: float = 0.0
    given: list[str] = field(default_factory=list)  # digests of the given records that were tried


def search(
    operator: Operator, target: Target, setting: Setting, workdir: Path, seconds: float
) -> Iterator[Candidate]:
    """One slice; yields the best schedules known after it, the best first."""
    deadline = time.monotonic() + _USABLE * seconds
    module, native = lower_only(operator, target, setting)
    name = heaviest(module)
    if name is None:
        raise RouteError("there is no code in it to tune")
    path = workdir / "search.json"
    progress = SearchProgress(**json.loads(path.read_text())) if path.exists() else SearchProgress()
    started = time.monotonic()
    given = [one.record for one in known.read(workdir / known.GIVEN)]
    with native:
        tiles = TileSearch(module[name], machine_of(target, setting), native, workdir)
        wished = [one["tile"] for one in given if "tile" in one]
        progress.trials += tiles.run(started + _TILE_SHARE * seconds, wished)
        evolution = _Slice(module[name], native, setting, workdir, progress)
        evolution.best_s = tiles.best_s
        if traces := [one for one in given if "trace" in one]:
            evolution.begin_with(traces, Adapter(module[name], native, target, setting), deadline)
        evolution.run(deadline)
    progress.slices += 1
    progress.seconds = round(progress.seconds + time.monotonic() - started, 3)
    path.write_text(json.dumps(asdict(progress)))
    known.write(workdir / known.LEARNT, [*tiles.records(), *evolution.records()])
    _, untuned = apply_variant(module, target, setting, "packed")
    found = [
        *((run_s, trace, "register tiles") for trace, run_s in tiles.best()),
        *((run_s, trace, "MetaSchedule") for trace, run_s in evolution.best(_TOP)),
    ]
    for run_s, trace, how in sorted(found, key=lambda one: one[0])[:_TOP]:
        parameters = {"traces": {**untuned.functions, name: trace}, "search_us": round(run_s * 1e6, 2)}
        yield Candidate("tvm", parameters, f"tuned, {how}, best of {progress.trials} trials")


class _Slice:
    """One slice over one function."""

    def __init__(
        self, function: Any, native: Any, setting: Setting, workdir: Path, progress: SearchProgress
    ) -> None:
        self.native, self.threads, self.progress = native, setting.threads, progress
        self.module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        self.context = ms.TuneContext(
            self.module,
            target=native,
            space_generator="post-order-apply",
            search_strategy=ms.search_strategy.EvolutionarySearch(
                population_size=64, init_min_unmeasured=16, genetic_num_iters=2, max_fail_count=3
            ),
            rand_state=1 + progress.slices,
            num_threads=setting.threads,
        )
        self.database = ms.database.JSONDatabase(work_dir=str(workdir))
        self.workload = self.database.commit_workload(self.module)
        self.model = ms.cost_model.XGBModel(num_warmup_samples=BATCH)
        self.best_s: float | None = None

    def run(self, deadline: float) -> None:
        """Generate, measure and learn until the deadline (or until nothing new can be found)."""
        self._relearn()
        spaces = self.context.generate_design_space()
        self.context.pre_tuning(
            max_trials=1 << 20,
            num_trials_per_iter=BATCH,
            design_spaces=spaces,
            database=self.database,
            cost_model=self.model,
        )
        generation_s = _GENERATION_S
        while time.monotonic() + generation_s < deadline:
            started = time.monotonic()
            candidates = self.context.generate_measure_candidates()
            generation_s = 1.5 * (time.monotonic() - started)
            if not candidates:
                break
            results = [self._measure(candidate, deadline) for candidate in candidates]
            if None in results:
                break  # the time is up; the next slice learns from the records
            self.model.update(self.context, candidates, results)
            self.context.notify_runner_results(candidates, results)
        self.context.post_tuning()

    def begin_with(self, given: list[Any], adapter: Adapter, deadline: float) -> None:
        """Measure records from elsewhere: they become parents of the first generation."""
        for record in given:
            digest = digest_of(record)
            if digest in self.progress.given or time.monotonic() > deadline - _GENERATION_S:
                continue
            self.progress.given.append(digest)
            made = adapter.fit(record)
            if made is None:
                continue
            limit_s = min(_TRIAL_LIMIT_S, deadline - time.monotonic())
            run_s = time_module(made.mod, self.native, self.best_s, limit_s, self.threads)
            self.progress.trials += 1
            if run_s is None:
                self.progress.failed += 1
            else:
                self.best_s = min(run_s, self.best_s or run_s)
                self._record(made, _arguments(made.mod), run_s)

    def _measure(self, candidate: Any, deadline: float) -> Any | None:
        """A RunnerResult, recorded; None when the time is up."""
        left_s = deadline - time.monotonic()
        if left_s < 0.2:
            return None
        run_s = time_module(
            candidate.sch.mod, self.native, self.best_s, min(_TRIAL_LIMIT_S, left_s + 0.5), self.threads
        )
        self.progress.trials += 1
        if run_s is None:
            self.progress.failed += 1
            return ms.runner.RunnerResult(None, "failed")
        self.best_s = min(run_s, self.best_s or run_s)
        self._record(candidate.sch, candidate.args_info, run_s)
        return ms.runner.RunnerResult([run_s], None)

    def _record(self, made: Any, arguments: Any, run_s: float) -> None:
        self.database.commit_tuning_record(
            ms.database.TuningRecord(
                made.trace,
                self.workload,
                [run_s],
                self.native,
                arguments,
            )
        )

    def _relearn(self) -> None:
        """Train the cost model on what earlier slices measured."""
        records = self.database.get_top_k(self.workload, _RELEARN)
        if not records:
            return
        known = min(float(record.run_secs[0]) for record in records)
        self.best_s = min(known, self.best_s or known)
        candidates = [record.as_measure_candidate() for record in records]
        results = [ms.runner.RunnerResult(record.run_secs, None) for record in records]
        self.model.update(self.context, candidates, results)

    def best(self, count: int) -> list[tuple[Any, float]]:
        """The best traces as plain JSON, with the seconds that the search saw."""
        return [
            (plain(record.trace.as_json()), float(record.run_secs[0]))
            for record in self.database.get_top_k(self.workload, count)
        ]

    def records(self) -> list[SearchRecord]:
        """The best as records."""
        best = self.best(known.MOST)
        return [SearchRecord(trace_record(trace), round(run_s * 1e6, 3)) for trace, run_s in best]


def _arguments(module: Any) -> Any:
    return ms.arg_info.ArgInfo.from_entry_func(module, remove_preproc=True)
