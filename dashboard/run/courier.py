"""The courier: one process for work that neither a request nor a worker should wait for.

It refreshes the rollups, gathers notifications and delivers what leaves the service (mail, webhooks, push).
Chores are named by their dotted path and imported when the courier starts; each is a function without
arguments that may be killed anywhere and repeated. One courier at a time works, under a lease; others stand
by.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import DatabaseError, close_old_connections
from django.utils.module_loading import import_string

from catalog import alive
from catalog.steps import step
from dashboard.operation.chores import Logbook
from tuning.models import Lease
from tuning.queue.leases import Holder
from tuning.worker.forerunners import lives

logger = logging.getLogger(__name__)

NAME = "courier"
CHORE_S = 600.0  # the longest that a chore may take: then the courier gives no more signs of life


@dataclass(frozen=True)
class Chore:
    """``call`` is a dotted path. A chore that fails is logged, and tried again when it is next due."""

    call: str
    every_s: float

    @property
    def name(self) -> str:
        """As alerts call it."""
        return self.call.rpartition(".")[2].replace("_", " ")


CHORES = (
    Chore("catalog.rollups.rollups.keep_rollups_fresh", 2.0),
    Chore("catalog.best.scrubbing.scrub", 10.0),
    Chore("dashboard.operation.retention.forget_by_rule", 10.0),
    Chore("dashboard.operation.retention.forget_failures", 60.0),
    Chore("tuning.failures.backlog.group_backlog", 5.0),
    Chore("dashboard.operation.releases.note_releases", 30.0),
    Chore("dashboard.operation.growth.sampling.sample_when_due", 600.0),
    Chore("catalog.lookup.repeating.forget_old_answers", 600.0),
    Chore("catalog.lookup.recalls.forget_old_recalls", 10.0),
    Chore("catalog.usage.draining.forget_old_segments", 3600.0),
    Chore("catalog.steps.forget_old_failures", 600.0),
    Chore("catalog.usage.closing.keep_by_rule", 10.0),
    Chore("dashboard.billing.agreements.forget_old_agreements", 3600.0),
    Chore("catalog.usage.succession.forget_old_successions", 3600.0),
    Chore("tuning.statistics.paid_back.refresh_when_due", 5.0),
    Chore("tuning.statistics.efforts.refresh_efforts_when_due", 5.0),
    Chore("tuning.statistics.limits.refresh_limits_when_due", 5.0),
    Chore("dashboard.notifications.alerts.watching.watch", 5.0),
    Chore("dashboard.notifications.find.gathering.gather", 2.0),
    Chore("dashboard.notifications.delivering.deliver", 2.0),
    Chore("dashboard.webhooks.delivering.deliver", 1.0),
)


class Courier:
    """Runs chores when they are due."""

    def __init__(self, chores: tuple[Chore, ...] = CHORES) -> None:
        self._calls: list[tuple[Chore, Callable[[], object]]] = [
            (chore, import_string(chore.call)) for chore in chores
        ]
        self._due_at = dict.fromkeys(chores, 0.0)
        self._holder = Holder(NAME, f"{socket.gethostname()}-{os.getpid()}", lease_s=30.0)
        self._logbook = Logbook()
        self._got_on_at = time.monotonic()
        self.stop = threading.Event()

    def run(self) -> None:
        """Until ``stop`` is set."""
        self._succeed()
        alive.beat(NAME)  # before the first chore: who hangs in that one is no longer one that starts
        threading.Thread(target=self._live, name="alive", daemon=True).start()
        while not self.stop.is_set():
            self._got_on_at = time.monotonic()
            try:
                if self._holder.hold():
                    self.round()
            except DatabaseError as error:
                logger.warning("The courier cannot reach the database (%s); trying again.", error)
            close_old_connections()
            self.stop.wait(0.5)
        self._holder.resign()

    def _succeed(self) -> None:
        """Take over from a courier that was killed on this machine without waiting for its lease."""
        try:
            owner = Lease.objects.filter(name=NAME).values_list("owner", flat=True).first() or ""
            host, _, pid = owner.rpartition("-")
            if host == socket.gethostname() and pid.isdigit() and not lives(int(pid)):
                Holder(NAME, owner, lease_s=0).resign()
        except DatabaseError as error:
            logger.warning("The courier cannot reach the database yet (%s).", error)

    def _live(self) -> None:
        """Give signs of life while no chore hangs, and while standing by."""
        while not self.stop.wait(alive.EVERY_S):
            if time.monotonic() - self._got_on_at < CHORE_S:
                alive.beat(NAME)

    def round(self) -> None:
        """Every chore that is due, once."""
        for chore, call in self._calls:
            if self.stop.is_set() or time.monotonic() < self._due_at[chore]:
                continue
            began = self._got_on_at = time.monotonic()
            with step(f"the chore {chore.name}") as done:
                call()
            self._logbook.note(chore.call, time.monotonic() - began, done.error)
            # Counted from its end: a slow chore leaves room for the others.
            self._due_at[chore] = time.monotonic() + chore.every_s
            self._holder.hold()
