"""Periodic work, done by one worker at a time under a lease: sweep, decide, drain the journal, ring."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now
from django.utils import timezone

from catalog.services import drain_journal
from tuning import claims
from tuning.bell import bell
from tuning.clock import now_in
from tuning.conf import conf
from tuning.declaring import follow_workers
from tuning.kernels.claims import waiting as waiting_evaluations
from tuning.models import Exploration, Lease, Pause, State, Worker
from tuning.promote import promote_misses, reweigh_asked_again
from tuning.revalidation import settle
from tuning.rounds import begin_rounds

logger = logging.getLogger(__name__)

NAME = "leader"
RARELY_S = 5.0  # between two looks at what changes slowly
JOURNAL_LINES = 5_000
FORGET_WORKERS = timedelta(days=2)

_led_until = 0.0
_rarely_at = 0.0


def tick(owner: str) -> bool:
    """Do what is due, if this worker leads; False where another one does. Cheap when nothing happens."""
    global _rarely_at
    if not lead(owner):
        return False
    claims.sweep()
    rarely = time.monotonic() - _rarely_at > RARELY_S
    promote_misses(postponed=rarely)
    begin_rounds()
    settle()
    drain_journal(JOURNAL_LINES)
    if rarely:
        _rarely_at = time.monotonic()
        reweigh_asked_again(within_s=RARELY_S * 3)
        follow_workers()
        Worker.objects.filter(last_seen_at__lt=timezone.now() - FORGET_WORKERS).delete()
    bell.ring(idle_with_work())
    return True


def lead(owner: str) -> bool:
    """Hold or take the leader's lease, by compare-and-swap on the database's clock.

    A leader renews when half of its lease is over, so that an idle service hardly writes.
    """
    global _led_until
    now = time.monotonic()
    if now < _led_until:
        return True
    lease_s = conf().leader_lease_s
    mine = Q(owner=owner) | Q(expires_at__lt=Now())
    won = Lease.objects.filter(mine, name=NAME).update(owner=owner, expires_at=now_in(lease_s)) == 1
    if not won and not Lease.objects.filter(name=NAME).exists():
        try:
            with transaction.atomic():
                Lease.objects.create(name=NAME, owner=owner, expires_at=now_in(lease_s))
            won = True
        except IntegrityError:  # another worker made it first
            won = False
    # Counted from before the statement, so that we stop believing in it before the database does.
    _led_until = now + lease_s / 2 if won else 0.0
    return won


def resign(owner: str) -> None:
    """Let another worker lead at once."""
    global _led_until
    _led_until = 0.0
    Lease.objects.filter(name=NAME, owner=owner).update(expires_at=now_in(-1))


def idle_with_work() -> set[str]:
    """Capabilities that have both claimable work and an idle live worker: what must be rung for."""
    paused = set(Pause.objects.values_list("capability", flat=True))
    if "*" in paused:
        return set()
    waiting = Exploration.objects.filter(state=State.QUEUED, target_id=OuterRef("target_id"))
    evaluations = waiting_evaluations().filter(target_id=OuterRef("target_id")).order_by()
    idle = Worker.objects.filter(
        Exists(waiting) | Exists(evaluations),
        doing="",
        stopped_at=None,
        last_seen_at__gt=now_in(-conf().served_s),
    )
    return set(idle.values_list("target__capability", flat=True)) - paused
