"""The ranking in one place: the routes' seats, their order, and the history of the winner.

Everything here runs inside a transaction that holds the place's lock (:func:`lock`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from catalog import choosing, models
from catalog.best.needs import needs_text
from opatlas.evidence import figures_of


@dataclass(frozen=True)
class ScopedPlace:
    """(operator, target, setting, scope): where implementations compete."""

    operator_id: int
    target_id: int
    setting_id: int
    scope: str
    owner_id: int | None = None

    @classmethod
    def of(cls, row: models.ScopedKey) -> ScopedPlace:
        """The place of a best, an implementation or a miss."""
        return cls(row.operator_id, row.target_id, row.setting_id, row.scope, row.owner_id)

    @property
    def key(self) -> dict[str, Any]:
        """Its fields, for filters."""
        return {name: getattr(self, name) for name in models.SAME_KEY}


def lock(place: ScopedPlace) -> None:
    """Make other writers for this operator wait until our transaction ends. SQLite's transactions are
    IMMEDIATE and exclude each other anyway."""
    models.Operator.objects.select_for_update(no_key=True).get(pk=place.operator_id)


def bests_of(place: ScopedPlace) -> dict[str, models.Best]:
    """The place's bests by route, the winner first."""
    found = models.Best.objects.filter(**place.key).select_related("implementation").order_by("rank")
    return {best.route: best for best in found}


def seat(
    place: ScopedPlace,
    implementation: models.Implementation,
    measurement: models.Measurement,
    bests: dict[str, models.Best],
    final: bool = True,
) -> models.Best:
    """Make an implementation its route's best, with this evidence; ``bests`` is updated. The stage of
    exploring is the place's. ``final``: the value for a place's first best."""
    artifact = implementation.artifact
    row = bests.get(implementation.route) or _new_best(place, implementation.route, bests, final)
    row.owner_id = place.owner_id
    row.method, row.kind = implementation.method, artifact.kind
    row.implementation, row.measurement = implementation, measurement
    row.label, row.artifact_sha256 = implementation.label, artifact.sha256
    row.needs = needs_text(artifact.manifest["needs"])
    for name, value in figures_of(measurement).items():
        setattr(row, name, value)
    row.measured_at = measurement.created_at or timezone.now()
    row.equal = False
    row.save()
    bests[implementation.route] = row
    return row


def _new_best(place: ScopedPlace, route: str, bests: Mapping[str, models.Best], final: bool) -> models.Best:
    row = models.Best(**place.key, route=route, rank=len(bests), final=final)
    for beside in bests.values():
        row.stage, row.final = beside.stage, beside.final
    return row


def default_of(place: ScopedPlace) -> tuple[str, str] | None:
    """The default here, by route and candidate: the one timed as such last."""
    made = {f"implementation__{name}": value for name, value in place.key.items()}
    timed = models.Measurement.objects.filter(**made, purpose=models.Purpose.DEFAULT).order_by("-pk")
    return timed.values_list("implementation__route", "implementation__candidate_sha256").first()


def timed_as_default(implementations: Collection[int]) -> set[int]:
    """Those of these that were ever timed as a default, which users have without Opatlas."""
    timed = models.Measurement.objects.filter(
        implementation__in=implementations, purpose=models.Purpose.DEFAULT
    )
    return set(timed.values_list("implementation_id", flat=True))


def rank_again(
    place: ScopedPlace,
    bests: Mapping[str, models.Best],
    reason: str = "",
    winner: str | None = None,
) -> models.Best | None:
    """Order all routes again and mark the default; if the winner changed, record it with the reason. None:
    nobody is left. ``winner``: the route that won a race."""
    last = models.BestChange.objects.filter(**place.key).order_by("-pk").first()
    incumbent = next((best.route for best in bests.values() if best.rank == 0), None)
    order = choosing.rank({route: best.ratios for route, best in bests.items()}, incumbent, winner=winner)
    default = default_of(place)
    for number, route in enumerate(order):
        best = bests[route]
        is_default = default == (route, best.implementation.candidate_sha256)
        if (best.rank, best.is_default) != (number, is_default):
            best.rank, best.is_default = number, is_default
            best.save(update_fields=["rank", "is_default"])
    first = bests[order[0]] if order else None
    before_id = last.after_id if last else None
    after_id = first.implementation_id if first else None
    if after_id != before_id:
        why = "; ".join(filter(None, [reason, _why(first, incumbent)]))
        models.BestChange.objects.create(
            **place.key, owner_id=place.owner_id, before_id=before_id, after_id=after_id, reason=why[:300]
        )
    return first


def from_evidence(place: ScopedPlace, route: str) -> tuple[models.Implementation, models.Measurement] | None:
    """The route's best by the stored measurements, or None. An implementation counts if it is neither revoked
    nor failed, and its artifact is whole. Its newest measurement counts that is valid today: in the declared
    environment, against a default of the declared one. The fastest at the lower end of its interval wins,
    since an unconfirmed one may have been lucky."""
    declared = dict(
        models.DeclaredEnvironment.objects.filter(target_id=place.target_id).values_list(
            "route", "environment_id"
        )
    )
    rows = (
        models.Measurement.objects.filter(
            **{f"implementation__{name}": value for name, value in place.key.items()},
            implementation__route=route,
            implementation__revoked_at=None,
            implementation__failed_at=None,
            implementation__artifact__damaged_at=None,
        )
        .select_related("implementation__artifact")
        .defer("samples_us", "implementation__source", "implementation__schedule")
        .order_by("-created_at", "-pk")
    )
    if route in declared:
        rows = rows.filter(implementation__environment_id=declared[route])
    newest: dict[int, models.Measurement] = {}
    for row in rows:
        against = declared.get(row.default_route, row.default_environment_id)
        if row.default_environment_id in (None, against):
            newest.setdefault(row.implementation_id, row)
    if not newest:
        return None
    best = min(newest.values(), key=lambda row: (row.ratios.confirmed_slower, -row.ratio_low, row.pk))
    return best.implementation, best


def restore(place: ScopedPlace, routes: set[str], reason: str, *, drop: bool = True) -> models.Best | None:
    """Give these routes their best by the stored evidence, and order all again. A route without evidence
    loses its seat, unless ``drop`` is False: then its best is still served. The miss follows: explored while
    anything is served, otherwise waiting to be explored again."""
    bests = bests_of(place)
    for route in sorted(routes):
        found = from_evidence(place, route)
        if found is not None:
            seat(place, *found, bests)
        elif drop and route in bests:
            bests.pop(route).delete()
    winner = rank_again(place, bests, reason)
    misses = models.Miss.objects.filter(**place.key)
    if winner is not None:
        misses.exclude(state=models.MissState.EXPLORED).update(state=models.MissState.EXPLORED, reason="")
    else:
        misses.filter(state=models.MissState.EXPLORED).update(
            state=models.MissState.WAITING, reason="", last_asked_at=timezone.now()
        )
    return winner


def _why(winner: models.Best | None, incumbent: str | None) -> str:
    if winner is None:
        return "nothing is left that may be served: it is explored again"
    speed = f"{winner.ratio_to_default:.2f}× the default ({winner.ratio_low:.2f} to {winner.ratio_high:.2f})"
    ahead = "" if incumbent is None or incumbent == winner.route else f", ahead of {incumbent}"
    return f"{winner.route}: {winner.label}, {speed}{ahead}"
