"""From outcomes to rows: trials kept, evidence published. Every write names its claim's fence."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from catalog.best.artifacts import artifact_files, store_artifact
from catalog.best.publishing import Paired, Publication, Published, publish
from catalog.best.withdrawing import set_aside
from catalog.choosing import beats
from catalog.models import Artifact as ArtifactRow
from catalog.models import Best, Environment, Implementation
from catalog.registry import digest_of, register_environment
from opatlas.evidence import CHECKS, RATIOS, Evidence, figures_of
from opatlas.identity.operator import canonical_json
from opatlas.load import Manifest
from opatlas.noise import MARGIN
from tuning.environments.known import declared_for
from tuning.explore.knowledge import why_not_publish
from tuning.explore.signing import signing_key
from tuning.measure.outcome import Outcome, Status
from tuning.models import Exploration, Trial
from tuning.queue.claims import Claim
from tuning.routes.base import BuiltArtifact, Candidate, Route

WRONG = (Status.WRONG_RESULT, Status.NOT_FINITE, Status.WROTE_INPUT, Status.CHEATED)
"""What no accident explains: the candidate itself is not fit to be served."""


@dataclass
class Tried:
    """A candidate being tried, and since when."""

    route: Route
    candidate: Candidate | None  # None: the route has none for this operator
    started_at: datetime = field(default_factory=timezone.now)
    began: float = field(default_factory=time.monotonic)
    build_s: float | None = None
    took_s: float | None = None  # None: until now

    @property
    def name(self) -> str:
        return f"{self.route.name}: {self.candidate.label if self.candidate else ''}"

    @property
    def digest(self) -> str:
        return candidate_digest(self.route.name, self.candidate.parameters if self.candidate else {})


@dataclass(frozen=True)
class Judged:
    """A candidate that was tried, what came of it, and under which claim."""

    tried: Tried
    outcome: Outcome
    claim: Claim
    row: Exploration
    worker: str
    took_s: float
    artifact: BuiltArtifact | None = None
    default: Route | None = None  # whose candidate its ratio is taken against; None: its own route's


def keep_trial(judged: Judged) -> Trial:
    """Keep what came of a candidate that is not published. Raises StaleLease when the claim was lost.

    What has been served and is found to be wrong in its own environment is served no longer. A mishap
    (a crash, a noisy host) is no such finding.
    """
    environment = register_environment(judged.tried.route.versions())
    with judged.claim.writing():
        trial = _insert_trial(judged, None, environment)
        if judged.outcome.status in WRONG and judged.tried.candidate is not None:
            served = Implementation.objects.filter(
                **judged.row.same_key,
                route=judged.tried.route.name,
                candidate_sha256=digest_of(judged.tried.candidate.parameters),
                environment=environment,
            )
            set_aside(served, f"{judged.outcome.status}: {judged.outcome.detail}")
    return trial


def publish_trial(
    judged: Judged, purpose: str, incumbent: Best | None = None, *, may_lead: bool = True
) -> Published | None:
    """Publish a verified candidate and keep its trial, in one transaction under the claim's fence.

    ``purpose`` is "default", "contest" or "confirm". Where the incumbent was timed in turns with the
    candidate, its fresh evidence is published with it: the two are compared in the same minute's noise. The
    evidence leads only where it may, and comes from the declared environments of this target for the route
    and for the default that it was timed against.
    None where it may not be served any more (a kernel that was revoked meanwhile): only its trial is kept.
    Raises StaleLease, and then nothing was published.
    """
    artifact, timing = judged.artifact, judged.outcome.timing
    assert artifact is not None and timing is not None and judged.tried.candidate is not None
    # Copied and flushed to the disk before the transaction, which holds SQLite's only write lock.
    store_artifact(artifact.manifest, artifact.folder, signing_key())
    versions = dict(judged.tried.route.versions())
    environment = register_environment(versions)
    default = judged.tried.route if purpose == "default" or judged.default is None else judged.default
    new = Publication(
        operator=judged.row.operator,
        target=judged.row.target,
        setting=judged.row.setting,
        scope=judged.row.scope,
        owner=judged.row.owner,
        route=judged.tried.route.name,
        method=judged.tried.route.method,
        label=judged.tried.candidate.label,
        candidate=dict(judged.tried.candidate.parameters),
        manifest=artifact.manifest,
        folder=artifact.folder,
        schedule=artifact.schedule,
        source=artifact.source,
        versions=versions,
        build_s=judged.outcome.build_s or 0.0,
        evidence=judged.outcome.evidence,
        purpose=purpose,
        may_lead=may_lead and _counts(judged.row.target_id, judged.tried.route, default),
        default_route=default.name,
        default_versions=dict(default.versions()),
        signing_key=signing_key(),
    )
    with judged.claim.writing():
        if refused := why_not_publish(judged.tried.candidate):
            outcome = replace(judged.outcome, status=Status.UNSUPPORTED, detail=f"Not published: {refused}.")
            _insert_trial(replace(judged, outcome=outcome), None, environment)
            return None
        rival, paired = judged.outcome.incumbent, judged.outcome.against_incumbent
        if incumbent is not None and rival is not None and rival.timing is not None:
            publish(_again(incumbent, rival.timing, new))
            if paired is not None:
                new = replace(new, paired=Paired(incumbent.implementation_id, paired.ratios))
        published = publish(new)
        _insert_trial(judged, published, environment)
        # Last, so that it is the moment of the commit as nearly as a statement can tell.
        judged.claim.update(first_result_at=Coalesce("first_result_at", Now()))
    return published


def _counts(target_id: int, route: Route, default: Route) -> bool:
    """Whether evidence of this worker's versions may move a best: both are the declared ones."""
    return all(_is_declared(target_id, one.name, one.versions()) for one in (default, route))


