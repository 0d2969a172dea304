"""Deletes expired data by rule: ended sessions, logs of old trials, unreferenced artifacts, old causes of
failure.

These are chores of the courier. Each call does one batch of each, in short transactions, so that nobody
waits; its position in a large table is a row.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta

from django.contrib.sessions.models import Session
from django.db import IntegrityError
from django.db.models import ProtectedError
from django.utils import timezone

from catalog.best.artifacts import file_path
from catalog.models import Artifact, Implementation, SignIn
from catalog.steps import each, step
from dashboard.conf import conf
from dashboard.notifications.models import Alert, Happening
from dashboard.operation.models import RetentionMark
from tuning.failures import forgetting
from tuning.models import Trial

BATCH = 500
GRACE = timedelta(days=1)
"""How long an artifact may be without an implementation, which is written after it."""


def forget_by_rule() -> None:
    """One batch of everything."""
    for name, forget in (
        ("forgetting sessions", forget_sessions),
        ("forgetting trials' logs", forget_trial_logs),
        ("forgetting artifacts of nothing", forget_unreferenced),
    ):
        with step(name):
            forget()


def forget_sessions() -> int:
    """Those that have run out, and that somebody was logged in there; how many."""
    ended = Session.objects.filter(expire_date__lt=timezone.now()).order_by("expire_date")
    keys = list(ended.values_list("pk", flat=True)[:BATCH])
    SignIn.objects.filter(session_key__in=keys).delete()
    return Session.objects.filter(pk__in=keys).delete()[0] if keys else 0


def forget_trial_logs() -> int:
    """What compilers and candidates said in trials of long ago; the trials stay. How many were gone over."""
    before = timezone.now() - timedelta(days=conf().trial_logs_days)
    mark = _mark("trial logs")
    found = Trial.objects.filter(pk__gt=mark.position).order_by("pk").values_list("pk", "created_at")[:BATCH]
    old = [pk for pk, created_at in found if created_at < before]
    Trial.objects.filter(pk__in=old).exclude(log_tail="").update(log_tail="")
    _move(mark, max(old, default=mark.position))
    return len(old)


def forget_unreferenced() -> int:
    """Artifacts that no implementation has any more, with files that no other names; how many."""
    mark, before = _mark("artifacts"), timezone.now() - GRACE
    numbers = list(
        Artifact.objects.filter(pk__gt=mark.position).order_by("pk").values_list("pk", flat=True)[:BATCH]
    )
    used = Implementation.objects.filter(artifact__in=numbers).values("artifact")
    gone = Artifact.objects.filter(pk__in=numbers, created_at__lt=before).exclude(pk__in=used)
    forgotten = sum(each("forgetting an artifact of nothing", gone, _forget))
    _move(mark, max(numbers, default=0))  # from the beginning again, once all were gone over
    return forgotten


def forget_failures() -> int:
    """Causes of failure that were not seen for long; how many. One of which an alert is open stays."""
    told = Alert.objects.filter(rule=Happening.NEW_FAILURE, ended_at=None).values_list("cause", flat=True)
    return forgetting.forget_failures({int(cause.rpartition(":")[2]) for cause in told})


def _forget(row: Artifact) -> bool:
    try:
        row.delete()
    except (ProtectedError, IntegrityError):  # an implementation got it meanwhile
        return False
    _remove_files(row.manifest.get("files", {}).values())
    return True


def _remove_files(digests: Iterable[str]) -> None:
    """Storing what exists already updates its time (``catalog.best.artifacts.store_file``): recently wanted
    files stay, though no row names them yet."""
    for sha256 in digests:
        path = file_path(sha256)
        try:
            is_old = path.stat().st_mtime < time.time() - GRACE.total_seconds()
        except OSError:
            continue
        if is_old and not Artifact.objects.filter(manifest__contains=sha256).exists():
            path.unlink(missing_ok=True)


def _mark(name: str) -> RetentionMark:
    return RetentionMark.objects.get_or_create(name=name)[0]


def _move(mark: RetentionMark, position: int) -> None:
    if position != mark.position:
        RetentionMark.objects.filter(pk=mark.pk).update(position=position)
