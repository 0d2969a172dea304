"""Revocations, sent with every lookup, so that clients drop what they hold.

A client that says up to where it was told (``since``) gets everything revoked after that, however long it was
away. Others get the revocations of one entry's life and a minute.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Condition
from typing import Any, NamedTuple

from cachetools import TTLCache, cached
from django.utils import timezone

from catalog import models
from catalog.errors import RequestError

ENTRY_LIFE_S = 300
"""How long a client may use an entry without asking again."""

MARGIN_S = 60
"""Extra time for which revocations are sent: clocks differ, commits are late, replies take time."""

MOST = 1000
"""The most revocations in one list. If there are more, clients drop all entries."""

_FRESH_S = 0.5  # what is remembered in front of Django may be a look older (catalog.lookup.recalls)
_CURSOR = re.compile(r"([0-9]{1,16})(?:-([0-9]{1,18}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RevocationCursor(NamedTuple):
    """Up to where revocations were sent: a time, and the last row with that time."""

    at: datetime
    row: int = 0

    @classmethod
    def parse(cls, text: str) -> RevocationCursor:
        """Raises :class:`RequestError` for a cursor that no answer had."""
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise RequestError(
                "revoked_since is what the last answer's revoked_until was, or 0.", where="revoked_since"
            )
        return cls(_EPOCH + timedelta(microseconds=int(found[1])), int(found[2] or 0))

    def __str__(self) -> str:
        at = (self.at - _EPOCH) // timedelta(microseconds=1)
        return f"{at}-{self.row}" if self.row else str(at)


@dataclass(frozen=True)
class Revocations:
    """The artifacts (SHA-256) to drop; ``all``: there are too many to list. ``until``: the next ``since``;
    empty if none was given."""

    artifacts: tuple[str, ...] = ()
    all: bool = False
    until: str = ""


class _Recent(NamedTuple):
    """Revocations within an entry's life and a minute: (scope, artifact) of each."""

    begins_at: datetime
    read_at: datetime
    rows: tuple[tuple[str, str], ...]

    @property
    def until(self) -> RevocationCursor:
        """Of a whole minute, so that frequent callers do not get a new cursor each time."""
        until = self.read_at - timedelta(seconds=MARGIN_S)
        return RevocationCursor(until.replace(second=0, microsecond=0))


def revocations(scopes: Collection[str], since: RevocationCursor | None = None) -> Revocations:
    """What callers of these scopes must drop. One indexed statement each half second and process, shared by
    all; and one more for callers that were away for longer."""
    recent = _recent()
    too_many = len(recent.rows) > MOST
    own = sorted({sha256 for scope, sha256 in recent.rows if scope in scopes})
    if since is None:
        return Revocations(all=True) if too_many else Revocations(tuple(own))
    if too_many or not recent.begins_at <= since.at <= recent.read_at:
        return _told_since(scopes, since, recent)
    return Revocations(tuple(own), until=str(recent.until))


def lately_revoked() -> tuple[tuple[str, str], ...]:
    """(scope, artifact) of what callers without ``since`` are sent, as last read: while it is unchanged, so
    are their answers."""
    return _recent().rows


def forget() -> None:
    """Read again at the next call: for tests with another database, or that cannot wait."""
    _recent.cache_clear()


def _told_since(scopes: Collection[str], since: RevocationCursor, recent: _Recent) -> Revocations:
    """The oldest first, up to the most in one list; the next answer goes on from there."""
    if since.at > recent.read_at + timedelta(seconds=MARGIN_S):  # a clock was wrong: told from the beginning
        since = RevocationCursor(_EPOCH)
    rows = models.Implementation.objects.filter(scope__in=scopes, revoked_at__gte=since.at)
    rows = rows.exclude(revoked_at=since.at, pk__lte=since.row).order_by("revoked_at", "pk")
    found: list[Any] = list(rows.values_list("revoked_at", "pk", "artifact__sha256")[: MOST + 1])
    artifacts = tuple(sorted({sha256 for _, _, sha256 in found[:MOST]}))
    if len(found) <= MOST:
        return Revocations(artifacts, until=str(recent.until))
    at, row, _ = found[MOST - 1]
    return Revocations(artifacts, True, str(RevocationCursor(at, row)))


@cached(TTLCache(maxsize=1, ttl=_FRESH_S), condition=Condition())
def _recent() -> _Recent:
    now = timezone.now()
    since = now - timedelta(seconds=ENTRY_LIFE_S + MARGIN_S)
    lately = models.Implementation.objects.filter(revoked_at__gte=since).order_by("-revoked_at")
    return _Recent(since, now, tuple(lately.values_list("scope", "artifact__sha256")[: MOST + 1]))
