"""What a day of traffic takes for ever, and what is left of it once its month is closed: a part of ``make
bench ONLY=service``. ``python -m bench.service.growth`` is one database's turn, in a process of its own.

The stated load: ``HITS`` hits a day, spread over its hours, ``OPERATORS`` operators, ``JOBS`` jobs of one
organisation.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from bench.lookup import manage
from bench.service.databases import databases

HITS, OPERATORS, JOBS = 100_000, 300, 20


def measure_growth(engine: str) -> dict[str, Any]:
    """``engine``: sqlite or postgres. Bytes of the database for one day before and after retention, and how
    many seconds of the courier's time that took."""
    with tempfile.TemporaryDirectory(prefix="opatlas-bench-") as home, databases(engine) as (variables,):
        environment = {
            "OPATLAS_HOME": home,
            "OPATLAS_LOG": "WARNING",
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
            **variables,
        }
        manage(environment, "migrate", "--verbosity", "0")
        found: dict[str, Any] = json.loads(manage(environment, "-m", "bench.service.growth"))
    return found


def main() -> None:
    import django

    django.setup()
    from django.utils import timezone

    from catalog.conf import conf
    from catalog.models import Usage
    from catalog.rollups import rollups
    from catalog.usage import closing, partitions
    from catalog.usage.draining import drain_journal

    day = partitions.month_after(timezone.now(), -conf().usage_months - 1)
    partitions.make_ahead(day)
    _serve(day)
    empty = _size()
    drain_journal()
    rollups.refresh_rollups()
    before = _size()
    began = time.monotonic()
    while Usage.objects.exists() or closing.sum_by_day():
        closing.keep_by_rule()
    took_s = time.monotonic() - began
    found = {
        "bytes_a_day": before - empty,
        "bytes_a_day_after_retention": _size() - empty,
        "retention_s": round(took_s, 1),
        "hits_a_day": HITS,
    }
    print(json.dumps(found))


def _serve(day: datetime) -> None:
    """Into the journal, as lookups of eight operators each write it."""
    from catalog.registry import default_organisation, register_operator
    from catalog.usage import journal
    from opatlas.identity import Node, Operator, Value

    chance = random.Random(1)
    organisation = default_organisation().pk
    sizes = [Value("float32", (64 + number,)) for number in range(OPERATORS)]
    relu = (Node("Relu", (0,), (1,)),)
    relus = [Operator(inputs=(size,), nodes=relu, outputs=(1,), produced=(size,)) for size in sizes]
    operators = [register_operator(one).pk for one in relus]
    for number in range(HITS // 8):
        at = day + timedelta(seconds=86_400 * number * 8 / HITS)
        hits = [
            (operator, None, "onednn", "library", 50.0, 100.0, 1.0, False)
            for operator in chance.sample(operators, 8)
        ]
        job = f"job {chance.randrange(JOBS)}"
        line = {"at": round(at.timestamp(), 3), "org": organisation, "job": job, "hits": hits, "misses": []}
        journal.append(line)


def _size() -> int:
    """Bytes, without what is free within."""
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("VACUUM FULL")
            cursor.execute("SELECT pg_database_size(current_database())")
            return int(cursor.fetchone()[0])
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.fetchall()
        cursor.execute("VACUUM")
        return Path(connection.settings_dict["NAME"]).stat().st_size


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    main()
