"""Named leases on the database's clock: of several processes, the one that does the periodic work."""

from __future__ import annotations

import time

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now

from tuning.models import Lease
from tuning.queue.clock import now_in


class Holder:
    """One process's hold on one lease, taken and renewed by compare-and-swap.

    It renews when half of the lease is over, so that an idle service hardly writes.
    """

    def __init__(self, name: str, owner: str, lease_s: float) -> None:
        self.name, self.owner, self.lease_s = name, owner, lease_s
        self._until = 0.0

    def hold(self) -> bool:
        """Hold or take the lease; False if another process has it."""
        now = time.monotonic()
        if now < self._until:
            return True
        mine = Q(owner=self.owner) | Q(expires_at__lt=Now())
        expires_at = now_in(self.lease_s)
        won = Lease.objects.filter(mine, name=self.name).update(owner=self.owner, expires_at=expires_at) == 1
        if not won and not Lease.objects.filter(name=self.name).exists():
            try:
                with transaction.atomic():
                    Lease.objects.create(name=self.name, owner=self.owner, expires_at=expires_at)
                won = True
            except IntegrityError:  # another process made it first
                won = False
        # Counted from before the statement, so that we stop believing in it before the database does.
        self._until = now + self.lease_s / 2 if won else 0.0
        return won

    def resign(self) -> None:
        """Give the lease up at once."""
        self.forget()
        Lease.objects.filter(name=self.name, owner=self.owner).update(expires_at=now_in(-1))

    def forget(self) -> None:
        """Ask the database again the next time."""
        self._until = 0.0
