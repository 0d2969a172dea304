"""What the REST API shows of the catalogue, within the scopes that a caller sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet, Sum

from catalog import models
from catalog.errors import Unknown
from catalog.search import Words
from catalog.selectors.listing import narrowed
from catalog.selectors.traffic import Lookups
from catalog.viewing import Viewer

MAX_ID = 2**63 - 1


def operators(words: Words, *, op_type: str = "", dtype: str = "") -> QuerySet[models.Operator]:
    """Operators, the newest first."""
    return narrowed(words, op_type=op_type, dtype=dtype).defer("graph").order_by("-pk")


def operator(key: str) -> models.Operator:
    row = models.Operator.objects.filter(key=key).first()
    if row is None:
        raise Unknown("This operator is not known: send its graph to POST /api/v1/lookup once.", where="key")
    return row


@dataclass(frozen=True)
class OperatorUse(Lookups):
    """How an operator fares: jobs that used it, and its hit rate (None while nobody asked)."""

    jobs: int
    hits: int
    misses: int


def use_of(row: models.Operator, viewer: Viewer) -> OperatorUse:
    """Reuse in jobs, and hits ÷ queries as far as the journal was drained: of those whose rows are seen."""
    sums = row.tallies.filter(viewer.owned()).aggregate(hits=Sum("hits"), misses=Sum("misses"))
    jobs = row.jobs.filter(viewer.owned("job__organisation")).exclude(job__name="").count()
    return OperatorUse(jobs, sums["hits"] or 0, sums["misses"] or 0)


def implementations(scopes: Sequence[str]) -> QuerySet[models.Implementation]:
    """Implementations that these scopes show, the newest first."""
    return (
        models.Implementation.objects.filter(scope__in=scopes)
        .select_related("operator", "target", "setting", "artifact", "environment")
        .order_by("-pk")
    )


def implementation(number: int, scopes: Sequence[str]) -> models.Implementation:
    row = None
    if number <= MAX_ID:  # PostgreSQL has no larger number to compare with
        found = implementations(scopes).select_related("machine_code")
        row = found.prefetch_related("measurements").filter(pk=number).first()
    if row is None:
        raise Unknown(f"There is no implementation {number}.")
    return row


def artifact(sha256: str, scopes: Sequence[str]) -> models.Artifact:
    """An artifact that at least one visible implementation uses."""
    row = models.Artifact.objects.filter(
        sha256=sha256, pk__in=models.Implementation.objects.filter(scope__in=scopes).values("artifact")
    ).first()
    if row is None:
        raise Unknown("There is no artifact with this SHA-256.")
    return row
