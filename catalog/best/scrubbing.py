"""Reads the whole store: every artifact is compared with what was stored, in small steps, again and again.

A pass covers all artifacts within ``OPATLAS_SCRUB_S``, by number, evenly over the time. Its progress is a
row, so a restart goes on there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from django.db.models import F, Max
from django.utils import timezone

from catalog import models
from catalog.best.artifacts import damage_of, store_is_there
from catalog.best.damage import damaged, mend, note_damage, unseat_damaged
from catalog.best.vouching import public_keys
from catalog.conf import conf
from catalog.errors import StoreError
from catalog.steps import each

STEP_S = 0.5  # at most, of one step, but for an artifact that takes longer
_BATCH = 50
_last_damaged = 0  # the last damaged one that this process has compared again


def scrub(step_s: float = STEP_S) -> int:
    """One step: damaged artifacts once more, then those that are due; returns how many were compared. Raises
    :class:`StoreError` if the store is unexpectedly empty; nothing is judged then."""
    last = models.Artifact.objects.aggregate(last=Max("pk"))["last"]
    if last is None:
        return 0
    if not store_is_there() and models.Artifact.objects.exclude(kind="recipe").exists():
        raise StoreError(f"The artifact store at {conf().store} holds nothing: is it mounted?")
    until, keys = time.monotonic() + step_s, public_keys()
    _mend_whole(keys, until)
    unseat_damaged()
    return _go_on(_pass(last), last, keys, until)


def scrub_all() -> tuple[int, int]:
    """Compare everything now; returns how many artifacts there are, and how many are damaged."""
    keys, compared = public_keys(), 0
    for row in models.Artifact.objects.order_by("pk").iterator(chunk_size=_BATCH):
        _compare(row, keys)
        compared += 1
    return compared, damaged().count()


def scrub_pass() -> models.ScrubPass | None:
    """The progress of the present pass, and when the last one ended."""
    return models.ScrubPass.objects.first()


def _pass(last: int) -> models.ScrubPass:
    row, _ = models.ScrubPass.objects.get_or_create(pk=1)
    if row.position >= last and _elapsed(row) >= 1:
        began = row.began_at
        row.position, row.checked, row.began_at, row.ended_at = 0, 0, timezone.now(), began
        row.save()
    return row


def _elapsed(row: models.ScrubPass) -> float:
    """The share of a pass's time that has passed; a clock set back starts it again."""
    gone_s = (timezone.now() - row.began_at).total_seconds()
    return gone_s / conf().scrub_s if gone_s >= 0 else 1.0


def _go_on(row: models.ScrubPass, last: int, keys: dict[str, bytes], until: float) -> int:
    due, compared = int(last * min(1.0, _elapsed(row))), 0
    for artifact in _due(row.position, due):
        _compare(artifact, keys)
        compared, row.position = compared + 1, artifact.pk
        if time.monotonic() > until:
            break
    else:
        row.position = max(row.position, due)
    if compared or row.position >= last:
        models.ScrubPass.objects.filter(pk=row.pk, began_at=row.began_at).update(
            position=row.position, checked=F("checked") + compared
        )
    return compared


def _due(after: int, until: int) -> Iterator[models.Artifact]:
    while rows := models.Artifact.objects.filter(pk__gt=after, pk__lte=until).order_by("pk")[:_BATCH]:
        for row in rows:
            yield row
            after = row.pk


def _compare(artifact: models.Artifact, keys: dict[str, bytes]) -> None:
    """An artifact that cannot be compared does not stop the others."""
    each("comparing an artifact", [artifact], lambda row: _judge(row, keys), raises=(StoreError,))


def _judge(artifact: models.Artifact, keys: dict[str, bytes]) -> None:
    reason = damage_of(artifact, keys)
    if reason and not artifact.damaged_at:
        note_damage(artifact, reason)
    elif artifact.damaged_at and not reason:
        mend(artifact)


def _mend_whole(keys: dict[str, bytes], until: float) -> None:
    """Restore artifacts whose files or disk are back."""
    global _last_damaged
    rows = models.Artifact.objects.filter(damaged_at__isnull=False)
    found = list(rows.filter(pk__gt=_last_damaged).order_by("pk")[:_BATCH])
    _last_damaged = 0
    for row in found:
        if time.monotonic() > until:
            _last_damaged = row.pk - 1
            return
        _compare(row, keys)
    _last_damaged = found[-1].pk if len(found) == _BATCH else 0
