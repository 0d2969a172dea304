"""Evaluating: a worker builds a version in the sandbox, checks it, times it against default and incumbent.

Nothing is published. What came of it is kept with the evaluation; when a version's last one has ended, the
version awaits a decision, or has failed with the reason.
"""

from __future__ import annotations

import logging
import re
import tempfile
import traceback
from pathlib import Path
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from catalog.models import SHARED, Best
from opatlas.evidence import RATIOS, Evidence, figures_of
from opatlas.identity import Operator, Setting
from tuning.explore import scratch
from tuning.explore.results import artifact_from_catalogue, usable
from tuning.explore.workshop import Stopping, Workshop
from tuning.kernels import claims
from tuning.kernels.binding import submitted_kernel
from tuning.kernels.claims import MAX_TRIES, EvaluationClaim
from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelVersion, VersionState
from tuning.kernels.states import move
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox.tiers import package_root
from tuning.models import Trial
from tuning.queue.claims import UNHELD, StaleLease
from tuning.queue.clock import DATABASE_GONE
from tuning.routes.base import BuiltArtifact, Candidate, Route

logger = logging.getLogger(__name__)

_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+\S.*(?:\n|$)")

RIGHT = (Status.OK, Status.NOISY, Status.SLOWER)
"""Checked and found right; whether it is worth having, people decide."""


def run_evaluation(workshop: Workshop, held: EvaluationClaim) -> bool:
    """Do one claimed evaluation; False where the claim was lost. Raises Stopping and DATABASE_GONE."""
    try:
        row = held.load()
        move(row.version, (VersionState.SUBMITTED,), VersionState.BUILDING, who=workshop.worker)
        with tempfile.TemporaryDirectory(
            dir=scratch.folder(workshop.home), prefix=scratch.prefix()
        ) as folder:
            found = _Evaluation(workshop, held, row, Path(folder)).run()
        _keep(row, held, found)
        logger.info("%s on %s: %s %s", row.version, row.operator, found["status"], found["detail"])
    except Stopping:
        claims.release(held)
        raise
    except StaleLease as error:
        logger.warning("%s", error)
        return False
    except DATABASE_GONE:
        raise
    except Exception as error:
        logger.exception("Evaluation %s broke.", held.evaluation_id)
        return _give_up(held, f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))
    return True


class _Evaluation:
    """One version on one operator, in work."""

    def __init__(
        self, workshop: Workshop, held: EvaluationClaim, row: KernelEvaluation, folder: Path
    ) -> None:
        self.workshop, self.held, self.row, self.folder = workshop, held, row, folder
        self.operator = Operator.from_json(row.operator.graph)
        self.setting = Setting.from_json(row.setting.description)
        self.log = ""

    def run(self) -> dict[str, Any]:
        """The columns that say what came of it."""
        route = next((route for route in self.workshop.routes if route.name == self.row.version.route), None)
        if route is None:
            return self._found(Outcome(Status.UNSUPPORTED, "this worker does not have the route cpp"))
        if reason := self.workshop.available(route) or self.workshop.why_unsafe(route.name):
            return self._found(Outcome(Status.UNSUPPORTED, reason))
        candidate = submitted_kernel(self.row.version).candidate()
        self._say("building")
        built = self._build(route, candidate, "kernel")
        if isinstance(built, Outcome):
            return self._found(built)
        self.log = str(built.facts.get("build_log", ""))
        place = {f"exploration__{name}": value for name, value in _place(self.row).items()}
        trials = Trial.objects.filter(**place)
        default = self.workshop.known_default(trials, self.operator, self.setting)
        if default is None:
            return self._found(Outcome(Status.UNSUPPORTED, "no default can be timed on this worker"))
        self._say("setting up the default")
        default_built = self._build(*default, "default")
        if isinstance(default_built, Outcome):
            return self._found(Outcome(Status.UNSUPPORTED, f"the default: {default_built.detail}"))
        with self.workshop.laboratory.bench(self.operator, self.setting, default_built) as bench:
            return self._time(bench, built)

    def _time(self, bench: Bench, built: BuiltArtifact) -> dict[str, Any]:
        if not bench.default.ok:
            return self._found(Outcome(Status.UNSUPPORTED, f"the default fails: {bench.default.detail}"))
        self._say("checking and timing")
        outcome = usable(bench.measure(built, self.workshop.limits))
        best = next((one for one in _bests(self.row) if one.rank == 0), None)
        if outcome.ok:
            self._say("timing against the incumbent")
            incumbent = None
            if best is not None and not self.workshop.why_unsafe(best.route):
                incumbent = artifact_from_catalogue(best.implementation.artifact, self.folder / "incumbent")
            confirmed = usable(bench.confirm(built, incumbent, self.workshop.limits))
            # Wrong on fresh inputs is wrong; but what was merely disturbed keeps its first times.
            outcome = outcome if confirmed.status == Status.NOISY else confirmed
        build_s = float(built.facts.get("build_s", 0.0))
        return {**self._found(outcome, best), "build_s": build_s}

    def _build(self, route: Route, candidate: Candidate, name: str) -> BuiltArtifact | Outcome:
        folder = self.folder / name
        folder.mkdir()
        return self.workshop.laboratory.build(
            route, self.operator, self.setting, candidate, folder, self.workshop.limits
        )

    def _say(self, doing: str) -> None:
        self.workshop.check(self.held)
        self.held.update(doing=doing)

    def _found(self, outcome: Outcome, best: Best | None = None) -> dict[str, Any]:
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
            "times": _times(self.row, outcome),
        }
        if timing is not None:
            columns |= figures_of(timing, ("median_us", "default_us", *RATIOS))
        if best is not None and (fresh := _fresh(outcome)) is not None:
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
        text = _TRACE.sub("", text)
        for folder in (self.workshop.home, package_root()):
            text = re.sub(rf"{re.escape(str(folder))}[\w./-]*/", "", text)
        return text.strip()


