"""Evaluating: a worker builds a version in the sandbox, checks it, times it against default and best so far.

Nothing is published. What came of it is kept with the evaluation; when a version's last one has ended, the
version awaits a decision, or has ended with the reason. Every try is kept as a row of its own.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from catalog.models import SHARED, Best
from opatlas.evidence import RATIOS, Evidence, figures_of
from opatlas.identity import Operator, Setting
from tuning.explore import scratch
from tuning.explore.results import sound_incumbent, usable
from tuning.explore.workshop import Workshop
from tuning.kernels import claims
from tuning.kernels.binding import submitted_kernel
from tuning.kernels.caught import caught_cheating, why_refused
from tuning.kernels.claims import MAX_TRIES, EvaluationClaim, keep_try
from tuning.kernels.models import (
    EvaluationState,
    KernelEvaluation,
    KernelInspection,
    KernelTry,
    KernelVersion,
    TryStatus,
    VersionState,
)
from tuning.kernels.states import move, stop_evaluating
from tuning.kernels.verdicts import against, decide
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox.roots import package_root
from tuning.models import Trial
from tuning.queue.held import UNHELD, work_on
from tuning.routes.base import BuiltArtifact, Candidate, Route
from tuning.telling import told, told_log

logger = logging.getLogger(__name__)


def run_evaluation(workshop: Workshop, held: EvaluationClaim) -> bool:
    """Do one claimed evaluation; False where the claim was lost. Raises Stopping and DATABASE_GONE."""
    work = partial(_evaluate, workshop, held)
    return work_on(held, work, give_back=partial(claims.release, held), fail=partial(_give_up, held))


def _evaluate(workshop: Workshop, held: EvaluationClaim) -> None:
    row = held.load()
    if refused := why_refused(row.version.source_sha256, row.version.tokens_sha256):
        _end_at_once(row, held, {"status": Status.CHEATED, "detail": refused}, caught=True)
        return
    move(row.version, (VersionState.SUBMITTED,), VersionState.BUILDING, who=workshop.worker)
    with scratch.folder_of_work(workshop.home) as folder:
        found = _Evaluation(workshop, held, row, folder).run()
    _keep(row, held, found)
    logger.info("%s on %s: %s %s", row.version, row.operator, found["status"], found["detail"])


_INSPECTED = (Status.OK, Status.SLOWER, Status.NOISY)


class _Evaluation:
    """One version on one operator, in work."""

    def __init__(
        self, workshop: Workshop, held: EvaluationClaim, row: KernelEvaluation, folder: Path
    ) -> None:
        self.workshop, self.held, self.row, self.folder = workshop, held, row, folder
        self.operator = Operator.from_json(row.operator.graph)
        self.setting = Setting.from_json(row.setting.description)
        self.log = ""
        self.default_route = ""  # that it is timed in turns with; empty: not known yet

    def run(self) -> dict[str, Any]:
        """The columns that say what came of it."""
        route = next((route for route in self.workshop.routes if route.name == self.row.version.route), None)
        if route is None:
            return self._found(
                Outcome(Status.UNSUPPORTED, f"this worker does not have the route {self.row.version.route}")
            )
        candidate = submitted_kernel(self.row.version).candidate()
        unsafe = self.workshop.why_unsafe(route.name, str(candidate.parameters["source"]))
        if reason := self.workshop.available(route) or unsafe:
            return self._found(Outcome(Status.UNSUPPORTED, reason))
        self._say("building")
        built = self._build(route, candidate, "kernel")
        if isinstance(built, Outcome):
            return {**self._found(built), "ends_all": built.status != Status.UNSUPPORTED}
        self.log = str(built.facts.get("build_log", ""))
        place = {f"exploration__{name}": value for name, value in _place(self.row).items()}
        trials = Trial.objects.filter(**place)
        default = self.workshop.known_default(trials, self.operator, self.setting)
        if default is None:
            return self._found(Outcome(Status.UNSUPPORTED, "no default can be timed on this worker"))
        self._say("setting up the default")
        self.default_route = default[0].name
        default_built = self._build(*default, "default")
        if isinstance(default_built, Outcome):
            return self._found(Outcome(Status.UNSUPPORTED, f"the default: {default_built.detail}"))
        with self.workshop.laboratory.bench(self.operator, self.setting, default_built) as bench:
            found = self._time(bench, built)
        if found["status"] in _INSPECTED and not self.row.inspections.exists():
            found["inspection"] = self._inspect(route, built)
        return found

    def _inspect(self, route: Route, built: BuiltArtifact) -> dict[str, Any]:
        """What whoever approves is shown beside results and times."""
        self._say("looking at what it does beside computing")
        folder = self.folder / "empty"
        folder.mkdir()
        seen = self.workshop.laboratory.inspect(route, self.operator, self.setting, built, folder)
        self.workshop.check(self.held)
        return {
            "observed": dict(seen.observed),
            "risks": seen.risks,
            "code": dict(seen.code),
            "assembly": seen.assembly.replace("\0", ""),
            "provenance": dict(built.manifest.provenance or {}),
            "files": dict(built.manifest.files),
        }

    def _time(self, bench: Bench, built: BuiltArtifact) -> dict[str, Any]:
        if not bench.default.ok:
            return self._found(Outcome(Status.UNSUPPORTED, f"the default fails: {bench.default.detail}"))
        self._say("checking and timing")
        outcome, fresh = usable(bench.measure(built, self.workshop.limits)), None
        best = next((one for one in _bests(self.row) if one.rank == 0), None)
        if outcome.ok:
            self._say("timing against the best so far")
            incumbent = None
            if best is not None and not self.workshop.why_unsafe(best.route):
                incumbent = sound_incumbent(best, self.folder / "incumbent")
            # What could not be confirmed on fresh inputs is no evidence: it is tried again.
            raced = [built, *([incumbent] if incumbent else [])]
            found = bench.line_up(raced, limits=self.workshop.limits)
            outcome = usable(found.outcomes[0])
            fresh = found.outcomes[1].timing if incumbent and outcome.ok else None
        build_s = float(built.facts.get("build_s", 0.0))
        return {**self._found(outcome, best, fresh), "build_s": build_s}

    def _build(self, route: Route, candidate: Candidate, name: str) -> BuiltArtifact | Outcome:
        folder = self.folder / name
        folder.mkdir()
        return self.workshop.laboratory.build(
            route, self.operator, self.setting, candidate, folder, self.workshop.limits
        )

    def _say(self, doing: str) -> None:
        self.workshop.check(self.held)
        self.held.update(doing=doing)

    def _found(
        self, outcome: Outcome, best: Best | None = None, fresh: Evidence | None = None
    ) -> dict[str, Any]:
        """``fresh``: the times of who is served, of the same rounds."""
        self.workshop.check(self.held)  # what a stopping worker kills is nobody's failure
        timing = outcome.timing
        columns: dict[str, Any] = {
            "status": outcome.status,
            "detail": self._cleaned(outcome.detail)[:4000],
            "log_tail": self._cleaned("\n".join(filter(None, (self.log, outcome.log_tail))))[-16_000:],
            "max_error": outcome.max_error,
            "tolerance": outcome.tolerance,
            "tier": outcome.tier,
            "build_s": outcome.build_s,
            "times": _times(self.row, outcome, fresh, self.default_route),
        }
        if timing is not None:
            columns |= figures_of(timing, ("median_us", "default_us", *RATIOS))
        if best is not None and fresh is not None:
            columns |= {
                "incumbent_route": best.route,
                "incumbent_label": best.label,
                "incumbent_us": fresh.median_us,
                "incumbent_ratio": fresh.ratio_to_default,
                "incumbent_low": fresh.ratio_low,
                "incumbent_high": fresh.ratio_high,
            }
        return columns

    def _cleaned(self, text: str) -> str:
        """Without our own traces and the worker's folders: what a submitter reads is about the kernel."""
        for folder in (self.workshop.home, package_root()):
            text = re.sub(rf"{re.escape(str(folder))}[\w./-]*/", "", text)
        return told_log(text)


