"""How long after a best is published it is answered: the database is asked and changed from outside."""

from __future__ import annotations

import json
import sqlite3
import statistics
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

TIMES = 12
_PATIENCE_S = 10.0


def operator_keys(environment: Mapping[str, str], count: int) -> list[str]:
    """Of operators that have a best."""
    with _connected(environment) as connection:
        rows = connection.execute(
            "SELECT key FROM catalog_operator WHERE id IN "
            f"(SELECT operator_id FROM catalog_best WHERE rank = 0 ORDER BY id LIMIT {count})"
        ).fetchall()
    return [key for (key,) in rows]


def measure_publishing(url: str, key: str, environment: Mapping[str, str]) -> dict[str, float]:
    """Seconds from the commit until an answer says the new label; asked every few milliseconds."""
    operator = url.split("/operators/")[1].split("/")[0]
    took = []
    for number in range(TIMES):
        label = f"synthetic, published {time.time_ns()} {number}"
        with _connected(environment) as connection:
            connection.execute(
                f"UPDATE catalog_best SET label = '{label}' WHERE rank = 0 AND operator_id = "
                f"(SELECT id FROM catalog_operator WHERE key = '{operator}')"
            )
            connection.commit()
        began = time.monotonic()
        while _label(url, key) != label:
            assert time.monotonic() - began < _PATIENCE_S, "the new best was never answered"
        took.append(time.monotonic() - began)
        time.sleep(0.037 * (number % 7))  # not always at the same moment between two looks
    return {"median": round(statistics.median(took), 3), "max": round(max(took), 3)}


def _label(url: str, key: str) -> str:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        label: str = json.load(answer)["best"]["label"]
    return label


@contextmanager
def _connected(environment: Mapping[str, str]) -> Iterator[Any]:
    """With ``execute`` and ``commit``, whichever it is."""
    connection: Any
    if url := environment.get("DATABASE_URL"):
        connection = psycopg.connect(url)
    else:
        connection = sqlite3.connect(Path(environment["OPATLAS_HOME"]) / "opatlas.sqlite3", timeout=20)
    try:
        yield connection
    finally:
        connection.close()
