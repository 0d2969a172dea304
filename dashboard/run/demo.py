"""The main job once, from start to end, on a real model: look up, explore within a budget, look up again.

Everything goes the way a job's requests go: REST to a running web server, explorations on a running worker.
The database is read only to show progress.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.utils import timezone

from catalog.conf import conf
from catalog.models import MissState
from dashboard.run.stack import Stack
from dashboard.run.statistics import geometric_mean, harmonic_mean, percentile
from opatlas.client import Answer, RestClient
from opatlas.graph.onnx_model import Extracted
from opatlas.identity import Target, default_setting, describe, detect_target
from opatlas.load import Manifest
from tuning.measure.laboratory import Laboratory
from tuning.models import Exploration, Stage, State, Trial, Worker
from tuning.queue import steering as queues
from tuning.routes.base import BuiltArtifact
from tuning.routes.registry import default_candidate

Say = Callable[[str], None]
BATCH = 1024  # operators per lookup, the service's bound
WARM_WAIT_S = 180.0
REGRESSION = 1 / 1.03  # a hit slower than the default by more than 3 %


@dataclass
class DemoRow:
    """One operator of the model, before and after."""

    extracted: Extracted
    before: Answer
    after: Answer | None = None
    confirmed_ratio: float | None = None  # default ÷ hit, on fresh samples; None: the hit is the default

    @property
    def ratio(self) -> float:
        """Speed-up over the default; what is not covered counts as 1."""
        if self.confirmed_ratio is not None:
            return self.confirmed_ratio
        return 1.0

    @property
    def default_us(self) -> float:
        """The model's time in this operator without us, microseconds per run of the model."""
        best = self.after.best if self.after else None
        return best["default_us"] * self.extracted.calls if best else 0.0


