"""What a network learns from: orders of recorded jobs and of stored models."""

from __future__ import annotations

from itertools import groupby

from django.db.models import Max, Q

from catalog import models
from tuning.predictor.orders import Recorded

MOST_JOBS = 2000
"""The latest ones."""


def recorded_for(organisation: models.Organisation | None) -> list[Recorded]:
    """Orders of an organisation's jobs and models, and of the models that are everybody's; these alone where
    it is None, since what one organisation did is nobody else's. The same order twice counts once."""
    jobs = models.Job.objects.filter(organisation=organisation).order_by("-pk").values("pk")[:MOST_JOBS]
    of_jobs = models.JobOperator.objects.filter(job__in=jobs).exclude(number=None).order_by("job", "number")
    seen = Q(model__organisation=None) | Q(model__organisation=organisation)
    of_models = models.ModelOperator.objects.filter(seen).order_by("model", "pk")
    orders = {
        tuple(number for _, number in rows): None
        for pairs in (of_jobs.values_list("job", "operator"), of_models.values_list("model", "operator"))
        for _, rows in groupby(pairs, key=lambda pair: pair[0])
    }
    named = {number for order in orders for number in order}
    known = models.Operator.objects.in_bulk(named)
    return [{known[one].key: known[one].graph for one in order} for order in orders]


def asked_for(organisation: models.Organisation | None, most: int) -> Recorded:
    """Operators that an organisation asked for, in any order, the latest ones: candidates all the same."""
    asked = models.LookupTally.objects.filter(organisation=organisation).values("operator")
    latest = asked.annotate(last=Max("hour")).order_by("-last", "-operator")[:most]
    rows = models.Operator.objects.filter(pk__in=[row["operator"] for row in latest])
    return dict(rows.values_list("key", "graph"))
