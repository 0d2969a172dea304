"""Everything known of one operator in one place (target and setting)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Prefetch, Q, Sum

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

    def __str__(self) -> str:
        return f"{self.target.capability}, {self.setting}"


@dataclass(frozen=True)
class Made:
    """An implementation with its newest evidence, and its rank where it is its route's best."""

    implementation: models.Implementation
    measurement: models.Measurement | None
    rank: int | None


@dataclass(frozen=True)
class Reuse:
    """Who uses an operator: the grain is the job."""

    jobs: Sequence[models.JobOperator]
    job_count: int
    models: Sequence[models.ModelOperator]
    hits: int
    misses: int

    @property
    def asked(self) -> int:
        return self.hits + self.misses

    @property
    def more_jobs(self) -> int:
        return self.job_count - len(self.jobs)

    @property
    def hit_rate(self) -> float | None:
        return self.hits / self.asked if self.asked else None


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


def implementations(operator: models.Operator, place: Place, visible: Q) -> list[Made]:
    """All that was made and is not revoked: by rank, then the others by time. Code is left unread."""
    key = {"operator": operator, "target": place.target, "setting": place.setting}
    newest = models.Measurement.objects.order_by("-created_at", "-pk").defer("samples_us")
    found = (
        models.Implementation.objects.filter(visible, **key, revoked_at=None)
        .select_related("environment", "artifact")
        .defer("schedule", "source", "candidate", "artifact__manifest")
        .prefetch_related(Prefetch("measurements", queryset=newest, to_attr="evidence"))
    )
    ranks = dict(models.Best.objects.filter(visible, **key).values_list("implementation_id", "rank"))
    made = [
        Made(implementation, next(iter(implementation.evidence), None), ranks.get(implementation.pk))
        for implementation in found
    ]
    never = float("inf")
    return sorted(
        made,
        key=lambda one: (
            never if one.rank is None else one.rank,
            one.measurement.median_us if one.measurement else never,
        ),
    )


def miss(operator: models.Operator, place: Place, visible: Q) -> models.Miss | None:
    key = {"operator": operator, "target": place.target, "setting": place.setting}
    return models.Miss.objects.filter(visible, **key).order_by("-last_asked_at").first()


def history(operator: models.Operator, place: Place, visible: Q, limit: int = 20) -> list[models.BestChange]:
    """Who became the winner, the newest first."""
    found = models.BestChange.objects.filter(
        visible, operator=operator, target=place.target, setting=place.setting
    )
    code = [f"{end}__{name}" for end in ("before", "after") for name in ("schedule", "source", "candidate")]
    rows = found.select_related("before", "after__environment").defer(*code)
    return list(rows.order_by("-created_at", "-pk")[:limit])


def reuse(operator: models.Operator, limit: int = 12) -> Reuse:
    """Jobs and models that use it, and how its lookups ended, everywhere."""
    jobs = models.JobOperator.objects.filter(operator=operator).select_related("job").order_by("-last_at")
    tally = models.LookupTally.objects.filter(operator=operator).aggregate(
        hits=Sum("hits", default=0), misses=Sum("misses", default=0)
    )
    in_models = models.ModelOperator.objects.filter(operator=operator).select_related("model")
    return Reuse(
        jobs=list(jobs[:limit]),
        job_count=jobs.count(),
        models=list(in_models.order_by("-calls")[:limit]),
        hits=tally["hits"],
        misses=tally["misses"],
    )
