"""Periodic work, done by one worker at a time under a lease: sweep, decide, drain the journal, ring."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from django.db.models import Exists, OuterRef
from django.utils import timezone

from catalog import failpoints
from catalog.steps import step
from catalog.usage.draining import drain_journal
from tuning.conf import conf
from tuning.doorbell.bell import bell
from tuning.environments.declaring import follow_workers
from tuning.environments.rebuilding import ask_for_rebuilds, settle_rebuilds
from tuning.environments.revalidation import settle
from tuning.kernels.binding import withdraw_unapproved
from tuning.kernels.claims import waiting as waiting_evaluations
from tuning.models import Exploration, Pause, State, Worker
from tuning.queue import claims
from tuning.queue.clock import alive
from tuning.queue.leases import Holder
from tuning.queue.promote import promote_misses, reweigh_asked_again
from tuning.queue.rounds import begin_rounds
from tuning.rechecks.rechecking import waiting as waiting_rechecks
from tuning.uploads.claims import waiting as waiting_uploads
from tuning.uploads.intake import sweep as sweep_uploads

logger = logging.getLogger(__name__)

NAME = "leader"
RARELY_S = 5.0  # between two looks at what changes slowly
JOURNAL_LINES = 5_000
FORGET_WORKERS = timedelta(days=2)

_holder: Holder | None = None
_rarely_at = 0.0


def tick(owner: str) -> bool:
    """Do what is due, if this worker leads; False if another one does. Cheap when nothing happens. A failing
    step is noted, and the next one goes on."""
    global _rarely_at
    if not lead(owner):
        return False
    failpoints.at("leading")
    rarely = time.monotonic() - _rarely_at > RARELY_S
    if rarely:
        _rarely_at = time.monotonic()
    for name, work in _due(rarely):
        with step(name):
            work()
    return True


def _due(rarely: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """The steps of a round, with their names in alerts; ``rarely``: those for slow changes too."""
    yield "putting back what silent workers held", claims.sweep
    yield "promoting misses", lambda: promote_misses(postponed=rarely)
    yield "beginning further rounds", begin_rounds
    yield "settling re-validations", settle
    yield "draining the journal", lambda: drain_journal(JOURNAL_LINES)
    if rarely:
        yield "weighing again what was asked again", lambda: reweigh_asked_again(within_s=RARELY_S * 3)
        yield "following workers' environments", follow_workers
        yield "settling rebuilds", settle_rebuilds
        yield "asking for rebuilds", ask_for_rebuilds
        yield "withdrawing unapproved kernels", withdraw_unapproved
        yield "sweeping uploads", sweep_uploads
        yield "forgetting workers", _forget_workers
    yield "ringing idle workers", lambda: bell.ring(idle_with_work())


def _forget_workers() -> None:
    Worker.objects.filter(last_seen_at__lt=timezone.now() - FORGET_WORKERS).delete()


def lead(owner: str) -> bool:
    """Hold or take the leader's lease."""
    global _holder
    if _holder is None or _holder.owner != owner:
        _holder = Holder(NAME, owner, conf().leader_lease_s)
    return _holder.hold()


def resign(owner: str) -> None:
    """Let another worker lead at once."""
    Holder(NAME, owner, conf().leader_lease_s).resign()
    if _holder is not None:
        _holder.forget()


def idle_with_work() -> set[str]:
    """Capabilities with both claimable work and an idle live worker: these must be rung for."""
    paused = set(Pause.objects.values_list("capability", flat=True))
    if "*" in paused:
        return set()
    waiting = Exploration.objects.filter(state=State.QUEUED, target_id=OuterRef("target_id"))
    evaluations = waiting_evaluations().filter(target_id=OuterRef("target_id")).order_by()
    rechecks = waiting_rechecks().filter(target_id=OuterRef("target_id")).order_by()
    uploads = waiting_uploads().order_by()  # whoever it is
    work = Exists(waiting) | Exists(evaluations) | Exists(rechecks) | Exists(uploads)
    idle = Worker.objects.filter(alive(), work, doing="")
    return set(idle.values_list("target__capability", flat=True)) - paused
