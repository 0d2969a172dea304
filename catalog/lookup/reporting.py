"""What clients report: hits that their own caches answered, counted once however often a report arrives."""

from __future__ import annotations

from collections.abc import Mapping

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from catalog import models
from catalog.best.served import scopes_of
from catalog.charging import charging
from catalog.usage.journal_line import JournalHit, JournalLine
from catalog.usage.usage_rows import count, jobs_of, usages

NODE = "client of {}"
"""Stands for the machine in a report's rows: one client's numbers never meet another organisation's."""


def record_report(
    organisation: models.Organisation, job: str, client: str, sequence: int, used: Mapping[int, float]
) -> int | None:
    """Count what a client used since its last report: calls by implementation id. One hit for each.

    Gives how many were counted; None where this report was counted before. What the organisation cannot see,
    what was deleted since and what costs something (which is agreed on at each lookup) is left out.
    """
    served = _served(organisation, used)
    row = models.JournalSegment(node=NODE.format(organisation.pk), segment=f"{client}-{sequence}")
    line = JournalLine(0, timezone.now(), organisation.pk, job, served, [])
    jobs = jobs_of([line])
    counted = models.Usage.objects.filter(node=row.node, segment=row.segment)
    if counted.exists():
        return None
    try:
        with transaction.atomic():
            models.Usage.objects.bulk_create(list(usages(row, [line], jobs)), batch_size=50)
            count([line], jobs)
    except IntegrityError:
        if not counted.exists():
            raise  # not the same report at once, but a row that went meanwhile: it is sent again
        return None
    return len(served)


def _served(organisation: models.Organisation, used: Mapping[int, float]) -> list[JournalHit]:
    scopes = scopes_of(organisation)
    timed = models.Measurement.objects.filter(implementation=OuterRef("pk")).order_by("-pk")
    best = models.Best.objects.filter(implementation=OuterRef("pk"))
    rows = (
        models.Implementation.objects.filter(pk__in=used, scope__in=scopes)
        .annotate(
            median_us=Subquery(timed.values("median_us")[:1]),
            default_us=Subquery(timed.values("default_us")[:1]),
            is_default=Subquery(best.values("is_default")[:1]),
        )
        .order_by("pk")
    )
    found = [row for row in rows if row.median_us is not None]
    terms = charging().terms_of(organisation.pk, found)
    return [
        JournalHit(
            row.operator_id,
            row.pk,
            row.route,
            row.method,
            row.median_us,
            row.default_us,
            used[row.pk],
            bool(row.is_default),
        )
        for row in found
        if row.pk not in terms
    ]
