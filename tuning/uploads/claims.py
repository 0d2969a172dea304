"""Claims on uploads: compare-and-swap, a lease on the database's clock, a fence on every write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from tuning.conf import conf
from tuning.queue.claims import EVERYTHING, UNHELD, StaleLease
from tuning.queue.clock import now_in
from tuning.uploads import storage
from tuning.uploads.models import Upload, UploadState


@dataclass(frozen=True, slots=True)
class UploadClaim:
    """One upload held by one worker process."""

    upload_id: int
    fence: int

    @property
    def pk(self) -> int:
        return self.upload_id

    def row(self) -> QuerySet[Upload]:
        return Upload.objects.filter(pk=self.upload_id, fence=self.fence, state=UploadState.RUNNING)

    def update(self, **values: Any) -> None:
        """Write to the upload; raises StaleLease, and writes nothing, when the claim was lost: it was
        cancelled, or another worker took it over."""
        if self.row().update(**values) != 1:
            raise StaleLease(f"Upload {self.upload_id} is no longer held under fence {self.fence}.")

    def load(self) -> Upload:
        found = self.row().select_related("organisation", "api_key", "target", "setting").first()
        if found is None:
            raise StaleLease(f"Upload {self.upload_id} is no longer held under fence {self.fence}.")
        return found

    @contextmanager
    def ending(self, state: UploadState, reason: str = "", **columns: Any) -> Iterator[dict[str, Any]]:
        """A transaction in which the upload ends, with what is written to the given columns meanwhile; its
        bytes are removed after it."""
        with transaction.atomic():
            yield columns
            values = {**UNHELD, "state": state, "reason": reason[:1000], "finished_at": Now(), **columns}
            self.update(**values)
        storage.remove(self.upload_id)

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
        unchanged: dict[str, Any] = {"pk": row.pk, "fence": row.fence, "state": row.state}
        if row.state == UploadState.RUNNING:
            unchanged["lease_expires_at__lt"] = Now()  # it may have been renewed since we looked
        taken = Upload.objects.filter(**unchanged).update(
            state=UploadState.RUNNING,
            fence=F("fence") + 1,
            tries=F("tries") + 1,
            doing="claimed",
            lease_owner=owner[:100],
            lease_expires_at=now_in(conf().lease_s),
            started_at=Now(),
        )
        if taken:
            return UploadClaim(row.pk, row.fence + 1)
    return None


RELEASED: Mapping[str, Any] = {**UNHELD, "state": UploadState.WAITING, "tries": F("tries") - 1}
"""Columns of what is given back undone: the worker stops."""
