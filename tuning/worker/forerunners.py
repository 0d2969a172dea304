"""Dead workers of this name on this machine: their successor need not wait for their leases."""

from __future__ import annotations

import os
import socket

from django.db.models.functions import Now

from tuning.models import Worker
from tuning.queue import claims


def bury(name: str) -> int:
    """Put back what they held and note that they are gone; returns how many. ``name`` is Celery's with its
    main process's number, ``worker0@host#123``: two workers of one name may run beside each other, so a
    process that may still live keeps its lease."""
    base, _, _ = name.rpartition("#")
    rows = Worker.objects.filter(name__startswith=f"{base}#", host=socket.gethostname(), stopped_at=None)
    dead = [row for row in rows.exclude(name=name) if not lives(row.pid)] if base else []
    for row in dead:
        claims.sweep(owner_prefix=f"{row.name}/")
        Worker.objects.filter(pk=row.pk).update(stopped_at=Now(), doing="")
    return len(dead)


def lives(pid: int) -> bool:
    """Whether this machine has such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, perhaps of a later process with this number
    return True
