"""Taking uploads in: a row, and bytes in the store. Nothing is read here of what they mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from catalog import failpoints, models
from catalog.conf import WAIT_POLL_S
from catalog.errors import QuotaUsed, RequestError
from catalog.lookup.lookups import may_wait
from catalog.steps import each
from tuning.conf import conf
from tuning.doorbell.bell import bell
from tuning.graph.apart import content_sha256
from tuning.models import Worker
from tuning.queue.clock import alive, now_in
from tuning.queue.held import UNHELD, UNLEASED
from tuning.uploads import storage
from tuning.uploads.models import OPEN, Upload, UploadKind, UploadState

MOST_KEPT = 100
"""Uploads of an organisation that have ended: the latest are kept, without their bytes."""
MOST_DIMS = 64
EMPTY = "The upload is empty: send an ONNX file, or an operator list as JSON."
GIVEN_UP = "The upload was given up before all of it was there: send it again."


@dataclass(frozen=True)
class UploadWish:
    """What is said of an upload beside its bytes. Without a target it is a served one's, when it is taken
    apart."""

    kind: UploadKind = UploadKind.MODEL
    name: str = ""
    dims: Mapping[str, int] | None = None
    as_float32: bool = False
    target: models.Target | None = None
    setting: models.Setting | None = None


def receive(
    read: Callable[[int], bytes],
    wish: UploadWish,
    organisation: models.Organisation,
    api_key: models.ApiKey | None,
    most_bytes: int,
) -> Upload:
    """Take an upload in; ``read(n)`` gives its next bytes, none at its end. It then waits for a worker.

    Raises :class:`QuotaUsed` before a byte is read, and what :func:`storage.keep` raises; then nothing of it
    is left.
    """
    row = _entered(wish, organisation, api_key)
    try:
        size, digest = storage.keep(row.pk, _renewing(row.pk, read), most_bytes)
        failpoints.at("upload-received")
        if not size:
            raise RequestError(EMPTY)
        sha256 = content_sha256(digest, row.dims, row.as_float32)
        received = {**UNLEASED, "state": UploadState.WAITING, "size_bytes": size, "sha256": sha256}
        if not _receiving(row.pk).update(**received):
            raise storage.TooSlow(GIVEN_UP)
    except BaseException:
        Upload.objects.filter(pk=row.pk).delete()
        storage.remove(row.pk)
        raise
    ring()
    row.refresh_from_db()
    return row


def cancel(row: Upload) -> bool:
    """Stop it wherever it is; False where it has ended already. A worker that is at it notices."""
    stopped = Upload.objects.filter(pk=row.pk, state__in=OPEN).update(
        **UNHELD, state=UploadState.CANCELLED, fence=F("fence") + 1, finished_at=Now()
    )
    storage.remove(row.pk)
    return bool(stopped)


def await_end(row: Upload, wait_s: float) -> Upload:
    """The upload as it is when it has ended, or after so long; at once where no worker is there, or many
    requests wait already."""
    if wait_s <= 0 or not Worker.objects.filter(alive()).exists():
        return row
    with may_wait() as may:
        until = time.monotonic() + wait_s
        while may and row.is_open and time.monotonic() < until:
            time.sleep(WAIT_POLL_S)
            row.state = Upload.objects.values_list("state", flat=True).get(pk=row.pk)
    row.refresh_from_db()
    return row


def ring() -> None:
    """Wake the workers: any of them takes uploads apart."""
    bell.ring(set(Worker.objects.filter(alive()).values_list("target__capability", flat=True)))


def sweep() -> None:
    """End what was never received in full, and remove the bytes of what has ended."""
    given_up = Upload.objects.filter(state=UploadState.RECEIVING, lease_expires_at__lt=Now())
    given_up.update(
        **UNLEASED, state=UploadState.REFUSED, reason="It was not received in full.", finished_at=Now()
    )
    if numbers := storage.kept():
        wanted = set(Upload.objects.filter(pk__in=numbers, state__in=OPEN).values_list("pk", flat=True))
        each("removing an upload's bytes", set(numbers) - wanted, storage.remove)


def _receiving(number: int) -> QuerySet[Upload]:
    """It, while it is still being received."""
    return Upload.objects.filter(pk=number, state=UploadState.RECEIVING)


def _renewing(number: int, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """``read`` that renews the lease of what is received, so that what a web process that was killed began
    leaves its quota within one; raises :class:`storage.TooSlow` where it was lost."""
    renewed_at = time.monotonic()

    def reading(count: int) -> bytes:
        nonlocal renewed_at
        chunk = read(count)
        if time.monotonic() - renewed_at > conf().lease_s / 4:
            renewed_at = time.monotonic()
            if not _receiving(number).update(lease_expires_at=now_in(conf().lease_s)):
                raise storage.TooSlow(GIVEN_UP)
        return chunk

    return reading


def _entered(wish: UploadWish, organisation: models.Organisation, api_key: models.ApiKey | None) -> Upload:
    """The row, within the quotas of the key and the organisation, which are counted one after the other."""
    names = list(wish.dims or {})
    if len(names) > MOST_DIMS or not all(len(name) <= 200 and name.isprintable() for name in names):
        raise RequestError(
            f"At most {MOST_DIMS} dimensions are given, with names of at most 200 printable characters.",
            "dims",
        )
    with transaction.atomic():
        models.Organisation.objects.select_for_update(no_key=True).get(pk=organisation.pk)
        waiting = Upload.objects.filter(organisation=organisation, state__in=OPEN)
        of_key = waiting.filter(api_key=api_key).count()
        if of_key >= conf().uploads_per_key:
            raise _used("This key has" if api_key else "Your organisation's pages have", of_key)
        if (count := waiting.count()) >= conf().uploads_per_organisation:
            raise _used("Your organisation has", count)
        old = Upload.objects.filter(organisation=organisation).exclude(state__in=OPEN).order_by("-pk")
        Upload.objects.filter(pk__in=list(old.values_list("pk", flat=True)[MOST_KEPT:])).delete()
        columns = vars(wish) | {"dims": dict(wish.dims or {}), "lease_expires_at": now_in(conf().lease_s)}
        return Upload.objects.create(organisation=organisation, api_key=api_key, **columns)


def _used(who: str, count: int) -> QuotaUsed:
    return QuotaUsed(
        f"{who} {count} upload{'s' if count > 1 else ''} that wait or are taken apart, which is the quota: "
        "send this one when one of them has ended, or cancel one."
    )
