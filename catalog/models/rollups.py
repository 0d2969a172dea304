"""What pages read instead of counting millions of rows (``catalog.rollups.rollups``)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import models
from django.utils import timezone

from catalog.fields import ExactJSONField
from catalog.models.known import Method, Operator, Setting, Target


class Grain(models.TextChoices):
    HOUR = "hour"
    DAY = "day"


EVERYBODY = "all"
"""The ``tenant`` of rollup rows that count every organisation; one organisation's is ``org:<id>``."""


class StaleHour(models.Model):
    """An hour whose lookups changed since the rollups were made: what ``refresh_rollups`` makes again."""

    hour = models.DateTimeField(unique=True)
    # Marked so often: who made the hour again clears the mark only if it is still as it was before reading.
    marks = models.PositiveBigIntegerField(default=1, db_default=1)


class TrafficSlot(models.Model):
    """Rollup: one tenant's lookups of one hour or day (UTC). Recomputed from the rows, never added up."""

    grain = models.CharField(max_length=4, choices=Grain)
    start = models.DateTimeField()
    tenant = models.CharField(max_length=30, default=EVERYBODY)
    hits = models.PositiveBigIntegerField(default=0)
    default_hits = models.PositiveBigIntegerField(default=0, db_default=0)  # of them: served the default
    misses = models.PositiveBigIntegerField(default=0)
    hit_calls = models.FloatField(default=0)
    miss_calls = models.FloatField(default=0)
    operators_asked = models.PositiveIntegerField(default=0)  # distinct, within the slot
    operators_hit = models.PositiveIntegerField(default=0)  # distinct, hit at least once
    jobs = models.PositiveIntegerField(default=0)  # distinct, with at least one hit
    saved_us = models.FloatField(default=0)  # of hits: calls × (default - served)
    # Hits that a named job got because another job's miss had been explored (catalog.figures: reuse_rate).
    reused_hits = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "grain", "start"], name="one_traffic_row_per_slot")
        ]


class RouteSlot(models.Model):
    """Rollup: hits that one route served to one tenant in one day (UTC)."""

    start = models.DateTimeField()
    tenant = models.CharField(max_length=30, default=EVERYBODY)
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40)
    hits = models.PositiveBigIntegerField(default=0)
    calls = models.FloatField(default=0)
    saved_us = models.FloatField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "start", "route"], name="one_row_per_route_and_day")
        ]


class OperatorTotal(models.Model):
    """Rollup: one operator's lookups by one tenant, since the beginning."""

    operator = models.ForeignKey(Operator, models.CASCADE, related_name="totals")
    tenant = models.CharField(max_length=30, default=EVERYBODY)
    hits = models.PositiveBigIntegerField(default=0)
    default_hits = models.PositiveBigIntegerField(default=0, db_default=0)
    misses = models.PositiveBigIntegerField(default=0)
    calls = models.FloatField(default=0)
    jobs = models.PositiveIntegerField(default=0)
    saved_us = models.FloatField(default=0)
    last_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["operator", "tenant"], name="one_total_per_operator")]
        indexes = [
            models.Index(fields=["tenant", "-jobs", "-operator"], name="totals_by_jobs"),
            models.Index(fields=["tenant", "-saved_us", "-operator"], name="totals_by_saved"),
            models.Index("tenant", models.F("hits") + models.F("misses"), "operator", name="totals_by_asked"),
        ]


class Standing(models.Model):
    """Rollup: how one route stands among the shared bests of one kind of operator, in one place."""

    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40)
    op_type = models.CharField(max_length=100)
    size_class = models.PositiveSmallIntegerField()  # catalog.rollups.rollups says what it means
    found = models.PositiveIntegerField(default=0)  # operators with a verified implementation of this route
    won = models.PositiveIntegerField(default=0)  # operators whose best it made
    contested = models.PositiveIntegerField(default=0)  # of those won: where another route has a best too
    log_margin = models.FloatField(default=0)  # of those: sum of ln(runner-up's time ÷ its time), by ratios
    log_speedup = models.FloatField(default=0)  # of those won: sum of ln(ratio_to_default)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["target", "setting", "route", "op_type", "size_class"], name="one_standing_per_kind"
            )
        ]


TRAFFIC, STANDINGS = "traffic", "standings"
"""Names of rollups that make other rows, too."""


class Rollup(models.Model):
    """When a whole rollup was last made, and what that cost; figures that need no rows of their own."""

    name = models.CharField(max_length=40, unique=True)
    made_at = models.DateTimeField()
    took_s = models.FloatField(default=0)
    facts = ExactJSONField(default=dict)

    @classmethod
    def noted(cls, *names: str) -> dict[str, Rollup]:
        """These, as far as they were ever made: one statement for who wants the facts of several."""
        return {row.name: row for row in cls.objects.filter(name__in=names)}

    @classmethod
    def facts_of(cls, name: str, noted: Mapping[str, Rollup] | None = None) -> dict[str, Any]:
        """What was noted with a rollup; empty before it was ever made. ``noted``: read already."""
        row = (cls.noted(name) if noted is None else noted).get(name)
        return row.facts if row else {}

    @classmethod
    def is_due(cls, name: str, every_s: float, share: float = 0.05) -> bool:
        """Whether to make it again: at most so often, and in at most this share of the service's time."""
        row = cls.objects.filter(name=name).only("made_at", "took_s").first()
        if row is None:
            return True
        return timezone.now() - row.made_at >= timedelta(seconds=max(every_s, row.took_s / share))

    @classmethod
    def note(cls, name: str, began: float, **facts: object) -> None:
        """It was made again, beginning at ``began`` (of ``time.monotonic``)."""
        made = {"made_at": timezone.now(), "took_s": time.monotonic() - began, "facts": facts}
        cls.objects.update_or_create(name=name, defaults=made)
