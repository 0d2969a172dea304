"""For which judge its whole suites were green last: green.json, which ``make test-cheats`` writes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GREEN = Path(__file__).with_name("green.json")


@dataclass(frozen=True)
class Suite:
    """Tests of which by day one a mechanism runs, and the files and folders that decide what they say."""

    tests: tuple[str, ...]
    depends_on: tuple[str, ...]


CHEATS = (
    "conftest", "evading", "honest", "incomplete", "remembering", "table", "test_cheats", "trespassing",
    "unusual",
)  # fmt: skip
JUDGE = ("tuning/measure", "opatlas/noise.py", "tests/tuning/measure/kernels.py")

SUITES = {
    "cheats": Suite(
        ("tests/hostile/cheats/test_cheats.py",),
        (*JUDGE, *(f"tests/hostile/cheats/{name}.py" for name in CHEATS)),
    ),
    "simulated-gpu": Suite(
        (
            "tests/opatlas/load/cuda",
            "tests/tuning/measure/device",
            "tests/tuning/measure/test_on_a_device.py",
            "tests/tuning/worker/test_device_worker.py",
            "tests/tuning/bare/test_slices.py",
        ),
        (
            *JUDGE,
            "opatlas/load/cuda",
            "tests/opatlas/load/cuda",
            "tests/tuning/device_tools.py",
            "tests/tuning/device_worker.py",
            "tests/tuning/measure/device",
            "tests/tuning/measure/simulated_device.py",
            "tests/tuning/measure/test_on_a_device.py",
            "tests/tuning/worker/test_device_worker.py",
            "tests/tuning/bare/test_slices.py",
        ),
    ),
}


def digest(name: str) -> str:
    """Of the names and contents of all files that a suite depends on."""
    made = hashlib.sha256()
    for path in sorted(path for given in SUITES[name].depends_on for path in _files(ROOT / given)):
        content = path.read_bytes()
        made.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return made.hexdigest()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    every = (one for one in path.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    return [one for one in every if one.suffix != ".md"]


def recorded() -> dict[str, dict[str, str]]:
    """By suite: the digest for which it was green, and the day."""
    found: dict[str, dict[str, str]] = json.loads(GREEN.read_text()) if GREEN.exists() else {}
    return found


def write(name: str, of: str) -> None:
    """A suite is green, for the files of this digest."""
    row = {"digest": of, "day": datetime.now(UTC).date().isoformat()}
    GREEN.write_text(json.dumps({**recorded(), name: row}, indent=1, sort_keys=True) + "\n")
