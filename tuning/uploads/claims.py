"""Claims on uploads: compare-and-swap, a lease on the database's clock, a fence on every write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from catalog import failpoints
from tuning.queue.claims import EVERYTHING
from tuning.queue.held import UNHELD, HeldRow, take
from tuning.uploads import storage
from tuning.uploads.models import Upload, UploadState


@dataclass(frozen=True, slots=True)
class UploadClaim(HeldRow[Upload]):
    """One upload held by one worker process: lost where it was cancelled."""

    model = Upload
    related = ("organisation", "api_key", "target", "setting")

    @contextmanager
    def ending(self, state: UploadState, reason: str = "", **columns: Any) -> Iterator[dict[str, Any]]:
        """A transaction in which the upload ends, with what is written to the given columns meanwhile; its
        bytes are removed after it."""
        passed = {"upload_id": self.pk, "fence": self.fence, "state": state}
        with transaction.atomic():
            yield columns
            values = {**UNHELD, "state": state, "reason": reason[:1000], "finished_at": Now(), **columns}
            self.update(**values)
            failpoints.at("upload-ending", **passed)
        failpoints.at("upload-ended", **passed)
        storage.remove(self.pk)

    def end(self, state: UploadState, reason: str, **columns: Any) -> None:
        with self.ending(state, reason, **columns):
            pass


def waiting(target_id: int | None = None) -> QuerySet[Upload]:
    """What a worker may claim, the oldest first, whatever its target; those whose worker fell silent count
    again."""
    silent = Q(state=UploadState.RUNNING, lease_expires_at__lt=Now())
    return Upload.objects.filter(Q(state=UploadState.WAITING) | silent).order_by("pk")


def claim(owner: str, target_id: int | None = None, of: Q = EVERYTHING) -> UploadClaim | None:
    """Take the oldest that waits (``of``: of some organisation); None where there is none."""
    for row in waiting().filter(of).only("pk", "fence", "state")[:5]:
        if fence := take(row, owner, tries=F("tries") + 1, doing="claimed", started_at=Now()):
            failpoints.at("upload-claimed", upload_id=row.pk, fence=fence)
            return UploadClaim(row.pk, fence)
    return None


RELEASED: Mapping[str, Any] = {**UNHELD, "state": UploadState.WAITING, "tries": F("tries") - 1}
"""Columns of what is given back undone: the worker stops."""
