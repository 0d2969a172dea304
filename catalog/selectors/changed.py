"""What changed lately: who became the fastest, and what was withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from catalog.models import BestChange, Implementation

LATEST = 200
"""Changes that are looked at, the newest first: they are found by their numbers."""

_HEAVY = ("source", "schedule", "candidate")


@dataclass(frozen=True)
class Changed:
    """Since a moment, the newest first; ``more``: there were further ones."""

    bests: Sequence[BestChange] = ()
    withdrawn: Sequence[Implementation] = ()
    more: bool = False

    def __bool__(self) -> bool:
        return bool(self.bests or self.withdrawn)


def changed_since(visible: Q, moment: datetime) -> Changed:
    """Two statements; of what the reader may see (``visible`` is ``viewer.shown()``)."""
    rows = BestChange.objects.filter(visible).select_related("operator", "before", "after")
    heavy = [f"{side}__{name}" for side in ("before", "after") for name in _HEAVY]
    latest = list(rows.defer("operator__graph", *heavy).order_by("-pk")[:LATEST])
    bests = [row for row in latest if row.created_at >= moment]
    ended = Q(revoked_at__gte=moment) | Q(failed_at__gte=moment)
    gone = Implementation.objects.filter(visible, ended).select_related("operator")
    withdrawn = list(gone.defer("operator__graph", *_HEAVY).order_by("-pk")[:LATEST])
    return Changed(bests, withdrawn, more=len(bests) == LATEST)
