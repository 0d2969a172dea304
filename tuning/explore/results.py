"""From outcomes to rows: trials kept, evidence published. Every write names its claim's fence."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from catalog import choosing, failpoints
from catalog.best.artifacts import store_artifact, take_artifact
from catalog.best.damage import note_damage
from catalog.best.publishing import Publication, Published, publish
from catalog.best.publishing import publish_race as publish_race_rows
from catalog.best.withdrawing import set_aside
from catalog.errors import DamagedArtifact, UnvouchedArtifact
from catalog.models import Artifact as ArtifactRow
from catalog.models import Best, Environment, Implementation, Purpose, Target
from catalog.registry import digest_of, register_environment
from opatlas.evidence import RATIOS, Ratios, figures_of
from tuning.environments.known import declared_for
from tuning.explore.knowledge import found_wrong, kernel_version_of, why_not_publish
from tuning.explore.signing import signing_key
from tuning.failures.grouping import note_failure
from tuning.measure.device.driver_versions import environment_of
from tuning.measure.outcome import Outcome, Status
from tuning.measure.provenance import candidate_digest
from tuning.models import Exploration, Trial
from tuning.queue.claims import Claim
from tuning.routes.base import BuiltArtifact, Candidate, Route
from tuning.telling import told_log

logger = logging.getLogger(__name__)

OF_BEST = ("implementation__artifact", "implementation__environment", "measurement")
"""Fields with which a racer is published again."""
WRONG = (Status.WRONG_RESULT, Status.NOT_FINITE, Status.WROTE_INPUT, Status.CHEATED)
"""Results that no accident explains: the candidate itself is not fit to be served."""


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
    """A tried candidate, its result, and the claim."""

    tried: Tried
    outcome: Outcome
    claim: Claim
    row: Exploration
    worker: str
    took_s: float
    artifact: BuiltArtifact | None = None
    default: Route | None = None  # whose candidate its ratio is taken against; None: its own route's


def keep_trial(judged: Judged) -> Trial:
    """Keep the trial of a candidate that is not published. Raises StaleLease if the claim was lost. A served
    candidate found wrong in its own environment is withdrawn; a mishap (a crash, a noisy host) is no such
    finding."""
    environment = register_environment(environment_of(judged.tried.route, judged.row.target.kind))
    wrong = judged.tried.candidate if judged.outcome.status in WRONG else None
    if wrong is not None:
        where = f"contest on {judged.row.operator}"
        found_wrong(wrong, judged.outcome.status, where, judged.outcome.detail, judged.worker)
    with judged.claim.writing():
        trial = _insert_trial(judged, None)
        if wrong is not None:
            served = Implementation.objects.filter(
                **judged.row.same_key,
                route=judged.tried.route.name,
                candidate_sha256=digest_of(wrong.parameters),
                environment=environment,
            )
            set_aside(served, f"{judged.outcome.status}: {judged.outcome.detail}")
    return trial


def publish_trial(judged: Judged, purpose: Purpose, *, may_win: bool = True) -> Published | None:
    """Publish a verified candidate and keep its trial, in one transaction under the claim's fence.

    The evidence leads only if it is from this target's declared environments, for the route and for the
    default that it was timed against. It changes what is served only if it may win. None if the candidate may
    not be served any more (a kernel revoked meanwhile): only its trial is kept. Raises StaleLease, and then
    nothing was published.
    """
    new = _publication(judged, purpose, may_win)
    # Copied and flushed to the disk before the transaction, which holds SQLite's only write lock.
    store_artifact(new.manifest, new.folder, signing_key())
    with judged.claim.writing():
        if _refused(judged):
            return None
        published = publish(new)
        _keep_published(judged, published)
        failpoints.at("publish-committing", exploration_id=judged.claim.pk, fence=judged.claim.fence)
    failpoints.at("published", exploration_id=judged.claim.pk, fence=judged.claim.fence)
    return published


@dataclass(frozen=True)
class Finalist:
    """A participant of a final: a candidate of this slice, or the holder of a seat (``held``)."""

    outcome: Outcome
    artifact: BuiltArtifact
    judged: Judged | None = None
    held: Best | None = None
    purpose: Purpose = Purpose.FINAL

    @property
    def load_us(self) -> float:
        found = self.outcome.facts.get("load_us")
        return float(found or 0.0) + (self.outcome.prepare_us or 0.0)


@dataclass(frozen=True)
class Decided:
    """Numbers of finalists: the winner (None: none may lead), and those not told apart from it."""

    winner: int | None
    equal: frozenset[int] = frozenset()


@dataclass(frozen=True)
class HeldRace:
    """The claim, exploration and default of a race. ``incumbent``: the winner of an earlier decision, which
    stays if nothing is told apart from it; None if the present best is only a first result."""

    claim: Claim
    row: Exploration
    default: Route
    incumbent: Best | None = None


def publish_race(
    held: HeldRace, finalists: Sequence[Finalist], pairs: Mapping[tuple[int, int], Ratios]
) -> Decided:
    """Publish a final's results and serve its winner, in one transaction under the claim's fence. Failures
    are kept as trials."""
    timed = [number for number, one in enumerate(finalists) if one.outcome.ok]
    for number, one in enumerate(finalists):
        if number not in timed and one.judged is not None:
            keep_trial(one.judged)
    timed.sort(key=lambda number: -finalists[number].outcome.ratio)
    made = {number: _of_race(finalists[number], held) for number in timed}
    for new in made.values():
        store_artifact(new.manifest, new.folder, signing_key())
    with held.claim.writing():
        for number in timed:
            judged = finalists[number].judged
            if judged is not None and _refused(judged):
                made.pop(number)
        decided = _decided(finalists, made, pairs, held.incumbent)
        if decided.winner is None:
            published = {number: publish(replace(new, may_lead=False)) for number, new in made.items()}
        else:
            equal = [made[number] for number in decided.equal]
            rows = publish_race_rows(list(made.values()), made[decided.winner], equal)
            published = dict(zip(made, rows, strict=True))
        for number, row in published.items():
            if (judged := finalists[number].judged) is not None:
                _keep_published(judged, row)
        failpoints.at("publish-committing", exploration_id=held.claim.pk, fence=held.claim.fence)
    failpoints.at("published", exploration_id=held.claim.pk, fence=held.claim.fence)
    return decided


def _decided(
    finalists: Sequence[Finalist],
    made: Mapping[int, Publication],
    pairs: Mapping[tuple[int, int], Ratios],
    incumbent: Best | None,
) -> Decided:
    leading = {
        str(number): choosing.Contender(new.evidence.ratios, finalists[number].load_us)
        for number, new in made.items()
        if new.may_lead
    }
    if not leading:
        return Decided(None)
    # It may have run as a candidate of this slice, in a round that tries all of them again.
    stays = next((n for n, new in made.items() if incumbent is not None and _is_same(new, incumbent)), None)
    named = {(str(one), str(other)): ratios for (one, other), ratios in pairs.items()}
    found = choosing.decide(leading, named, None if stays is None else str(stays))
    return Decided(int(found.winner), frozenset(int(name) for name in found.equal))


def _is_same(new: Publication, best: Best) -> bool:
    return new.route == best.route and digest_of(new.candidate) == best.implementation.candidate_sha256


def _of_race(one: Finalist, held: HeldRace) -> Publication:
    if one.judged is not None:
        return _publication(one.judged, one.purpose, True)
    assert one.held is not None
    return _again(one.held, one, held)


def _publication(judged: Judged, purpose: Purpose, may_win: bool) -> Publication:
    """A judged candidate as a publication."""
    artifact, candidate = judged.artifact, judged.tried.candidate
    assert artifact is not None and candidate is not None
    route, row = judged.tried.route, judged.row
    default = route if purpose == Purpose.DEFAULT or judged.default is None else judged.default
    return Publication(
        operator=row.operator,
        target=row.target,
        setting=row.setting,
        scope=row.scope,
        owner=row.owner,
        route=route.name,
        method=route.method,
        label=candidate.label,
        candidate=dict(candidate.parameters),
        kernel_version=kernel_version_of(candidate),
        manifest=artifact.manifest,
        folder=artifact.folder,
        schedule=artifact.schedule,
        source=artifact.source,
        versions=environment_of(route, row.target.kind),
        build_s=judged.outcome.build_s or 0.0,
        evidence=judged.outcome.evidence,
        purpose=purpose,
        may_lead=_counts(row.target, route, default),
        may_win=may_win,
        default_route=default.name,
        default_versions=environment_of(default, row.target.kind),
        signing_key=signing_key(),
        final=False,  # this very slice goes on
    )


def _again(best: Best, one: Finalist, held: HeldRace) -> Publication:
    """The holder of a seat with new evidence, from the same rounds as the others."""
    implementation, row = best.implementation, held.row
    versions = environment_of(held.default, row.target.kind)
    return Publication(
        operator=row.operator,
        target=row.target,
        setting=row.setting,
        scope=row.scope,
        owner=row.owner,
        route=implementation.route,
        method=implementation.method,
        label=implementation.label,
        candidate=implementation.candidate,
        kernel_version=implementation.kernel_version,
        manifest=one.artifact.manifest,
        folder=one.artifact.folder,
        schedule=implementation.schedule,
        source=implementation.source,
        versions=implementation.environment.versions,
        build_s=implementation.build_s,
        evidence=one.outcome.evidence,
        purpose=one.purpose,
        may_lead=_is_declared(best.target_id, best.route, implementation.environment)
        and _is_declared(best.target_id, held.default.name, versions),
        default_route=held.default.name,
        default_versions=versions,
        signing_key=signing_key(),
        final=False,
    )


def _refused(judged: Judged) -> bool:
    """Whether it may not be published after all; only its trial is kept then."""
    assert judged.tried.candidate is not None
    if not (refused := why_not_publish(judged.tried.candidate)):
        return False
    outcome = replace(judged.outcome, status=Status.UNSUPPORTED, detail=f"Not published: {refused}.")
    _insert_trial(replace(judged, outcome=outcome), None)
    return True


def _keep_published(judged: Judged, published: Published) -> None:
    _insert_trial(judged, published)
    # Last, so that it is the moment of the commit as nearly as a statement can tell.
    judged.claim.update(first_result_at=Coalesce("first_result_at", Now()))


def _counts(target: Target, route: Route, default: Route) -> bool:
    """Whether this worker's evidence may change a best: its versions are the declared ones."""
    both = (default, route)
    return all(_is_declared(target.pk, one.name, environment_of(one, target.kind)) for one in both)


