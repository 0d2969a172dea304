"""What changed lately: who became the fastest, and what was withdrawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.db.models import Q

from catalog.models import BestChange, Implementation

LATEST = 200
"""Changes that are looked at, the newest first: they are found by their numbers."""


class NewBest(NamedTuple):
    """Who is the fastest since; None where there was none before, or is none left."""

    key: str  # the operator's
    summary: str
    target_id: int
    setting_id: int
    before_route: str | None
    route: str | None
    method: str | None
    created_at: datetime


class WithdrawnImplementation(NamedTuple):
    key: str  # the operator's
    summary: str
    route: str
    method: str
    revoked_reason: str
    failed_reason: str


@dataclass(frozen=True)
class Changed:
    """Since a moment, the newest first; ``more``: there were further bests."""

    bests: Sequence[NewBest] = ()
    withdrawn: Sequence[WithdrawnImplementation] = ()
    more: bool = False

    def __bool__(self) -> bool:
        return bool(self.bests or self.withdrawn)


def changed_since(visible: Q, moment: datetime) -> Changed:
    """Two statements; of what the reader may see (``visible`` is ``viewer.shown()``). What is said of each
    alone is read: whole rows of hundreds would take longer than the rest of the page's statements."""
    latest = BestChange.objects.filter(visible).order_by("-pk").values_list(
        "operator__key", "operator__summary", "target", "setting", "before__route", "after__route",
        "after__method", "created_at",
    )[:LATEST]  # fmt: skip
    bests = [row for row in map(NewBest._make, latest) if row.created_at >= moment]
    ended = Q(revoked_at__gte=moment) | Q(failed_at__gte=moment)
    gone = Implementation.objects.filter(visible, ended).order_by("-pk").values_list(
        "operator__key", "operator__summary", "route", "method", "revoked_reason", "failed_reason"
    )[:LATEST]  # fmt: skip
    withdrawn = [WithdrawnImplementation._make(row) for row in gone]
    return Changed(bests, withdrawn, more=len(bests) == LATEST)
