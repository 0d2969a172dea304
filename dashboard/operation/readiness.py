"""Whether this process can serve: each dependency, really tried.

Without a broker the service is only degraded: lookups are answered, misses are kept, and the leader rings
again later. The same goes for failing periodic work: a load balancer that removed every web node for it would
stop the lookups.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Condition

from cachetools import TTLCache, cached
from django.contrib.auth.decorators import login_not_required
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from catalog import steps
from catalog.conf import conf, journal_folder
from tuning.conf import conf as tuning_conf
from tuning.queue.clock import database_now

logger = logging.getLogger(__name__)

BROKER_TIMEOUT_S = 2.0
MOST_SKEW_S = 5.0
STEPS_NAMED = 5
_MIGRATIONS_KEPT_S = 30.0


class NotReady(Exception):
    """What is missing, in one sentence for anybody."""


@dataclass(frozen=True)
class Finding:
    """One check. ``vital``: without it nothing can be served."""

    name: str
    vital: bool
    ok: bool
    took_ms: float
    detail: str = ""


@login_not_required
@require_safe
def readiness(request: HttpRequest) -> JsonResponse:
    """200 with ``ready`` or ``degraded``, 503 with ``not ready``; each check with its time."""
    found = findings()
    state = "ready"
    if not all(one.ok for one in found):
        state = "degraded" if all(one.ok for one in found if one.vital) else "not ready"
    checks = {
        one.name: {"ok": one.ok, "took_ms": round(one.took_ms, 2)}
        | ({"detail": one.detail} if one.detail else {})
        for one in found
    }
    answer = JsonResponse({"status": state, "checks": checks}, status=503 if state == "not ready" else 200)
    answer["Cache-Control"] = "no-store"
    return answer


def findings() -> list[Finding]:
    """Every check, tried now."""
    return [_tried(name, vital, check) for name, vital, check in CHECKS]


def _tried(name: str, vital: bool, check: Callable[[], None]) -> Finding:
    began = time.perf_counter()
    detail = ""
    try:
        check()
    except NotReady as missing:
        detail = str(missing)
    except Exception as error:
        # What libraries say can hold addresses and names: it is logged, not shown.
        detail = f"The check failed: {type(error).__name__}."
        logger.warning("Not ready: %s: %s", name, error)
    return Finding(name, vital, not detail, (time.perf_counter() - began) * 1e3, detail)


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


@cached(TTLCache(maxsize=1, ttl=_MIGRATIONS_KEPT_S), condition=Condition())
def _migrations() -> None:
    """Reading all migrations takes a moment, so a good answer holds for half a minute."""
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        raise NotReady(f"{len(missing)} migrations are not applied: run manage.py migrate.")


def _clock() -> None:
    """Leases go by the database's clock; keys, sessions and links end by this node's."""
    ahead_s = (timezone.now() - database_now()).total_seconds()
    if abs(ahead_s) > MOST_SKEW_S:
        where = "ahead of" if ahead_s > 0 else "behind"
        raise NotReady(f"This node's clock is {abs(ahead_s):.0f} s {where} the database's: set it.")


def _writable(folder: Path, what: str) -> None:
    """Writes a file as the service would: permissions, a full disk and a read-only mount all show."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".ready-") as probe:
            probe.write(b"ready")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        logger.warning("Not ready: the %s at %s cannot be written: %s", what, folder, error)
        raise NotReady(f"The {what} cannot be written: {os.strerror(error.errno or 0)}.") from error


def _broker() -> None:
    if not tuning_conf().broker_url:
        _writable(conf().home / "broker" / "bells", "broker's folder")
        return
    from tuning.celery import app

    with app.connection_for_write() as broker:
        broker.ensure_connection(max_retries=1, timeout=BROKER_TIMEOUT_S, interval_start=0.1)


def _steps() -> None:
    """Periodic work: the leader or the courier notes repeated failures."""
    failing = list(steps.lasting().order_by("step").values_list("step", flat=True)[:STEPS_NAMED])
    if failing:
        raise NotReady(f"What fails again and again: {', '.join(failing)}. The alerts say why.")


CHECKS: tuple[tuple[str, bool, Callable[[], None]], ...] = (
    ("database", True, _database),
    ("migrations", True, _migrations),
    ("clock", False, _clock),
    ("journal", True, lambda: _writable(journal_folder(), "journal")),
    ("artifacts", True, lambda: _writable(conf().store, "artifact store")),
    ("broker", False, _broker),
    ("steps", False, _steps),
)
