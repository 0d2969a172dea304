"""Publishing what a worker found: one transaction from evidence to best."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from catalog import choosing, models
from catalog.choosing import Ratios
from catalog.needs import needs_text
from catalog.services.artifacts import store_artifact
from catalog.services.registry import register_environment
from opatlas.identity.operator import canonical_json
from opatlas.load import Manifest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True)
class Evidence:
    """Times in microseconds; ratios are default ÷ candidate with their 95 % interval."""

    median_us: float
    spread_us: float
    default_us: float
    ratio_to_default: float
    ratio_low: float
    ratio_high: float
    samples_us: tuple[float, ...] = ()
    max_error: float | None = None
    tolerance: float | None = None
    prepare_us: float | None = None
    prepare_bytes: int | None = None
    tier: str = ""

    def __post_init__(self) -> None:
        numbers = (self.median_us, self.default_us, self.ratio_to_default, self.ratio_low, self.ratio_high)
        if not all(math.isfinite(number) and number > 0 for number in numbers):
            raise ValueError(f"times and ratios of evidence must be finite and above 0: {numbers}")
        rest = (self.spread_us, self.max_error, self.tolerance, self.prepare_us, *self.samples_us)
        if not all(number is None or math.isfinite(number) for number in rest):
            raise ValueError("evidence must be finite: no answer can carry infinity")

    @property
    def ratios(self) -> Ratios:
        return Ratios(self.ratio_to_default, self.ratio_low, self.ratio_high)


@dataclass(frozen=True)
class NewResult:
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
    may_lead: bool = True  # False: kept as evidence, but no best moves (an undeclared environment)
    signing_key: Ed25519PrivateKey | None = field(default=None, repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """(operator, target, setting, scope): what it competes for."""
        return {
            "operator": self.operator,
            "target": self.target,
            "setting": self.setting,
            "scope": self.scope,
        }


@dataclass(frozen=True)
class Published:
    implementation: models.Implementation
    measurement: models.Measurement
    is_route_best: bool
    is_winner: bool


def publish(result: NewResult) -> Published:
    """Keep a result; it becomes its route's best, and the winner, where it beats the holder beyond noise.

    One transaction; it joins the caller's if there is one (a worker checks its fence there). Files are stored
    before, so that a full disk (:class:`catalog.errors.StoreError`) leaves no row behind.
    """
    artifact = store_artifact(result.manifest, result.folder, result.signing_key)
    with transaction.atomic():
        # The lock that makes two workers publish one after the other. SQLite's transactions are IMMEDIATE:
        # they exclude each other by themselves.
        models.Operator.objects.select_for_update(no_key=True).get(pk=result.operator.pk)
        implementation = _keep_implementation(result, artifact)
        measurement = _keep_measurement(result, implementation)
        if not result.may_lead:
            return Published(implementation, measurement, is_route_best=False, is_winner=False)
        bests = {best.route: best for best in _bests_of(result)}
        is_route_best = _challenge_route(result, artifact, implementation, measurement, bests)
        winner = _rank_again(result, bests)
        models.Miss.objects.filter(**result.place).exclude(state=models.MissState.EXPLORED).update(
            state=models.MissState.EXPLORED, reason=""
        )
        return Published(
            implementation, measurement, is_route_best, winner.implementation_id == implementation.pk
        )


def _keep_implementation(result: NewResult, artifact: models.Artifact) -> models.Implementation:
    candidate = dict(result.candidate)
    row, _ = models.Implementation.objects.update_or_create(
        **result.place,
        route=result.route,
        candidate_sha256=hashlib.sha256(canonical_json(candidate)).hexdigest(),
        environment=register_environment(result.versions),
        defaults={
            "owner": result.owner,
            "method": result.method,
            "label": result.label[:200],
            "candidate": candidate,
            "schedule": result.schedule,
            "source": result.source,
            "artifact": artifact,
            "build_s": result.build_s,
        },
    )
    return row


def _keep_measurement(result: NewResult, implementation: models.Implementation) -> models.Measurement:
    evidence = result.evidence
    return models.Measurement.objects.create(
        implementation=implementation,
        median_us=evidence.median_us,
        spread_us=evidence.spread_us,
        default_us=evidence.default_us,
        ratio_to_default=evidence.ratio_to_default,
        ratio_low=evidence.ratio_low,
        ratio_high=evidence.ratio_high,
        samples_us=list(evidence.samples_us),
        max_error=evidence.max_error,
        tolerance=evidence.tolerance,
        prepare_us=evidence.prepare_us,
        prepare_bytes=evidence.prepare_bytes,
        tier=evidence.tier,
        purpose=result.purpose,
    )


def _bests_of(result: NewResult) -> Iterable[models.Best]:
    return models.Best.objects.filter(**result.place).select_related("implementation").order_by("rank")


def ratios_of(best: models.Best) -> Ratios:
    return Ratios(best.ratio_to_default, best.ratio_low, best.ratio_high)


def _challenge_route(
    result: NewResult,
    artifact: models.Artifact,
    implementation: models.Implementation,
    measurement: models.Measurement,
    bests: dict[str, models.Best],
) -> bool:
    """Newcomer against its route's incumbent; adds the newcomer to ``bests`` where it wins."""
    held = bests.get(result.route)
    # The same candidate again is no contest: its newest evidence stands for it, better or worse.
    again = held is not None and held.implementation.candidate_sha256 == implementation.candidate_sha256
    if held is not None and not again and not choosing.beats(result.evidence.ratios, ratios_of(held)):
        return False
    row = held or models.Best(**result.place, route=result.route, rank=len(bests))
    row.owner = result.owner
    row.method, row.kind = result.method, result.manifest.kind
    row.implementation, row.measurement = implementation, measurement
    row.label, row.artifact_sha256 = implementation.label, artifact.sha256
    row.needs = needs_text(result.manifest.needs)
    evidence = result.evidence
    row.median_us, row.spread_us, row.default_us = evidence.median_us, evidence.spread_us, evidence.default_us
    row.ratio_to_default = evidence.ratio_to_default
    row.ratio_low, row.ratio_high = evidence.ratio_low, evidence.ratio_high
    row.measured_at = measurement.created_at or timezone.now()
    row.save()
    bests[result.route] = row
    return True


def _rank_again(result: NewResult, bests: dict[str, models.Best]) -> models.Best:
    """Order all routes anew and write down who won, where that changed."""
    last = models.BestChange.objects.filter(**result.place).order_by("-pk").first()
    incumbent = next((best.route for best in bests.values() if best.rank == 0), None)
    order = choosing.rank({route: ratios_of(best) for route, best in bests.items()}, incumbent)
    for number, route in enumerate(order):
        if bests[route].rank != number:
            bests[route].rank = number
            bests[route].save(update_fields=["rank"])
    winner = bests[order[0]]
    before_id = last.after_id if last else None
    if winner.implementation_id != before_id:
        models.BestChange.objects.create(
            **result.place,
            owner=result.owner,
            before_id=before_id,
            after=winner.implementation,
            reason=_why(winner, incumbent),
        )
    return winner


def _why(winner: models.Best, incumbent: str | None) -> str:
    speed = f"{winner.ratio_to_default:.2f}× the default ({winner.ratio_low:.2f} to {winner.ratio_high:.2f})"
    if incumbent is None or incumbent == winner.route:
        return f"{winner.route}: {winner.label}, {speed}"[:300]
    return f"{winner.route}: {winner.label}, {speed}, ahead of {incumbent}"[:300]
