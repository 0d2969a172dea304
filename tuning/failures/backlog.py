"""Grouping trials that had failed before there were groups: a chore, in small steps, once."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from django.db import transaction
from django.db.models import Min
from django.utils import timezone

from catalog.models import Rollup
from catalog.steps import PASSING, each
from tuning.conf import conf
from tuning.failures.grouping import FAILURES, note_failures
from tuning.models import FailureGroup, Trial

logger = logging.getLogger(__name__)

NAME = "failures before groups"
STEP = 2000
"""Trials gone over at a time."""


def group_backlog() -> int:
    """One step, from the oldest on; how many trials were counted. It may be killed anywhere: how far it has
    come is written in the step's own transaction."""
    begun, facts = time.monotonic(), Rollup.facts_of(NAME)
    if not facts:
        facts = _ungrouped()
    elif facts["position"] >= facts["last"]:
        return 0
    upto = min(facts["position"] + STEP, facts["last"])
    with transaction.atomic():
        # What would be forgotten at once (tuning.failures.forgetting) is not begun with.
        rows = Trial.objects.filter(
            pk__gt=facts["position"],
            pk__lte=upto,
            status__in=FAILURES,
            created_at__gte=timezone.now() - timedelta(days=conf().failures_days),
        )
        found = list(
            rows.select_related("exploration").defer("log_tail", "candidate", "device").order_by("pk")
        )
        _note_all(found)
        Rollup.note(NAME, begun, position=upto, last=facts["last"])
    return len(found)


def _note_all(trials: Sequence[Trial]) -> None:
    """Together; where that fails one by one, and a trial that cannot be counted is left out."""
    try:
        with transaction.atomic():
            note_failures(trials)
    except PASSING:
        raise
    except Exception as error:
        logger.warning("Failed trials could not be counted together (%s): one by one.", error)
        each("counting a failed trial", trials, lambda one: note_failures([one]), lambda row, reason: None)


def _ungrouped() -> dict[str, int]:
    """The numbers between which trials lie that are older than the first one that was counted when it was
    kept; the first of them not included."""
    counted = FailureGroup.objects.aggregate(first=Min("first_at"))["first"]
    rows = Trial.objects.all() if counted is None else Trial.objects.filter(created_at__lt=counted)
    numbers = rows.values_list("pk", flat=True)
    first, last = numbers.order_by("pk").first(), numbers.order_by("-pk").first()
    return {"position": (first or 1) - 1, "last": last or 0}