def _is_declared(target_id: int, route: str, versions: Mapping[str, str] | Environment) -> bool:
    mine = versions if isinstance(versions, Environment) else register_environment(versions)
    return declared_for(target_id, route, mine).pk == mine.pk


def usable(outcome: Outcome) -> Outcome:
    """The outcome, or NOISY if its times are unusable (a slope of zero has no finite ratio)."""
    if not outcome.ok or outcome.timing is None or outcome.timing.is_sound:
        return outcome
    return replace(
        outcome, status=Status.NOISY, timing=None, detail="Its times are not positive, finite numbers."
    )


def winner_of(row: Exploration) -> Best | None:
    """The present best for an exploration's key."""
    return Best.objects.filter(**row.same_key, rank=0).select_related(*OF_BEST).first()


def artifact_from_catalogue(row: ArtifactRow, folder: Path) -> BuiltArtifact:
    """A published artifact with its files copied from the store into ``folder``: the only way into a
    laboratory. Raises DamagedArtifact or UnvouchedArtifact if it does not verify; nothing is loaded then."""
    return BuiltArtifact(take_artifact(row, folder), folder)


def sound_incumbent(best: Best, folder: Path) -> BuiltArtifact | None:
    """The present best, to be timed beside a newcomer; None if it does not verify. A damaged one loses its
    place to its route's next best until it is whole again (:mod:`catalog.best.damage`)."""
    try:
        return artifact_from_catalogue(best.implementation.artifact, folder)
    except UnvouchedArtifact as error:
        logger.warning("%s of %s is not loaded: %s", best.label, best.operator, error)
    except DamagedArtifact as error:
        logger.error("%s of %s is served no longer: %s", best.label, best.operator, error)
        note_damage(best.implementation.artifact, str(error))
    return None


def _insert_trial(judged: Judged, published: Published | None) -> Trial:
    outcome, timing = judged.outcome, judged.outcome.timing
    trial = Trial.objects.create(
        exploration=judged.row,
        route=judged.tried.route.name,
        method=judged.tried.route.method,
        label=judged.tried.candidate.label[:200] if judged.tried.candidate else "",
        candidate=dict(judged.tried.candidate.parameters) if judged.tried.candidate else {},
        stage=judged.row.stage,
        round=judged.row.round,
        fence=judged.claim.fence,
        status=outcome.status,
        detail=told_log(outcome.detail)[:4000],
        **(figures_of(timing, ("median_us", *RATIOS)) if timing else {}),
        max_error=outcome.max_error,
        tolerance=outcome.tolerance,
        build_s=outcome.build_s,
        took_s=judged.took_s,
        device=outcome.of_device,
        tier=outcome.tier,
        log_tail=told_log(outcome.log_tail)[-8000:],
        implementation=published.implementation if published else None,
        environment=register_environment(environment_of(judged.tried.route, judged.row.target.kind)),
        worker=judged.worker,
        started_at=judged.tried.started_at,
    )
    note_failure(trial)
    return trial
