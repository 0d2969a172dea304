"""Adds machine code to bests: done by idle workers, and one after each turn.

New bests come first; then, once in a process's life, all others from the newest to the oldest, including
those that no worker could read so far (a tool may be installed now).
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.utils import timezone

from catalog.best import machine_code
from catalog.errors import DamagedArtifact, StoreError, UnvouchedArtifact
from catalog.models import Implementation
from tuning.explore import scratch
from tuning.explore.results import artifact_from_catalogue
from tuning.explore.workshop import Workshop
from tuning.measure.reading import CodeListing
from tuning.queue.clock import DATABASE_GONE
from tuning.queue.held import Stopping

logger = logging.getLogger(__name__)

OVERLAP = timedelta(minutes=5)
"""The publisher's moment is before its commit, and perhaps by another clock."""


class CodeReader:
    """One process's progress through its target's bests."""

    def __init__(self, target_id: int) -> None:
        self.target_id = target_id
        self._looked_at = timezone.now()
        self._waiting: list[int] = []  # implementations
        self._below: int | None = None  # of the bests: those from here on were looked at
        self._all_seen = False
        self._unreadable = set[int]()  # by this process

    def step(self, workshop: Workshop) -> bool:
        """Read one, or look for more; False where nothing is left to read."""
        found = self._new() or self._old()
        if found is None:
            return False
        if found and found not in self._unreadable and (row := machine_code.to_read(found)) is not None:
            listing = _listed(workshop, row)
            if listing.why_not:
                self._unreadable.add(found)
            machine_code.keep_code(row, listing.text, listing.lines, listing.tool, listing.why_not)
        return True

    def _new(self) -> int | None:
        since: datetime = self._looked_at - OVERLAP
        now = timezone.now()
        found = machine_code.unread_since(self.target_id, since)
        if len(found) <= 1:  # of many the rest is found again
            self._looked_at = now
        return found[0] if found else None

    def _old(self) -> int | None:
        """0: none of those looked at; None: all were."""
        if not self._waiting and not self._all_seen:
            self._waiting, self._below = machine_code.unread_before(self.target_id, self._below)
            self._all_seen = self._below is None
        if self._waiting:
            return self._waiting.pop(0)
        return None if self._all_seen else 0


def _listed(workshop: Workshop, row: Implementation) -> CodeListing:
    try:
        with scratch.folder_of_work(workshop.home) as folder:
            return workshop.laboratory.list_code(artifact_from_catalogue(row.artifact, folder / "artifact"))
    except (DamagedArtifact, UnvouchedArtifact, StoreError) as error:
        logger.warning("The machine code of %s is not read: %s", row, error)
        return CodeListing(why_not="its artifact does not verify there")
    except OSError as error:
        logger.warning("The machine code of %s is not read: %s", row, error)
        return CodeListing(why_not="there was no room to copy its artifact")
    except (Stopping, *DATABASE_GONE):
        raise
    except Exception:
        logger.exception("The machine code of %s is not read.", row)
        return CodeListing(why_not="the service failed to read it")
