"""Records the courier's chores, rarely: an idle service hardly writes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.db.models import F
from django.utils import timezone

from dashboard.operation.models import ChoreRun

EVERY_S = 10.0


@dataclass
class _Pending:
    runs: int = 0
    failures: int = 0
    written_at: float = 0.0
    failing: bool = False


class Logbook:
    """One courier's; collects runs and writes every ten seconds, a failure and its end at once."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}

    def note(self, name: str, took_s: float, error: str = "") -> None:
        pending = self._pending.setdefault(name, _Pending(written_at=-EVERY_S))
        pending.runs += 1
        pending.failures += bool(error)
        changed = pending.failing != bool(error)
        pending.failing = bool(error)
        if changed or time.monotonic() - pending.written_at >= EVERY_S:
            self._write(name, pending, took_s, error)

    def _write(self, name: str, pending: _Pending, took_s: float, error: str) -> None:
        now = timezone.now()
        fields = {"last_run_at": now, "last_took_s": took_s, "last_error": error[:300]}
        if not error:
            fields["last_success_at"] = now
        ChoreRun.objects.get_or_create(name=name, defaults={"last_run_at": now})
        ChoreRun.objects.filter(name=name).update(
            runs=F("runs") + pending.runs, failures=F("failures") + pending.failures, **fields
        )
        self._pending[name] = _Pending(written_at=time.monotonic(), failing=bool(error))