def settle(version: KernelVersion, worker: str) -> None:
    """When the last evaluation has ended: awaiting a decision, or failed with the first reason."""
    with transaction.atomic():
        # The lock that makes the last of several workers see that it is the last.
        version = KernelVersion.objects.select_for_update(of=("self",)).get(pk=version.pk)
        rows = list(version.evaluations.select_related("operator").order_by("pk"))
        if any(row.state in (EvaluationState.QUEUED, EvaluationState.RUNNING) for row in rows):
            return
        done = [row for row in rows if row.state == EvaluationState.DONE]
        right = [row for row in done if row.status in RIGHT]
        wrong = [row for row in rows if row not in right and row.status != Status.UNSUPPORTED]
        if right and not wrong:
            before, after, reason = (VersionState.BUILDING,), VersionState.AWAITING, _praise(right)
        else:
            first = (wrong or rows)[0]
            before, after = (VersionState.BUILDING,), VersionState.FAILED
            reason = f"{first.status or 'given up'} on {first.operator}: {first.detail}"
        move(version, before, after, who=worker, reason=reason)


def _praise(right: list[KernelEvaluation]) -> str:
    ratios = [row.ratio_to_default for row in right if row.ratio_to_default]
    operators = f"{len(right)} operator{'s' if len(right) > 1 else ''}"
    if not ratios:
        return f"right on {operators}; the machine was too noisy to time it"
    return f"right on {operators}, {min(ratios):.2f} to {max(ratios):.2f}× the default"


def _keep(row: KernelEvaluation, held: EvaluationClaim, found: dict[str, Any]) -> None:
    again = found["status"] == Status.NOISY and row.tries < MAX_TRIES - 1
    ended = {} if again else {"finished_at": Now()}
    state = EvaluationState.QUEUED if again else EvaluationState.DONE
    held.update(**found, **UNHELD, state=state, **ended)
    if not again:
        settle(row.version, row.worker)


def _give_up(held: EvaluationClaim, error: str, trace: str) -> bool:
    try:
        row = held.load()
        dead = row.tries >= MAX_TRIES
        state = EvaluationState.DEAD if dead else EvaluationState.QUEUED
        held.update(state=state, detail=error[:4000], log_tail=trace[-4000:], doing="", lease_expires_at=None)
    except StaleLease:
        return False
    if dead:
        settle(row.version, row.worker)
    return True


def _bests(row: KernelEvaluation) -> list[Best]:
    """Of its place, the winner first."""
    found = Best.objects.filter(**_place(row), scope=SHARED).order_by("rank")
    return list(found.select_related("implementation__artifact"))


def _place(row: KernelEvaluation) -> dict[str, Any]:
    return {"operator": row.operator, "target": row.target, "setting": row.setting}


def _fresh(outcome: Outcome) -> Evidence | None:
    """The incumbent's times of the same rounds, where it ran."""
    return outcome.incumbent.timing if outcome.incumbent is not None else None


def _times(row: KernelEvaluation, outcome: Outcome) -> list[dict[str, Any]]:
    """The kernel, the default and every route's best, the fastest first."""
    timing = outcome.timing
    if timing is None:
        return []
    fresh = _fresh(outcome)
    names = ("median_us", *RATIOS)
    kernel = figures_of(timing, names)
    lines: list[dict[str, Any]] = [
        {"what": "kernel", "method": "manual", "route": "cpp", "label": row.version.label, **kernel},
        {
            "what": "default", "method": "library", "route": "", "label": "default",
            "median_us": timing.default_us, "ratio_to_default": 1.0, "ratio_low": 1.0, "ratio_high": 1.0,
        },
    ]  # fmt: skip
    for best in _bests(row):
        source = fresh if best.rank == 0 and fresh is not None else best
        what = "incumbent" if best.rank == 0 else "best"
        known = {"what": what, "method": best.method, "route": best.route, "label": best.label}
        lines.append(known | figures_of(source, names))
    return sorted(lines, key=lambda line: -line["ratio_to_default"])
