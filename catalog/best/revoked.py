"""What was revoked lately: told with every lookup, so that clients drop what they hold of it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition

from cachetools import TTLCache, cached
from django.utils import timezone

from catalog import models

ENTRY_LIFE_S = 300
"""How long a client may use an entry without asking again."""

MARGIN_S = 60
"""Revocations are told for so much longer: clocks differ, and a reply is on its way for a while."""

MOST = 1000
"""More revocations than this are not listed: then whoever holds entries drops all of them."""

_FRESH_S = 1.0


@dataclass(frozen=True)
class Revocations:
    """Artifacts (SHA-256) revoked within an entry's life; ``all``: too many to list."""

    artifacts: tuple[str, ...] = ()
    all: bool = False


def recently_revoked(scopes: Collection[str]) -> Revocations:
    """What callers of these scopes must drop. One indexed statement a second and process, shared by all."""
    found = _rows()
    if len(found) > MOST:
        return Revocations(all=True)
    return Revocations(tuple(sorted({sha256 for scope, sha256 in found if scope in scopes})))


def forget() -> None:
    """Read anew at the next call: another test's database, or one that must not wait a second."""
    _rows.cache_clear()


@cached(TTLCache(maxsize=1, ttl=_FRESH_S), condition=Condition())
def _rows() -> tuple[tuple[str, str], ...]:
    since = timezone.now() - timedelta(seconds=ENTRY_LIFE_S + MARGIN_S)
    lately = models.Implementation.objects.filter(revoked_at__gte=since).order_by("-revoked_at")
    return tuple(lately.values_list("scope", "artifact__sha256")[: MOST + 1])