@dataclass
class Demo:
    """One run: ``budget_s`` bounds exploration, ``say`` shows progress."""

    name: str
    operators: Sequence[Extracted]
    client: RestClient
    stack: Stack
    budget_s: float
    say: Say
    rows: list[DemoRow] = field(default_factory=list)
    regressions: list[dict[str, Any]] = field(default_factory=list)
    explored_s: float = 0.0

    def run(self) -> dict[str, Any]:
        """The whole course; returns the report."""
        started_at = timezone.now()
        self.wait_for_worker()
        before = self.ask()
        self.rows = [
            DemoRow(extracted, answer) for extracted, answer in zip(self.operators, before, strict=True)
        ]
        self.say(f"Before: {self.share_hit(before):.1%} of {self.calls} calls hit.")
        if all(answer.hit for answer in before):
            self.say("Everything hits at once: nothing is explored.")
        else:
            self.explore()
        after = self.ask()
        for row, answer in zip(self.rows, after, strict=True):
            row.after = answer
        self.say(f"After: {self.share_hit(after):.1%} of {self.calls} calls hit.")
        self.confirm()
        return self.report(started_at)

    @property
    def calls(self) -> int:
        return sum(extracted.calls for extracted in self.operators)

    def wait_for_worker(self) -> None:
        """Until the worker has warmed its zygotes: the demo's times are those of a warm worker."""
        warm = Worker.objects.filter(warm=True, stopped_at=None, target__served_until__gt=timezone.now())
        self.stack.wait_for(lambda: warm.all().exists(), WARM_WAIT_S, "a warm worker")

    def ask(self) -> list[Answer]:
        """Look every operator up, all in one batch as far as the service's bound allows."""
        answers: list[Answer] = []
        for start in range(0, len(self.operators), BATCH):
            part = self.operators[start : start + BATCH]
            answers += self.client.lookup([e.operator for e in part], calls=[float(e.calls) for e in part])
        return answers

    def share_hit(self, answers: Sequence[Answer]) -> float:
        """Share of the model's compute calls whose operator hit."""
        hit = sum(e.calls for e, answer in zip(self.operators, answers, strict=True) if answer.hit)
        return hit / self.calls if self.calls else 1.0

    def explore(self) -> None:
        """Watch the explorations until all have ended or the budget is spent, then hold the queues."""
        queues.resume("*")  # a run on kept state finds them as the run before left them
        started = time.monotonic()
        shown = ""
        while time.monotonic() - started < self.budget_s:
            self.stack.check_alive()
            open_rows = self.explorations().filter(state__in=(State.QUEUED, State.RUNNING))
            waiting = self.misses_waiting()
            if not waiting and not open_rows.exists():
                break
            line = self.progress()
            if line != shown:
                self.say(f"  {time.monotonic() - started:5.0f} s  {line}")
                shown = line
            time.sleep(1.0)
        else:
            self.say(f"The budget of {self.budget_s:.0f} s is spent; what runs may end.")
        self.explored_s = time.monotonic() - started
        queues.pause("*", reason="the demo's budget is spent")
        while self.explorations().filter(state=State.RUNNING).exists():
            self.stack.check_alive()
            time.sleep(0.3)

    def explorations(self) -> Any:
        return Exploration.objects.filter(operator__key__in=[e.operator.key for e in self.operators])

    def misses_waiting(self) -> bool:
        from catalog.models import Miss

        keys = [e.operator.key for e in self.operators]
        return Miss.objects.filter(operator__key__in=keys, state=MissState.WAITING).exists()

    def progress(self) -> str:
        """One line: how many operators have a first result, were contested, are being tuned."""
        rows = list(self.explorations().values_list("state", "stage", "first_result_at", "doing"))
        first = sum(1 for row in rows if row[2])
        contested = sum(1 for state, stage, _, _ in rows if stage >= Stage.TUNE or state == State.DONE)
        doing = next((doing for state, _, _, doing in rows if state == State.RUNNING and doing), "")
        return f"{first}/{len(self.operators)} first results, {contested} contested, {doing or 'queued'}"

    def confirm(self) -> None:
        """Measure every hit that is not the default once more, on fresh inputs and samples.

        A hit that seems slower than the default by more than 3 % is measured a second time; slower twice, it
        is a regression.
        """
        hits = [row for row in self.rows if row.after and row.after.hit]
        target = detect_target()
        self.say(f"Confirming {len(hits)} hits against the default …")
        with (
            tempfile.TemporaryDirectory(prefix="opatlas-demo-") as scratch,
            Laboratory(conf().home, target) as laboratory,
        ):
            for number, row in enumerate(hits):
                self.confirm_one(laboratory, row, target, Path(scratch) / str(number))

    def confirm_one(self, laboratory: Laboratory, row: DemoRow, target: Target, scratch: Path) -> None:
        operator = row.extracted.operator
        assert row.after is not None and row.after.best is not None
        best = row.after.best
        setting = default_setting(target)
        choice = default_candidate(operator, target, setting)
        if choice is None:
            return
        route, candidate = choice
        if best["route"] == route.name and best["label"] == candidate.label:
            return
        manifest: Manifest = self.client.fetch(best, scratch)
        artifact = BuiltArtifact(manifest, scratch)
        default = route.build(operator, target, setting, candidate, scratch)
        ratios: list[float] = []
        with laboratory.bench(operator, setting, default) as bench:
            for _ in range(2):
                (outcome,) = bench.line_up([artifact]).outcomes
                if outcome.timing is None:
                    self.regressions.append(
                        {"key": operator.key, "status": outcome.status, "detail": outcome.detail}
                    )
                    row.confirmed_ratio = 0.0
                    return
                ratios.append(outcome.timing.ratio_to_default)
                if ratios[-1] >= REGRESSION:
                    break
        row.confirmed_ratio = ratios[-1]
        if all(ratio < REGRESSION for ratio in ratios):
            self.regressions.append({"key": operator.key, "ratios": ratios, "route": best["route"]})

    def report(self, started_at: Any) -> dict[str, Any]:
        """Everything measured, as written to report.json."""
        explorations = list(self.explorations())
        seconds = [
            (e.first_result_at - e.asked_at).total_seconds()
            for e in explorations
            if e.first_result_at and e.asked_at >= started_at
        ]
        ratios = [row.ratio for row in self.rows]
        weights = [row.default_us for row in self.rows]
        trials = Trial.objects.filter(exploration__in=explorations, created_at__gte=started_at)
        hits = [row for row in self.rows if row.after and row.after.hit]
        states = Counter(row.after.state for row in self.rows if row.after and not row.after.hit)
        return {
            "model": self.name,
            "operators": len(self.rows),
            "calls": self.calls,
            "hit_rate_calls_before": self.share_hit([row.before for row in self.rows]),
            "hit_rate_calls_after": self.share_hit([row.after for row in self.rows if row.after]),
            "unsupported": states[MissState.UNSUPPORTED],
            "explored": sum(1 for e in explorations if e.updated_at >= started_at and e.steps_done),
            "failed": states[MissState.FAILED],
            "explored_s": round(self.explored_s, 1),
            "by_method": dict(
                Counter(row.after.best["method"] for row in hits if row.after and row.after.best)
            ),
            "by_route": dict(
                Counter(row.after.best["route"] for row in hits if row.after and row.after.best)
            ),
            "seconds_to_first_hit": {
                "p50": round(percentile(seconds, 50), 2) if seconds else None,
                "p95": round(percentile(seconds, 95), 2) if seconds else None,
            },
            "geomean_speedup_vs_default": round(geometric_mean(ratios, weights), 4),
            "geomean_speedup_unweighted": round(geometric_mean(ratios), 4),
            "model_speedup": round(harmonic_mean(ratios, weights), 4),
            "regressions": self.regressions,
            "trials": dict(Counter(trials.values_list("status", flat=True))),
            "unsupported_by_route": dict(
                Counter(trials.filter(status="unsupported").values_list("route", flat=True))
            ),
            "rows": [self.report_row(row, sum(weights)) for row in self.rows],
        }

    def report_row(self, row: DemoRow, model_us: float) -> dict[str, Any]:
        best = (row.after.best if row.after else None) or {}
        return {
            "key": row.extracted.operator.key,
            "operator": describe(row.extracted.operator).summary,
            "calls": row.extracted.calls,
            "before": row.before.status,
            "after": row.after.status if row.after else "",
            "state": row.after.state if row.after else "",
            "reason": row.after.reason if row.after else "",
            "route": best.get("route"),
            "method": best.get("method"),
            "label": best.get("label"),
            "median_us": best.get("median_us"),
            "default_us": best.get("default_us"),
            "speedup": best.get("ratio_to_default"),
            "speedup_low": best.get("ratio_low"),
            "speedup_high": best.get("ratio_high"),
            "confirmed_speedup": row.confirmed_ratio,
            "share_of_model_time": round(row.default_us / model_us, 4) if model_us else None,
        }


