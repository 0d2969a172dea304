"""JSON lines in a few files of bounded size: what a slice knows of those before it, and what comes home."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST_BYTES, MOST_FILES = 15 << 20, 4
"""What a borrowed machine gives back: at most 8 files of 16 MiB; the others are for what was printed, the
steps, the ceilings and the figures."""

CLOCK = "wall"
"""What ratios are of: the parent's clock. What the device took by its own is among each entry's facts."""
NOT_YET = "measured before it was asked for"


class Full(Exception):
    """The files hold as much as can travel: one sentence."""


class Lines:
    """``<name>-0.jsonl`` and so on in ``folder``. A killed slice leaves at most one line that is cut off,
    which is passed over."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def append(self, document: Mapping[str, Any]) -> None:
        """Raises :class:`Full`."""
        line = (json.dumps(document, separators=(",", ":")) + "\n").encode()
        for number in range(MOST_FILES):
            path = self.folder / f"{self.name}-{number}.jsonl"
            size = path.stat().st_size if path.exists() else 0
            if size + len(line) <= MOST_BYTES:
                self.folder.mkdir(parents=True, exist_ok=True)
                with path.open("ab") as file:
                    if size and not path.read_bytes().endswith(b"\n"):
                        file.write(b"\n")
                    file.write(line)
                return
        raise Full(
            f"{MOST_FILES} files of {MOST_BYTES >> 20} MiB are full: take them home and empty {self.folder}."
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob(f"{self.name}-*.jsonl")):
            yield from read_lines(path)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Those that are whole."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(document, dict):
                yield document


def best_entry(entries: Sequence[Mapping[str, Any]]) -> int:
    """Of the default (0) and those of the final, the fastest, by the clock that counts."""
    final = [
        number
        for number, one in enumerate(entries)
        if one["status"] == "ok" and (number == 0 or one["facts"].get("final"))
    ]
    return max(final, key=lambda number: (entries[number]["evidence"]["ratio_to_default"], -number))