def settle(version: KernelVersion, worker: str) -> None:
    """When the last evaluation has ended: the verdict of all tries, in one step of the version's history."""
    with transaction.atomic():
        # The lock that makes the last of several workers see that it is the last.
        version = KernelVersion.objects.select_for_update(of=("self",)).get(pk=version.pk)
        rows = list(version.evaluations.select_related("operator").order_by("pk"))
        if any(row.state in (EvaluationState.QUEUED, EvaluationState.RUNNING) for row in rows):
            return
        done = [row for row in rows if row.state == EvaluationState.DONE]
        earlier = against(version.tries.select_related("evaluation__operator"))
        found = decide([*earlier, *done], [row for row in rows if row.state == EvaluationState.DEAD])
        before = (VersionState.BUILDING,)
        move(version, before, VersionState(found.state), who=worker, reason=found.reason)


def _keep(row: KernelEvaluation, held: EvaluationClaim, found: dict[str, Any]) -> None:
    """Write what a try found, the try itself with it, and what follows for the version."""
    ends_all, inspection = found.pop("ends_all", False), found.pop("inspection", None)
    if found["status"] == Status.CHEATED or ends_all:
        _end_at_once(row, held, found)
        return
    again = found["status"] == Status.NOISY and row.tries < MAX_TRIES
    ended = {} if again else {"finished_at": Now()}
    state = EvaluationState.QUEUED if again else EvaluationState.DONE
    with transaction.atomic():
        held.update(**found, **UNHELD, state=state, **ended)
        _keep_try(row, held, found)
        if inspection is not None:
            about = {"evaluation": row, "version": row.version, "worker": row.worker}
            KernelInspection.objects.create(**about, **inspection)
    if not again:
        settle(row.version, row.worker)