def table(report: dict[str, Any]) -> str:
    """The report's rows for a terminal, the most expensive first."""
    lines = [f"{'operator':<58} {'calls':>5} {'best':<14} {'µs':>9} {'default':>9} {'×':>6} {'share':>6}"]
    rows = sorted(report["rows"], key=lambda row: -(row["share_of_model_time"] or 0))
    for row in rows:
        if row["median_us"] is None:
            why = " – ".join(filter(None, (row["after"], row["state"], row["reason"])))
            lines.append(f"{row['operator'][:58]:<58} {row['calls']:>5} {why}")
            continue
        speedup = row["confirmed_speedup"] if row["confirmed_speedup"] is not None else row["speedup"]
        lines.append(
            f"{row['operator'][:58]:<58} {row['calls']:>5} {row['route']:<14} {row['median_us']:>9.1f} "
            f"{row['default_us']:>9.1f} {speedup:>6.2f} {row['share_of_model_time'] or 0:>6.1%}"
        )
    return "\n".join(lines)


def write(report: dict[str, Any], path: Path) -> None:
    """Write the report as JSON, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(report, indent=1))
    scratch.replace(path)


def summary(report: dict[str, Any]) -> str:
    """What a person wants to know, in a few lines."""
    first = report["seconds_to_first_hit"]
    before, after = report["hit_rate_calls_before"], report["hit_rate_calls_after"]
    lines = (
        f"hits: {before:.1%} → {after:.1%} of {report['calls']} calls",
        f"speed-up over the default: {report['geomean_speedup_vs_default']:.3f}× weighted by time, "
        f"{report['geomean_speedup_unweighted']:.3f}× unweighted; the model's operators take "
        f"{report['model_speedup']:.3f}× less time",
        f"won by: {report['by_route']}",
        f"first results after {first['p50']} s (p50), {first['p95']} s (p95)",
        f"regressions: {len(report['regressions'])}, failed: {report['failed']}, "
        f"unsupported: {report['unsupported']}",
    )
    return "\n".join(lines)