def _is_declared(target_id: int, route: str, versions: Mapping[str, str] | Environment) -> bool:
    mine = versions if isinstance(versions, Environment) else register_environment(versions)
    return declared_for(target_id, route, mine).pk == mine.pk


def _again(incumbent: Best, fresh: Evidence, beside: Publication) -> Publication:
    """The incumbent once more, with evidence from the rounds in which the newcomer was timed."""
    implementation, measured = incumbent.implementation, incumbent.measurement
    return replace(
        beside,
        route=implementation.route,
        method=implementation.method,
        label=implementation.label,
        candidate=implementation.candidate,
        manifest=Manifest.from_json(implementation.artifact.manifest),
        schedule=implementation.schedule,
        source=implementation.source,
        build_s=implementation.build_s,
        versions=implementation.environment.versions,
        may_lead=_is_declared(incumbent.target_id, incumbent.route, implementation.environment)
        and _is_declared(incumbent.target_id, beside.default_route, beside.default_versions),
        evidence=replace(
            fresh,
            samples_us=(),
            default_us=beside.evidence.default_us,
            **figures_of(measured, CHECKS),
        ),
    )


def usable(outcome: Outcome) -> Outcome:
    """The outcome; NOISY in its place where its times are none (a slope of zero has no finite ratio)."""
    if not outcome.ok or outcome.timing is None or outcome.timing.is_sound:
        return outcome
    return replace(
        outcome, status=Status.NOISY, timing=None, detail="Its times are not positive, finite numbers."
    )


def winner_of(row: Exploration) -> Best | None:
    """Who is served at present for an exploration's key."""
    return (
        Best.objects.filter(**row.same_key, rank=0)
        .select_related("implementation__artifact", "implementation__environment", "measurement")
        .first()
    )


def would_win(outcome: Outcome, winner: Best | None) -> bool:
    """Whether this evidence alone would make a candidate the winner."""
    if winner is None or outcome.timing is None:
        return True
    return beats(outcome.timing.ratios, winner.ratios)


def might_win(outcome: Outcome, winner: Best | None) -> bool:
    """Whether a candidate looks faster than who is served: then the two run in turns, which decides it."""
    if winner is None or outcome.timing is None:
        return True
    return outcome.timing.ratio_to_default > winner.ratio_to_default * (1 + MARGIN)


def artifact_from_catalogue(row: ArtifactRow, folder: Path) -> BuiltArtifact:
    """A published artifact, its files copied from the store into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in artifact_files(row).items():
        shutil.copyfile(path, folder / name)
    return BuiltArtifact(Manifest.from_json(row.manifest), folder)


def candidate_digest(route: str, parameters: Mapping[str, Any]) -> str:
    """What tells two candidates apart."""
    return hashlib.sha256(canonical_json([route, dict(parameters)])).hexdigest()


def _insert_trial(judged: Judged, published: Published | None, environment: Environment) -> Trial:
    outcome, timing = judged.outcome, judged.outcome.timing
    return Trial.objects.create(
        exploration=judged.row,
        route=judged.tried.route.name,
        method=judged.tried.route.method,
        label=judged.tried.candidate.label[:200] if judged.tried.candidate else "",
        candidate=dict(judged.tried.candidate.parameters) if judged.tried.candidate else {},
        stage=judged.row.stage,
        round=judged.row.round,
        fence=judged.claim.fence,
        status=outcome.status,
        detail=outcome.detail[:4000],
        **(figures_of(timing, ("median_us", *RATIOS)) if timing else {}),
        max_error=outcome.max_error,
        tolerance=outcome.tolerance,
        build_s=outcome.build_s,
        took_s=judged.took_s,
        tier=outcome.tier,
        log_tail=outcome.log_tail[-8000:],
        implementation=published.implementation if published else None,
        environment=environment,
        worker=judged.worker,
        started_at=judged.tried.started_at,
    )
