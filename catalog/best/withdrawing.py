"""Takes implementations out of service: revoked by people for good, failed until there is new evidence."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from catalog import models
from catalog.best.seats import ScopedPlace, bests_of, lock, restore
from catalog.errors import RequestError
from catalog.signals import misses_recorded

_REASON_CHARACTERS = 300


def withdraw(implementations: QuerySet[models.Implementation], reason: str) -> int:
    """Revoke these implementations; returns how many were new. One transaction for each place. What was
    served there falls back to the route's next best by the measurements, routes are ranked again, and
    history keeps the reason; if nothing is left, the miss waits to be explored again. A revoked candidate
    never leads there again, in whatever environment. Clients are told with their next lookup
    (``catalog.best.revoked``)."""
    reason = reason.strip()
    if not reason:
        raise RequestError("Say why: a revocation needs a reason.", where="reason")
    return _take_out(implementations.filter(revoked_at=None), reason, "revoked")


def set_aside(implementations: QuerySet[models.Implementation], reason: str) -> int:
    """These failed in their environment: they fall back as in :func:`withdraw`, but later evidence restores
    them. Returns how many were new."""
    return _take_out(implementations.filter(failed_at=None), reason, "failed")


def restore_places(places: Iterable[ScopedPlace], routes: set[str], reason: str, *, drop: bool = True) -> int:
    """Give these routes the bests by the stored evidence of today's declared environments. A best without
    such evidence is no longer served, unless ``drop`` is False. One transaction for each place; returns in
    how many the winner changed."""
    changed = 0
    for place in places:
        with transaction.atomic():
            lock(place)
            changed += _restore(place, routes, reason, drop=drop)
    return changed


def _by_place(rows: QuerySet[models.Implementation]) -> dict[ScopedPlace, list[int]]:
    places: dict[ScopedPlace, list[int]] = {}
    columns = (*models.SAME_KEY, "owner_id", "pk")
    # Places in one order for everybody: two that withdraw at once inside longer transactions cannot cross.
    for *place, pk in rows.order_by(*columns).values_list(*columns):
        places.setdefault(ScopedPlace(*place), []).append(pk)
    return places


def _take_out(implementations: QuerySet[models.Implementation], reason: str, how: str) -> int:
    return sum(_take_out_of(place, ids, reason, how) for place, ids in _by_place(implementations).items())


def _take_out_of(place: ScopedPlace, ids: list[int], reason: str, how: str) -> int:
    with transaction.atomic():
        lock(place)
        columns = {f"{how}_at": timezone.now(), f"{how}_reason": reason[:_REASON_CHARACTERS]}
        done = models.Implementation.objects.filter(pk__in=ids, **{f"{how}_at": None}).update(**columns)
        seats = {best.route: best for best in bests_of(place).values() if best.implementation_id in ids}
        if seats:
            what = ", ".join(f"{best.route}: {best.label}" for best in seats.values())
            _restore(place, set(seats), f"{what[:120]} {how}: {reason}")
    return done


def _restore(place: ScopedPlace, routes: set[str], reason: str, *, drop: bool = True) -> bool:
    before = models.Best.objects.filter(**place.key, rank=0).values_list("implementation_id", flat=True)
    was = before.first()
    winner = restore(place, routes, reason, drop=drop)
    if winner is None:
        capability = models.Target.objects.values_list("capability", flat=True).get(pk=place.target_id)
        transaction.on_commit(lambda: misses_recorded.send(sender=models.Miss, capabilities={capability}))
    return (winner.implementation_id if winner else None) != was
