"""API keys that Django has accepted lately, so that a lookup answered from memory need not check them
again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from catalog.lookup.recalls import Recalls
from catalog.lookup.shelf import Shelf
from catalog.models import ApiKey
from catalog.people.addresses import is_within

LIFE_S = 30.0
"""After this time Django is asked again, which also notes that the key is used. A recall ends a ticket at
once."""


class Ticket(NamedTuple):
    key_id: int
    organisation_id: int
    prefix: str
    expires_at: float  # seconds since the epoch
    networks: tuple[str, ...] | None
    look: int
    until: float  # of this process's clock
    weight_bytes: int = 1_000


class Tickets:
    """By a digest of the header: this memory holds no key."""

    def __init__(
        self, recalls: Recalls, most_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._recalls, self._clock = recalls, clock
        self._held: Shelf[bytes, Ticket] = Shelf(most_bytes)

    def find(self, shown: bytes, address: str) -> Ticket | None:
        """What this ``Authorization`` header (its digest) opens for this address; None: Django must be
        asked."""
        held = self._held.get(shown)
        if (
            held is None
            or held.until <= self._clock()
            or held.look < self._recalls.keys.get(held.key_id, self._recalls.everything)
            or held.expires_at <= time.time() + 1  # its last second is Django's
            or (held.networks is not None and not is_within(address, held.networks))
        ):
            return None
        return held

    def learn(self, shown: bytes, key: ApiKey, look: int) -> None:
        """Django has just answered a lookup with this key; ``look``: the last one before."""
        expires = math.inf if key.expires_at is None else key.expires_at.timestamp()
        networks = None if key.addresses is None else tuple(key.addresses)
        until = self._clock() + LIFE_S
        one = Ticket(key.pk, key.organisation_id, key.prefix, expires, networks, look, until)
        self._held.put(shown, one)
