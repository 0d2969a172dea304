"""What jobs ask for one after the other, learnt where usage is drained, in its transaction.

A job's order is that of its first lookups of each operator, hits and misses alike. So each pair counts once
for a job, however often its loop runs. An organisation learns from its own jobs alone and is sent nothing
else, so no answer can depend on others' lookups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from django.db.models import F, QuerySet, Sum, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from catalog.models import JobOperator, Organisation, Succession
from catalog.upsert import add_up
from catalog.usage.journal_line import JournalLine

WINDOW = 32
"""How many operators that come after one are noted with it."""
STRONGEST = 64
"""How many are kept for an operator: twice what is sent, so that new ones may grow."""
MOST_ROWS = 500_000
"""Of an organisation; those not seen for longest are dropped."""
MOST_SENT = 32
LAST_ASKED = 4
"""How many of a lookup's last operators count: what came after these is sent along."""
KEPT = timedelta(days=90)

Pair = tuple[int, int]  # ids of the operator before, and of the one after


def add_successions(lines: Iterable[tuple[int, JournalLine]]) -> None:
    """Note what jobs first asked for in these lines, each with its job's id; after their rows of JobOperator,
    which are locked by then."""
    asked: dict[int, dict[int, None]] = {}
    told: dict[int, JournalLine] = {}
    for job, line in lines:
        asked.setdefault(job, {}).update(dict.fromkeys(line.asked))
        told[job] = line
    for job, operators in asked.items():
        if operators and (pairs := list(_numbered(job, operators))):
            _keep(told[job].organisation_id, pairs, told[job].at)


def asked_next(organisation: Organisation | int, keys: Sequence[str]) -> list[str]:
    """Keys of what this organisation's jobs asked after these operators, the likeliest first."""
    rows = Succession.objects.filter(organisation=organisation, before__key__in=keys[-LAST_ASKED:])
    likely = rows.values("after__key").annotate(sum=Sum("weight")).order_by("-sum", "after__key")
    named = set(keys)
    return [key for key, _ in likely.values_list("after__key", "sum") if key not in named][:MOST_SENT]


def forget_old_successions() -> int:
    """The courier's chore: delete pairs that were not seen for long; returns how many."""
    return Succession.objects.filter(last_at__lt=timezone.now() - KEPT).delete()[0]


def _numbered(job: int, operators: Iterable[int]) -> Iterator[tuple[Pair, float]]:
    """Number those that the job had not asked for before, and give the pairs that they make with weights."""
    rows = {row.operator_id: row for row in JobOperator.objects.filter(job=job, number=None)}
    new = [rows[operator] for operator in operators if operator in rows]
    numbered = JobOperator.objects.filter(job=job).exclude(number=None).order_by("-number", "-pk")
    last = list(numbered[:WINDOW]) if new else []
    before = [row.operator_id for row in reversed(last)]
    for number, row in enumerate(new, (last[0].number or 0) + 1 if last else 0):
        row.number = number
        for gap, operator in enumerate(reversed(before), 1):
            yield (operator, row.operator_id), 1 / gap
        before = [*before[1 - WINDOW :], row.operator_id]
    JobOperator.objects.bulk_update(new, ["number"], batch_size=200)


def _keep(organisation: int, pairs: Sequence[tuple[Pair, float]], at: datetime) -> None:
    add_up(
        Succession,
        ("organisation_id", "before_id", "after_id"),
        ("jobs", "weight"),
        (((organisation, *pair), {"jobs": 1, "weight": weight, "last_at": at}) for pair, weight in pairs),
    )
    mine = Succession.objects.filter(organisation=organisation)
    strength = Window(RowNumber(), partition_by="before", order_by=[F("weight").desc(), F("last_at").desc()])
    ranked = mine.filter(before__in={before for (before, _), _ in pairs}).annotate(place=strength)
    _drop(ranked.filter(place__gt=STRONGEST))
    _drop(mine.order_by("-last_at", "-pk")[MOST_ROWS:])


def _drop(rows: QuerySet[Succession]) -> None:
    Succession.objects.filter(pk__in=rows.values("pk")).delete()
