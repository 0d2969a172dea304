"""A charged lookup that is sent again under its Idempotency-Key gets its first answer, and is not charged
again.

The answer is stored in the transaction of its charges, so there are both or neither. A repeat during the
first waits for it (milliseconds) and gets its answer. No state marks a request as running, so a killed
process leaves none behind.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.db.models import BooleanField, DateTimeField, ExpressionWrapper, Q, Value
from django.db.models.functions import Now

from catalog.charging import charging
from catalog.errors import KeyReused
from catalog.lookup.results import Result
from catalog.models import KeptAnswer, Organisation

logger = logging.getLogger(__name__)

KEPT = timedelta(days=1)
_OLD = Q(at__lt=ExpressionWrapper(Now() - Value(KEPT), DateTimeField()))
"""By the database's clock: a node whose own is a day ahead would charge every repeat again."""

Answered = tuple[Sequence[Result], Sequence[Result]]
"""Of the operators that were asked for, and of the related ones."""


@dataclass(frozen=True)
class NamedRequest:
    """A request with its caller's name for it; repeating both repeats the request."""

    key: str  # Idempotency-Key
    document: Any  # all that it says, as JSON

    @cached_property
    def sha256(self) -> str:
        """Computed when needed: most lookups are free and not stored."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()


def kept_answer(organisation: Organisation, request: NamedRequest) -> Answered | None:
    """The stored answer to this request, if it was charged. Without price rules no statement. Raises
    :class:`KeyReused` if its key named another one."""
    if not charging().has_prices(organisation.pk):
        return None
    rows = KeptAnswer.objects.annotate(old=ExpressionWrapper(_OLD, BooleanField()))
    kept = rows.filter(organisation=organisation, key=request.key).first()
    if kept is None:
        return None
    if kept.old:
        kept.delete()
        return None
    if kept.request_sha256 != request.sha256:
        raise KeyReused(
            "This Idempotency-Key named another request within the last day: give each request its own.",
            where="Idempotency-Key",
        )
    try:
        results, related = ([Result.from_json(one) for one in some] for some in kept.answer)
    except (KeyError, TypeError, ValueError):
        logger.warning("An answer that another version of the service kept cannot be read: it is forgotten.")
        kept.delete()
        return None
    return results, related


def keep_answer(organisation: Organisation, request: NamedRequest, answered: Answered) -> None:
    """Store it in the transaction that charges for it; raises IntegrityError if another did so meanwhile."""
    KeptAnswer.objects.create(
        organisation=organisation,
        key=request.key,
        request_sha256=request.sha256,
        answer=[[one.to_json() for one in some] for some in answered],
        at=Now(),
    )


def forget_old_answers() -> int:
    """The courier's chore."""
    return KeptAnswer.objects.filter(_OLD).delete()[0]
