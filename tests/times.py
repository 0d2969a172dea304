"""How long each test took: every run writes it to var/test-times/, ``make test-times`` prints the slowest.

Seconds of the wall and of the processors: the test's own process and the children that it waited for. On a
busy machine only the second figure can be compared with another run's.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "var" / "test-times"
SLOWEST = 30
_GROUP = re.compile(r"@[^\]@]+$")


def cpu_s() -> float:
    """Seconds of the processors of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Times:
    """A plug-in of pytest: workers measure, the process that collects their reports writes.

    ``part`` names the file; a test's time includes what it is the first to set up.
    """

    def __init__(self, part: str) -> None:
        self.part = part
        self.began = time.monotonic()
        self.used = cpu_s()
        self.tests: dict[str, dict[str, float]] = defaultdict(lambda: {"wall_s": 0.0, "cpu_s": 0.0})
        self.failed: dict[str, None] = {}

    def pytest_collection_finish(self) -> None:
        self.used = cpu_s()  # what reading the tests takes is no test's

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Iterator[Any]:
        report = yield
        before, self.used = self.used, cpu_s()
        report.user_properties = [*report.user_properties, ("cpu_s", self.used - before)]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        row = self.tests[report.nodeid]
        row["wall_s"] += report.duration
        row["cpu_s"] += dict(report.user_properties).get("cpu_s", 0.0)
        if report.failed:
            self.failed[ungrouped(report.nodeid)] = None

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed[report.nodeid] = None  # a file that cannot be read is asked again as one

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput") or not (self.part and (self.tests or self.failed)):
            return
        FOLDER.mkdir(parents=True, exist_ok=True)
        rows = {
            name: {unit: round(value, 3) for unit, value in row.items()} for name, row in self.tests.items()
        }
        took_s = round(time.monotonic() - self.began, 1)
        whole = {"wall_s": took_s, "failed": list(self.failed), "tests": rows}
        (FOLDER / f"{self.part}.json").write_text(json.dumps(whole, indent=1))


def ungrouped(name: str) -> str:
    """A test's name without the group that pytest-xdist puts behind it."""
    return _GROUP.sub("", name)


def failed_in(part: str) -> list[str]:
    """Tests that failed in a part of the latest run, by their names."""
    path = FOLDER / f"{part}.json"
    return list(json.loads(path.read_text())["failed"]) if path.exists() else []


def main() -> int:
    """Print each part's time and the slowest tests of all parts of the latest ``make test``."""
    parts = [part for part in sorted(FOLDER.glob("*.json")) if part.stem != "last"]
    parts = parts or sorted(FOLDER.glob("last.json"))
    if not parts:
        print("No run has been written to var/test-times yet: make test", file=sys.stderr)
        return 1
    rows = []
    for part in parts:
        whole = json.loads(part.read_text())
        processors = sum(row["cpu_s"] for row in whole["tests"].values())
        print(f"{part.stem}: {len(whole['tests'])} tests, {whole['wall_s']:.0f} s, {processors:.0f} s of CPU")
        rows += [(row["wall_s"], row["cpu_s"], name) for name, row in whole["tests"].items()]
    print(f"\n{'wall s':>8} {'CPU s':>8}  the slowest {SLOWEST}")
    for wall_s, used_s, name in sorted(rows, reverse=True)[:SLOWEST]:
        print(f"{wall_s:8.1f} {used_s:8.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
