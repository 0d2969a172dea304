"""Renews a worker's leases, in a thread of its own. Compilers and libraries run in child processes, so
nothing holds Python's lock for long here."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from typing import Any

from django.db import DatabaseError, close_old_connections

from catalog import failpoints
from tuning.conf import conf
from tuning.queue.held import HeldRow, StaleLease, renew

logger = logging.getLogger(__name__)


class Keeper:
    """Renews the leases of what a worker holds, and notices when one was lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[HeldRow[Any]] = set()
        self._lost: set[HeldRow[Any]] = set()
        self._renewed_at = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Keeper:
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def hold(self, held: Iterable[HeldRow[Any]]) -> None:
        with self._lock:
            self._held.update(held)
            self._renewed_at = time.monotonic()

    def drop(self, claim: HeldRow[Any]) -> None:
        with self._lock:
            self._held.discard(claim)
            self._lost.discard(claim)

    @property
    def held(self) -> list[HeldRow[Any]]:
        with self._lock:
            return list(self._held)

    def check(self, claim: HeldRow[Any]) -> None:
        """Raise StaleLease if this claim is known to be lost, or could not be renewed for too long."""
        with self._lock:
            silent_s = time.monotonic() - self._renewed_at
            lost = claim in self._lost or silent_s > conf().lease_s
        if lost:
            raise StaleLease(f"{claim} was lost.")

    def _run(self) -> None:
        while not self._stop.wait(conf().lease_s / 4):
            held = self.held
            if not held:
                continue
            try:
                failpoints.at("heartbeat")
                lost = renew(held)
            except DatabaseError as error:
                logger.warning("Leases could not be renewed (%s); trying again.", error)
                close_old_connections()
                continue
            with self._lock:
                self._renewed_at = time.monotonic()
                self._lost.update(claim for claim in lost if claim in self._held)
            close_old_connections()
