"""Publishing what a worker found: one transaction from evidence to best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import transaction

from catalog import choosing, models
from catalog.best.artifacts import store_artifact
from catalog.best.seats import ScopedPlace, bests_of, lock, rank_again, seat
from catalog.registry import digest_of, register_environment
from opatlas.evidence import Evidence, Ratios
from opatlas.load import Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Paired:
    """Somebody ran in turns with the newcomer: ``ratios`` is its time ÷ the newcomer's, with the interval."""

    implementation_id: int
    ratios: Ratios


@dataclass(frozen=True)
class Publication:
    """A verified candidate with its evidence. ``folder`` holds the files that the manifest names."""

    operator: models.Operator
    target: models.Target
    setting: models.Setting
    route: str
    method: str
    label: str
    candidate: Mapping[str, Any]
    manifest: Manifest
    folder: Path
    versions: Mapping[str, str]
    evidence: Evidence
    scope: str = models.SHARED
    owner: models.Organisation | None = None
    schedule: str = ""
    source: str = ""
    build_s: float = 0.0
    purpose: str = "contest"
    paired: Paired | None = None  # with who was served when it was timed
    may_lead: bool = True  # False: kept as evidence, but no best moves (an undeclared environment)
    signing_key: Ed25519PrivateKey | None = field(default=None, repr=False)

    # What the evidence was taken against. Empty: not noted, and then it holds in every environment.
    default_route: str = ""
    default_versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.evidence.is_sound:
            raise ValueError(f"evidence must be finite, times and ratios above 0: {self.evidence}")

    @property
    def place(self) -> ScopedPlace:
        """What it competes for."""
        return ScopedPlace(
            self.operator.pk,
            self.target.pk,
            self.setting.pk,
            self.scope,
            self.owner.pk if self.owner else None,
        )


@dataclass(frozen=True)
class Published:
    implementation: models.Implementation
    measurement: models.Measurement
    is_route_best: bool
    is_winner: bool


def publish(result: Publication) -> Published:
    """Keep a result; it becomes its route's best, and the winner, where it beats the holder beyond noise.

    One transaction; it joins the caller's if there is one (a worker checks its fence there). Files are stored
    before, so that a full disk (:class:`catalog.errors.StoreError`) leaves no row behind.
    """
    artifact = store_artifact(result.manifest, result.folder, result.signing_key)
    with transaction.atomic():
        place = result.place
        lock(place)
        implementation = _keep_implementation(result, artifact)
        measurement = _keep_measurement(result, implementation)
        if not result.may_lead or _revoked(implementation):
            return Published(implementation, measurement, is_route_best=False, is_winner=False)
        bests = bests_of(place)
        served = next((best.implementation_id for best in bests.values() if best.rank == 0), None)
        is_route_best = _takes_the_seat(implementation, result, bests.get(result.route))
        if is_route_best:
            seat(place, implementation, measurement, bests)
        # Of use while it is still about who is served, and about who has the seat.
        pairs = result.paired if result.paired and result.paired.implementation_id == served else None
        winner = rank_again(
            place, bests, paired={result.route: pairs.ratios} if pairs and is_route_best else None
        )
        models.Miss.objects.filter(**place.key).exclude(state=models.MissState.EXPLORED).update(
            state=models.MissState.EXPLORED, reason=""
        )
        is_winner = winner is not None and winner.implementation_id == implementation.pk
        return Published(implementation, measurement, is_route_best, is_winner)


def _keep_implementation(result: Publication, artifact: models.Artifact) -> models.Implementation:
    row, _ = models.Implementation.objects.update_or_create(
        **result.place.key,
        route=result.route,
        candidate_sha256=digest_of(result.candidate),
        environment=register_environment(result.versions),
        defaults={
            "owner": result.owner,
            "method": result.method,
            "label": result.label[:200],
            "candidate": dict(result.candidate),
            "schedule": result.schedule,
            "source": result.source,
            "artifact": artifact,
            "build_s": result.build_s,
            "failed_at": None,
            "failed_reason": "",
        },
    )
    return row


def _keep_measurement(result: Publication, implementation: models.Implementation) -> models.Measurement:
    return models.Measurement.objects.create(
        implementation=implementation,
        **asdict(result.evidence),
        purpose=result.purpose,
        default_route=result.default_route,
        default_environment=register_environment(result.default_versions) if result.default_route else None,
    )


def _revoked(implementation: models.Implementation) -> bool:
    """Whether this candidate was revoked here, in whatever environment: what it does was found unfit."""
    same = models.Implementation.objects.filter(
        **implementation.same_key,
        route=implementation.route,
        candidate_sha256=implementation.candidate_sha256,
    )
    return same.filter(revoked_at__isnull=False).exists()


def _takes_the_seat(
    implementation: models.Implementation, result: Publication, held: models.Best | None
) -> bool:
    """Newcomer against its route's incumbent."""
    if held is None:
        return True
    # The same candidate again is no contest: its newest evidence stands for it, better or worse.
    if held.implementation.candidate_sha256 == implementation.candidate_sha256:
        return True
    if result.paired is not None and result.paired.implementation_id == held.implementation_id:
        return choosing.beats_in_pairs(result.paired.ratios)
    return choosing.beats(result.evidence.ratios, held.ratios)
