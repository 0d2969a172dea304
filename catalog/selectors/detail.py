"""Everything known of one operator in one place (target and setting)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from django.db.models import Prefetch, Q

from catalog import models
from catalog.fields import numbers_in


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
    how many it is made of. ``equal``: not told apart from the fastest in the race that decided. ``evidence``:
    all there is, the newest first.
    """

    implementation: models.Implementation
    measurement: models.Measurement | None
    rank: int | None
    samples: int = 0
    equal: bool = False
    evidence: Sequence[models.Measurement] = ()


@dataclass(frozen=True)
class PlacedBest:
    """Who is served in one place, and how many times as long it takes as where it is fastest."""

    place: Place
    best: models.Best
    times_the_fastest: float


@dataclass(frozen=True)
class ShownOperator:
    """What is known of an operator, of what ``visible`` (``viewer.shown()``) lets through. Its bests are read
    once, for all of this."""

    operator: models.Operator
    visible: Q

    @cached_property
    def _bests(self) -> list[models.Best]:
        """Of every place, route and scope, the newest first."""
        found = models.Best.objects.filter(self.visible, operator=self.operator)
        rows = found.select_related("measurement").defer("measurement__samples_us")
        return list(rows.order_by("-published_at"))

    @cached_property
    def places(self) -> list[Place]:
        """Where anything is known of it: where the newest best is first, then where it was asked for."""
        missed = models.Miss.objects.filter(self.visible, operator=self.operator).order_by("-last_asked_at")
        pairs = dict.fromkeys((row.target_id, row.setting_id) for row in self._bests)
        pairs |= dict.fromkeys(missed.values_list("target_id", "setting_id"))
        targets = models.Target.objects.in_bulk([target for target, _ in pairs])
        settings = models.Setting.objects.in_bulk([setting for _, setting in pairs])
        return [Place(targets[target], settings[setting]) for target, setting in pairs]

    @cached_property
    def bests(self) -> list[PlacedBest]:
        """Of every place that has one, the fastest first; where several scopes have one, the faster."""
        fastest: dict[tuple[int, int], models.Best] = {}
        for row in sorted(self._bests, key=lambda row: (row.median_us, row.pk)):
            if row.rank == 0:
                fastest.setdefault((row.target_id, row.setting_id), row)
        least = min((row.median_us for row in fastest.values()), default=0.0)
        places = {(one.target.pk, one.setting.pk): one for one in self.places}
        return [
            PlacedBest(places[pair], row, row.median_us / least if least else 1.0)
            for pair, row in fastest.items()
        ]

    def implementations(self, place: Place) -> list[RankedImplementation]:
        """All that was made there and is not revoked: by rank, then the others by ratio. Code is left
        unread."""
        newest = models.Measurement.objects.order_by("-created_at", "-pk").defer("samples_us")
        newest = newest.annotate(samples=numbers_in("samples_us"))
        made = models.Implementation.objects.filter(self.visible, place.filter, operator=self.operator)
        found = (
            made.filter(revoked_at=None)
            .select_related("environment", "artifact")
            .defer("schedule", "source", "candidate", "artifact__manifest")
            .prefetch_related(Prefetch("measurements", queryset=newest, to_attr="evidence"))
        )
        seated = {row.implementation_id: row for row in self._bests}
        never = float("inf")
        return sorted(
            (_made(one, seated.get(one.pk)) for one in found),
            key=lambda one: (
                never if one.rank is None else one.rank,
                -one.measurement.ratio_to_default if one.measurement else never,
            ),
        )


def _made(implementation: models.Implementation, seat: models.Best | None) -> RankedImplementation:
    evidence: list[models.Measurement] = implementation.evidence  # type: ignore[attr-defined]
    chosen = next((one for one in evidence if seat and one.pk == seat.measurement_id), None)
    measurement = chosen or next(iter(evidence), None)
    samples = measurement.samples if measurement else 0  # type: ignore[attr-defined]  # annotated
    rank, equal = (seat.rank, seat.equal) if seat else (None, False)
    return RankedImplementation(implementation, measurement, rank, samples, equal, evidence)


def miss(operator: models.Operator, place: Place, visible: Q) -> models.Miss | None:
    found = models.Miss.objects.filter(visible, place.filter, operator=operator)
    return found.order_by("-last_asked_at").first()


class ChangedBest(NamedTuple):
    """Who became the winner when, in whose place, and why; None: nobody was it before, or is left."""

    created_at: datetime
    reason: str
    before_route: str | None
    implementation_id: int | None
    route: str | None
    method: str | None
    label: str | None
    versions: Mapping[str, str] | None  # that the implementation was made with


def history(operator: models.Operator, place: Place, visible: Q, limit: int) -> list[ChangedBest]:
    """The newest first."""
    rows = models.BestChange.objects.filter(visible, place.filter, operator=operator)
    named = [f"after__{name}" for name in ("route", "method", "label", "environment__versions")]
    said = rows.values_list("created_at", "reason", "before__route", "after", *named)
    return [ChangedBest(*row) for row in said.order_by("-created_at", "-pk")[:limit]]
