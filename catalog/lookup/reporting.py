"""Clients' reports of hits from their own caches, counted once however often a report arrives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from catalog import models
from catalog.best.served import scopes_of
from catalog.charging import Payer, charging
from catalog.usage.job_days import add_cache_day
from catalog.usage.journal_line import JournalHit, JournalLine, JournalMiss
from catalog.usage.recording import CHARGED
from catalog.usage.usage_rows import Jobs, count, jobs_of, usages

NODE = "client of {}"
"""Stands for the machine in a report's rows, so that clients of different organisations never collide."""


@dataclass(frozen=True)
class CacheReport:
    """What one client did since its last report: the calls and ``lookups`` that its caches answered, by
    implementation id in the order of first use; of all of these ``machine_hits`` by the machine's cache;
    ``missed``: lookups that it answered empty without asking, by operator key; and ``others``: how many of
    these there were, and what was prefetched, by columns of :class:`catalog.models.JobCacheDay`."""

    client: str
    sequence: int
    used: Mapping[int, float]
    lookups: Mapping[int, int]  # of the same
    machine_hits: int = 0
    others: Mapping[str, int] = field(default_factory=dict)
    of_neighbours: Collection[int] = ()  # of those used: measured on another target than the job's
    agreed: Mapping[str, int] = field(default_factory=dict)  # uses of what is charged, by agreement
    missed: Mapping[str, int] = field(default_factory=dict)


class Counted(NamedTuple):
    """The result of a report: for how many implementations it counted; what the job may still spend, if it
    was charged."""

    implementations: int
    left_micros: int | None = None


def record_report(
    organisation: models.Organisation, job: str, report: CacheReport, key: str = ""
) -> Counted | None:
    """Count a report, once, and charge what was agreed on. Each implementation becomes one Usage row with its
    lookups, each of which is a hit; each lookup that was answered empty is a miss of its operator. ``key``:
    the prefix of the API key that reports.

    None where this report was counted before. What the organisation cannot see, what was deleted since and
    what costs something without an agreement is left out.
    """
    served = _served(organisation, report)
    name = {"node": NODE.format(organisation.pk), "segment": f"{report.client}-{report.sequence}"}
    in_order = _in_order(served, report.used)
    known = models.Operator.objects.filter(key__in=report.missed).values_list("pk", "key")
    missed = [JournalMiss(pk, float(report.missed[key]), report.missed[key]) for pk, key in known]
    line = JournalLine(0, timezone.now(), organisation.pk, job, served, missed, in_order)
    jobs = jobs_of([line])
    counted = models.JournalSegment.objects.filter(**name)
    if counted.exists():
        return None
    try:
        with transaction.atomic():
            row = models.JournalSegment.objects.create(**name, closed=True, closed_at=line.at)
            # First of all: it locks the account, as lookups do before they count.
            billed, left_micros = _bill(line, report.agreed, row, jobs, key) if report.agreed else ((), None)
            models.Usage.objects.bulk_create(list(usages(row, [line], jobs)), batch_size=50)
            count([line], jobs)
            for one in jobs.values():
                add_cache_day(one.pk, line.at, _cache_counts(line, billed, report))
    except IntegrityError:
        # Else not the same report at once, but a row that went meanwhile: it is sent again.
        if not (counted.exists() or models.Usage.objects.filter(**name).exists()):
            raise
        return None
    return Counted(len(served) + len(billed), left_micros)


def _bill(
    line: JournalLine, agreed: Mapping[str, int], row: models.JournalSegment, jobs: Jobs, key: str
) -> tuple[Sequence[JournalHit], int | None]:
    """Charge agreed uses, in rows of a segment of their own; returns them as hits, and what is left."""
    billed: list[JournalHit] = []
    apart = models.JournalSegment(node=row.node, segment=f"{CHARGED}{row.segment}")

    def record(hits: Sequence[JournalHit]) -> Sequence[models.Usage]:
        billed.extend(hits)
        charged = replace(line, hits=hits, misses=(), asked=())
        rows = models.Usage.objects.bulk_create(list(usages(apart, [charged], jobs)), batch_size=50)
        count([charged], jobs)
        return rows

    payer = Payer(line.organisation_id, line.job, key=key)
    left_micros = charging().bill_uses(payer, agreed, record)
    return billed, left_micros


def _in_order(served: Sequence[JournalHit], used: Mapping[int, float]) -> list[int]:
    """Operators in the order of first use, if the report lists them so. An order by number says nothing:
    older clients sorted."""
    if list(used) == sorted(used):
        return []
    operators = {hit.implementation_id: hit.operator_id for hit in served}
    return list(dict.fromkeys(operators[number] for number in used if number in operators))


def _cache_counts(line: JournalLine, billed: Sequence[JournalHit], report: CacheReport) -> dict[str, int]:
    hits = sum(hit.lookups for hit in (*line.hits, *billed) if hit is not None)
    machine = min(report.machine_hits, hits)
    named, counted = sum(report.missed.values()), sum(miss.lookups for miss in line.misses)
    unasked = max(report.others.get("unasked_misses", 0), named)
    said = {"memory_hits": hits - machine, "machine_hits": machine}
    return {**report.others, **said, "unasked_misses": unasked, "unasked_counted": counted}


def _served(organisation: models.Organisation, report: CacheReport) -> list[JournalHit]:
    scopes = scopes_of(organisation)
    timed = models.Measurement.objects.filter(implementation=OuterRef("pk")).order_by("-pk")
    best = models.Best.objects.filter(implementation=OuterRef("pk"))
    rows = (
        models.Implementation.objects.filter(pk__in=report.used, scope__in=scopes)
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
            row.default_us if row.pk in report.of_neighbours else row.median_us,
            row.default_us,
            report.used[row.pk],
            bool(row.is_default),
            row.pk in report.of_neighbours,
            report.lookups[row.pk],
        )
        for row in found
        if row.pk not in terms
    ]
