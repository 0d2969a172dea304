"""Publishing what a worker found: one transaction from evidence to best."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import transaction

from catalog import choosing, models
from catalog.best.artifacts import store_artifact
from catalog.best.seats import ScopedPlace, bests_of, lock, rank_again, seat
from catalog.registry import digest_of, register_environment
from opatlas.evidence import Evidence
from opatlas.load import Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


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
    kernel_version: int | None = None  # of a hand-written kernel that it was made of
    purpose: str = models.Purpose.CONTEST
    may_lead: bool = True  # False: kept as evidence, but no best moves (an undeclared environment)
    may_win: bool = True  # False: at most its route's best: who is served is for a race to decide
    final: bool = True  # of the first best in its place: False while exploring goes on
    signing_key: Ed25519PrivateKey | None = field(default=None, repr=False)

    # What the evidence was taken against. Empty: not noted, and then it holds in every environment.
    default_route: str = ""
    default_versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.evidence.is_sound:
            raise ValueError(f"evidence must be finite, times and ratios above 0: {self.evidence}")

    @property
    def place(self) -> ScopedPlace:
        """The place in which it competes."""
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
    """Keep a result. It becomes its route's best, and the winner, if it beats the holder beyond noise. One
    transaction, or part of the caller's (in which a worker checks its fence). Files are stored before, so
    that a full disk (:class:`catalog.errors.StoreError`) leaves no row behind."""
    artifact = store_artifact(result.manifest, result.folder, result.signing_key)
    with transaction.atomic():
        place = result.place
        lock(place)
        implementation = _keep_implementation(result, artifact)
        measurement = _keep_measurement(result, implementation)
        if not result.may_lead or _revoked(implementation):
            return Published(implementation, measurement, is_route_best=False, is_winner=False)
        bests = bests_of(place)
        served = next((best for best in bests.values() if best.rank == 0), None)
        is_route_best = _takes_the_seat(implementation, result, bests.get(result.route))
        if is_route_best:
            seat(place, implementation, measurement, bests, final=result.final)
        stays = served.route if served is not None and not result.may_win else None
        winner = rank_again(place, bests, winner=stays)
        _explored(place)
        is_winner = winner is not None and winner.implementation_id == implementation.pk
        return Published(implementation, measurement, is_route_best, is_winner)


def publish_race(
    results: Sequence[Publication], winner: Publication, equal: Collection[Publication] = ()
) -> list[Published]:
    """Keep the results of one race in their order, and serve its winner. ``results``: all that were timed in
    one place, the fastest first. ``winner``: the race's choice (it may lead); ``equal``: those not told apart
    from it. A route's best that was not in the race keeps its seat unless it is beaten beyond noise. One
    transaction, as in :func:`publish`."""
    artifacts = [store_artifact(one.manifest, one.folder, one.signing_key) for one in results]
    with transaction.atomic():
        place = winner.place
        lock(place)
        kept = []
        for result, artifact in zip(results, artifacts, strict=True):
            implementation = _keep_implementation(result, artifact)
            kept.append((result, implementation, _keep_measurement(result, implementation)))
        bests = bests_of(place)
        seated = _seat_all(place, kept, winner, bests)
        first = rank_again(place, bests, winner=winner.route if winner.route in seated else None)
        level = {one.route for one in equal} & set(seated)
        for best in bests.values():
            if best.equal != (is_equal := best.rank != 0 and best.route in level):
                best.equal = is_equal
                best.save(update_fields=["equal"])
        _explored(place)
        return [
            Published(
                implementation,
                measurement,
                is_route_best=seated.get(result.route) == implementation,
                is_winner=first is not None and first.implementation_id == implementation.pk,
            )
            for result, implementation, measurement in kept
        ]


def _seat_all(
    place: ScopedPlace,
    kept: Sequence[tuple[Publication, models.Implementation, models.Measurement]],
    winner: Publication,
    bests: dict[str, models.Best],
) -> dict[str, models.Implementation]:
    """Seat the fastest of each route, and the winner in any case; returns those seated, by route."""
    raced = {implementation.pk for _, implementation, _ in kept}
    seated: dict[str, models.Implementation] = {}
    for result, implementation, measurement in sorted(kept, key=lambda one: one[0] is not winner):
        held = bests.get(result.route)
        if not result.may_lead or _revoked(implementation) or result.route in seated:
            continue
        unraced = held is not None and held.implementation_id not in raced and result is not winner
        if not unraced or _takes_the_seat(implementation, result, held):
            seat(place, implementation, measurement, bests, final=result.final)
            seated[result.route] = implementation
    return seated


def _explored(place: ScopedPlace) -> None:
    misses = models.Miss.objects.filter(**place.key).exclude(state=models.MissState.EXPLORED)
    misses.update(state=models.MissState.EXPLORED, reason="")


def _keep_implementation(result: Publication, artifact: models.Artifact) -> models.Implementation:
    known = {} if result.kernel_version is None else {"kernel_version": result.kernel_version}
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
            **known,
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
    """Whether this candidate was revoked here, in whatever environment: its computation was found unfit."""
    same = models.Implementation.objects.filter(
        **implementation.same_key,
        route=implementation.route,
        candidate_sha256=implementation.candidate_sha256,
    )
    return same.filter(revoked_at__isnull=False).exists()


def _takes_the_seat(
    implementation: models.Implementation, result: Publication, held: models.Best | None
) -> bool:
    """Whether the newcomer replaces its route's incumbent."""
    if held is None:
        return True
    # The same candidate again is no contest: its newest evidence stands for it, better or worse.
    if held.implementation.candidate_sha256 == implementation.candidate_sha256:
        return True
    if held.rank == 0 and not result.may_win:
        return False
    return choosing.beats(result.evidence.ratios, held.ratios)
