"""Records as files in a search's work folder: what it is given, and what it has learnt."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tuning.routes.base import SearchRecord

GIVEN, LEARNT = "given.json", "records.json"
MOST = 8
"""Records that are kept of one operator."""
_MOST_GIVEN = 32
_MOST_BYTES = 4 << 20


def write(path: Path, records: Sequence[SearchRecord]) -> None:
    """The best of the records, the best first; given ones all, in their order."""
    chosen = list(records) if path.name == GIVEN else sorted(records, key=lambda one: one.time_us)[:MOST]
    path.write_text(json.dumps([asdict(one) for one in chosen[:_MOST_GIVEN]]))


def read(path: Path) -> list[SearchRecord]:
    """The records in a file; none where it is missing or is no such file (a sandbox's child wrote it)."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    entries = document if isinstance(document, list) else []
    return [record for entry in entries[:_MOST_GIVEN] if (record := _record(entry)) is not None]


def _record(entry: Any) -> SearchRecord | None:
    try:
        record = SearchRecord(dict(entry["record"]), float(entry["time_us"]), str(entry["origin"]))
    except (KeyError, TypeError, ValueError):
        return None
    return record if math.isfinite(record.time_us) and record.time_us > 0 else None
