"""Causes of failure that are kept no longer: those not seen for long, and beyond so many of one owner."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import timedelta

from django.db import transaction
from django.db.models import Count
from django.utils import timezone

from catalog.models import Rollup
from catalog.viewing import Viewer
from tuning.conf import conf
from tuning.models import FailureGroup, FailurePlace

logger = logging.getLogger(__name__)

NAME = "failures forgotten"
BATCH = 500
"""Causes, and places of one cause, that go at a time."""


def forget_failures(kept: Collection[int] = ()) -> int:
    """One batch, the longest unseen first; how many causes went. The groups with the numbers ``kept`` stay.
    Their trials stay too; what went is counted for :func:`forgotten`."""
    begun, gone = time.monotonic(), Counter[str]()
    for group in [*_old(kept), *_beyond(kept)][:BATCH]:
        if not _forget(group):
            break
        gone[group.scope] += 1
    if gone:
        Rollup.note(NAME, begun, **(Counter(Rollup.facts_of(NAME)) + gone))
        logger.info("Forgot %d causes of failure that were not seen for long.", gone.total())
    return gone.total()


def forgotten(viewer: Viewer) -> int:
    """How many of the causes that this viewer would see went so far."""
    facts = Rollup.facts_of(NAME)
    return sum(n for scope, n in facts.items() if viewer.scopes is None or scope in viewer.scopes)


def _old(kept: Collection[int]) -> Iterator[FailureGroup]:
    before = timezone.now() - timedelta(days=conf().failures_days)
    found = FailureGroup.objects.filter(last_at__lt=before).exclude(pk__in=kept)
    yield from found.order_by("last_at", "pk")[:BATCH]


def _beyond(kept: Collection[int]) -> Iterator[FailureGroup]:
    """Beyond the latest ones of their owner, whoever else has how many."""
    most = conf().failures_most
    full = FailureGroup.objects.values("scope").annotate(n=Count("pk")).filter(n__gt=most)
    for row in full.order_by("scope"):
        mine = FailureGroup.objects.filter(scope=row["scope"]).order_by("-last_at", "-pk")
        latest = mine.values_list("pk", flat=True)[:most]
        yield from mine.exclude(pk__in=[*latest, *kept]).reverse()[:BATCH]


def _forget(group: FailureGroup) -> bool:
    """Unless it failed again meanwhile. One that struck very many goes in several steps: False until then."""
    with transaction.atomic():
        found = FailureGroup.objects.select_for_update().filter(pk=group.pk, last_at=group.last_at)
        if not found.exists():
            return False
        places = list(FailurePlace.objects.filter(group=group.pk).values_list("pk", flat=True)[:BATCH])
        FailurePlace.objects.filter(pk__in=places).delete()
        if len(places) < BATCH:
            FailureGroup.objects.filter(pk=group.pk).delete()
        return len(places) < BATCH
