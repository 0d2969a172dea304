"""Everything known of one operator in one place (target and setting)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from django.db.models import Prefetch, Q

from catalog import models


@dataclass(frozen=True)
class Place:
    """A (target, setting) that something is known for."""

    target: models.Target
    setting: models.Setting

    @property
    def value(self) -> str:
        """How a URL names it."""
        return f"{self.target.pk}-{self.setting.pk}"

    @property
    def filter(self) -> Q:
        return Q(target=self.target, setting=self.setting)

    def __str__(self) -> str:
        return f"{self.target.title}, {self.setting.on(self.target)}"


@dataclass(frozen=True)
class RankedImplementation:
    """An implementation with its evidence, and its rank where it is its route's best.

    The evidence of a best is what it was chosen by and is served with, of others the newest. ``samples``:
    how many it is made of. ``equal``: not told apart from the fastest in the race that decided.
    """

    implementation: models.Implementation
    measurement: models.Measurement | None
    rank: int | None
    samples: int = 0
    equal: bool = False


def places(operator: models.Operator, visible: Q) -> list[Place]:
    """Where anything is known of it, the place with the newest best first, then where it was asked for."""
    pairs: dict[tuple[int, int], None] = {}
    for table, newest in ((models.Best, "-published_at"), (models.Miss, "-last_asked_at")):
        found = table._default_manager.filter(visible, operator=operator).order_by(newest)
        for pair in found.values_list("target_id", "setting_id"):
            pairs.setdefault(pair)
    targets = models.Target.objects.in_bulk([target for target, _ in pairs])
    settings = models.Setting.objects.in_bulk([setting for _, setting in pairs])
    return [Place(targets[target], settings[setting]) for target, setting in pairs]


@dataclass(frozen=True)
class PlacedBest:
    """Who is served in one place, and how many times as long it takes as where it is fastest."""

    place: Place
    best: models.Best
    times_the_fastest: float


def bests(operator: models.Operator, visible: Q) -> list[PlacedBest]:
    """Of every place that has one, the fastest first; where several scopes have one, the faster."""
    found = models.Best.objects.filter(visible, operator=operator, rank=0)
    rows = found.select_related("target", "setting", "measurement").defer("measurement__samples_us")
    rows = rows.order_by("median_us", "pk")
    fastest: dict[tuple[int, int], models.Best] = {}
    for row in rows:
        fastest.setdefault((row.target_id, row.setting_id), row)
    least = min((row.median_us for row in fastest.values()), default=0.0)
    return [
        PlacedBest(Place(row.target, row.setting), row, row.median_us / least if least else 1.0)
        for row in fastest.values()
    ]


def implementations(operator: models.Operator, place: Place, visible: Q) -> list[RankedImplementation]:
    """All that was made and is not revoked: by rank, then the others by ratio. Code is left unread."""
    newest = models.Measurement.objects.order_by("-created_at", "-pk").defer("samples_us")
    found = (
        models.Implementation.objects.filter(visible, place.filter, operator=operator, revoked_at=None)
        .select_related("environment", "artifact")
        .defer("schedule", "source", "candidate", "artifact__manifest")
        .prefetch_related(Prefetch("measurements", queryset=newest, to_attr="evidence"))
    )
    bests = models.Best.objects.filter(visible, place.filter, operator=operator)
    seated = {
        number: seat
        for number, *seat in bests.values_list("implementation_id", "rank", "measurement_id", "equal")
    }
    made = [_made(one, *seated.get(one.pk, (None, None, False))) for one in found]
    measured = [one.measurement.pk for one in made if one.measurement]
    samples = models.Measurement.objects.filter(pk__in=measured).values_list("pk", "samples_us")
    counts = {number: len(taken) for number, taken in samples}
    made = [replace(one, samples=counts[one.measurement.pk]) if one.measurement else one for one in made]
    never = float("inf")
    return sorted(
        made,
        key=lambda one: (
            never if one.rank is None else one.rank,
            -one.measurement.ratio_to_default if one.measurement else never,
        ),
    )


def _made(
    implementation: models.Implementation, rank: int | None, chosen_by: int | None, equal: bool
) -> RankedImplementation:
    evidence: list[models.Measurement] = implementation.evidence  # type: ignore[attr-defined]
    chosen = next((one for one in evidence if one.pk == chosen_by), None)
    return RankedImplementation(implementation, chosen or next(iter(evidence), None), rank, equal=equal)


def miss(operator: models.Operator, place: Place, visible: Q) -> models.Miss | None:
    found = models.Miss.objects.filter(visible, place.filter, operator=operator)
    return found.order_by("-last_asked_at").first()


def history(operator: models.Operator, place: Place, visible: Q, limit: int = 20) -> list[models.BestChange]:
    """Who became the winner, the newest first."""
    found = models.BestChange.objects.filter(visible, place.filter, operator=operator)
    code = [f"{end}__{name}" for end in ("before", "after") for name in ("schedule", "source", "candidate")]
    rows = found.select_related("before", "after__environment").defer(*code)
    return list(rows.order_by("-created_at", "-pk")[:limit])