def _end_at_once(
    row: KernelEvaluation, held: EvaluationClaim, found: dict[str, Any], caught: bool = False
) -> None:
    """A cheat, or a build that failed or was killed: no other operator is tried, and a cheat is remembered
    with its source. ``caught``: it was remembered before."""
    with transaction.atomic():
        held.update(**found, **UNHELD, state=EvaluationState.DONE, finished_at=Now())
        _keep_try(row, held, found)
        if found["status"] == Status.CHEATED and not caught:
            where = f"evaluation on {row.operator}"
            caught_cheating(row.version, where=where, detail=found["detail"], worker=row.worker)
        before = (VersionState.SUBMITTED, VersionState.BUILDING)
        reason = found["detail"] if caught else f"{found['status']} on {row.operator}: {found['detail']}"
        if move(row.version, before, VersionState.FAILED, who=row.worker, reason=reason):
            stop_evaluating(row.version, f"not tried: {reason}"[:4000])


_OF_TRY = tuple(
    {field.name for field in KernelTry._meta.concrete_fields}
    - {"id", "evaluation", "version", "number", "fence", "worker", "started_at", "ended_at"}
)


def _keep_try(row: KernelEvaluation, held: EvaluationClaim, found: dict[str, Any]) -> None:
    kept = {name: found[name] for name in _OF_TRY if name in found}
    keep_try(row, held.fence, worker=row.worker, started_at=row.started_at, **kept)


def _give_up(held: EvaluationClaim, error: Exception) -> None:
    row = held.load()
    dead = row.tries >= MAX_TRIES
    state = EvaluationState.DEAD if dead else EvaluationState.QUEUED
    said = {"detail": told(error, held)[:4000], "log_tail": ""}
    with transaction.atomic():
        held.update(state=state, doing="", lease_expires_at=None, **said)
        _keep_try(row, held, {"status": TryStatus.DIED, **said})
    if dead:
        settle(row.version, row.worker)


def _bests(row: KernelEvaluation) -> list[Best]:
    """Of its place, the winner first."""
    found = Best.objects.filter(**_place(row), scope=SHARED).order_by("rank")
    return list(found.select_related("implementation__artifact"))


def _place(row: KernelEvaluation) -> dict[str, Any]:
    return {"operator": row.operator, "target": row.target, "setting": row.setting}


def _times(
    row: KernelEvaluation, outcome: Outcome, fresh: Evidence | None, default: str
) -> list[dict[str, Any]]:
    """The kernel, the default and every route's best, the fastest first."""
    timing = outcome.timing
    if timing is None:
        return []
    names = ("median_us", *RATIOS)
    kernel = figures_of(timing, names)
    lines: list[dict[str, Any]] = [
        {
            "what": "kernel", "method": "manual", "route": row.version.route, "label": row.version.label,
            **kernel,
        },
        {
            "what": "default", "method": "library", "route": default, "label": "default",
            "median_us": timing.default_us, "ratio_to_default": 1.0, "ratio_low": 1.0, "ratio_high": 1.0,
        },
    ]  # fmt: skip
    for best in _bests(row):
        source = fresh if best.rank == 0 and fresh is not None else best
        what = "incumbent" if best.rank == 0 else "best"
        known = {"what": what, "method": best.method, "route": best.route, "label": best.label}
        lines.append(known | figures_of(source, names))
    return sorted(lines, key=lambda line: -line["ratio_to_default"])
