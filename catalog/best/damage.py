"""Damaged artifacts: the store's bytes differ from what was stored, or are gone.

They are not served, whatever their evidence: places fall back to other measured implementations. They are
built again from their candidates (``tuning.environments.rebuilding``), and served again once they are whole.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from catalog import models
from catalog.best.seats import ScopedPlace
from catalog.best.withdrawing import restore_places, set_aside
from catalog.steps import each

logger = logging.getLogger(__name__)

DAMAGED = "artifact is damaged"
"""The beginning of every reason."""

_AT_ONCE = 100


def note_damage(artifact: models.Artifact, reason: str) -> None:
    """Stop serving it from now on; its places get the next best. Noted once."""
    columns = {"damaged_at": timezone.now(), "damaged_reason": reason[:300], "rebuild_asked_at": None}
    if models.Artifact.objects.filter(pk=artifact.pk, damaged_at=None).update(**columns):
        logger.error("Artifact %s: %s", artifact.sha256, reason)
    # An artifact is of one operator and setting: it has few places. Were they many, scrubbing goes on.
    unseat(models.Best.objects.filter(implementation__artifact=artifact.pk)[:_AT_ONCE], reason)


def unseat_damaged() -> int:
    """Remove bests whose artifact was found damaged while they were published; returns how many."""
    bests = models.Best.objects.filter(implementation__artifact__damaged_at__isnull=False)
    return unseat(bests.order_by("pk")[:_AT_ONCE], DAMAGED)


def unseat(bests: QuerySet[models.Best], reason: str) -> int:
    """Remove these seats; returns how many. If nothing is left, the miss waits to be explored, with the
    reason."""
    return len(each("taking a damaged best's seat", bests, partial(_unseat, reason)))


def _unseat(reason: str, best: models.Best) -> None:
    place = ScopedPlace.of(best)
    restore_places([place], {best.route}, f"{best.route}: {best.label[:120]}: {reason}")
    if not models.Best.objects.filter(**place.key).exists():
        _say_why(place, reason)


def _say_why(place: ScopedPlace, reason: str) -> None:
    """Write the reason into the miss; imported ones have no miss yet."""
    said = {"reason": f"{reason}: it is built again"[:500]}
    waits = {"state": models.MissState.WAITING, "owner_id": place.owner_id, "count": 0, **said}
    row, made = models.Miss.objects.get_or_create(**place.key, defaults=waits)
    if not made:
        models.Miss.objects.filter(pk=row.pk, state=models.MissState.WAITING).update(**said)


def mend(artifact: models.Artifact) -> None:
    """It is whole again: restore its places from its measurements."""
    models.Artifact.objects.filter(pk=artifact.pk).update(
        damaged_at=None, damaged_reason="", rebuild_asked_at=None
    )
    artifact.damaged_at, artifact.damaged_reason, artifact.rebuild_asked_at = None, "", None
    made = models.Implementation.objects.filter(artifact=artifact.pk)
    made.filter(failed_reason__startswith=DAMAGED).update(failed_at=None, failed_reason="")
    for row in made.filter(revoked_at=None, failed_at=None):
        restore_places([ScopedPlace.of(row)], {row.route}, "its artifact is whole again", drop=False)
    logger.info("Artifact %s is whole again.", artifact.sha256)


def give_up(artifact: models.Artifact) -> None:
    """It could not be built again as it was: its implementation counts as failed until there is new
    evidence."""
    set_aside(artifact.implementations.all(), f"{artifact.damaged_reason}; built again it was not the same")


def damaged() -> QuerySet[models.Artifact]:
    """Damaged artifacts that would be served otherwise: what pages and metrics count."""
    live = models.Implementation.objects.filter(
        artifact__damaged_at__isnull=False, revoked_at=None, failed_at=None
    )
    return models.Artifact.objects.filter(damaged_at__isnull=False, pk__in=live.values("artifact"))


def asked_for(artifacts: Iterable[models.Artifact]) -> None:
    """A person asked to build these again."""
    numbers = [row.pk for row in artifacts]
    models.Artifact.objects.filter(pk__in=numbers).update(rebuild_asked_at=Now())
