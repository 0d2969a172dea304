"""How long each test took: every run writes it to var/test-times/, ``make test-times`` prints the slowest.

Seconds of the wall and of the processors: the test's own process and the children that it waited for. On a
busy machine only the second figure can be compared with another run's.
"""

from __future__ import annotations

import json
import os
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
DEAREST = 40


def cpu_s() -> float:
    """Seconds of the processors of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def idle_s() -> float:
    """Seconds since boot in which the machine's cores, all of them together, had nothing to run."""
    return int(Path("/proc/stat").read_text().split(maxsplit=5)[4]) / os.sysconf("SC_CLK_TCK")


class Times:
    """A plug-in of pytest: workers measure, the process that collects their reports writes.

    One file for each part of a forked run (:mod:`tests.forked`), ``last`` for any other. A test's time
    includes what it is the first to set up."""

    def __init__(self, writes: bool) -> None:
        self.writes = writes
        self.began = time.monotonic()
        self.used = cpu_s()
        self.tests: dict[str, dict[str, float]] = defaultdict(lambda: {"wall_s": 0.0, "cpu_s": 0.0})

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

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not (self.writes and self.tests):
            return
        FOLDER.mkdir(parents=True, exist_ok=True)
        forked = session.config.pluginmanager.getplugin("forked")
        took = forked.took if forked else {"last": [self.began, time.monotonic(), 0.0]}
        part_of = {item.nodeid: forked.part_of(item).name for item in session.items} if forked else {}
        for part, (began, ended, idle) in took.items():
            rows = {
                name: {unit: round(value, 3) for unit, value in row.items()}
                for name, row in self.tests.items()
                if part_of.get(name, part) == part
            }
            whole = {"wall_s": round(ended - began, 1), "idle_s": round(idle, 1), "tests": rows}
            (FOLDER / f"{part}.json").write_text(json.dumps(whole, indent=1))


def _written() -> list[Path]:
    """Of the latest forked run; where there is none, of the latest other one."""
    parts = [part for part in sorted(FOLDER.glob("*.json")) if part.stem != "last"]
    return parts or sorted(FOLDER.glob("last.json"))


def parts_took() -> list[str]:
    """What to say of the latest run's parts."""
    said = []
    for part in _written():
        whole = json.loads(part.read_text())
        rows, took_s = whole["tests"].values(), whole["wall_s"]
        used_s = sum(row["cpu_s"] for row in rows)
        idle = f", cores idle for {whole['idle_s']:.0f} s" if whole["idle_s"] else ""
        said.append(f"{part.stem}: {len(rows)} tests in {took_s:.0f} s, {used_s:.0f} s of CPU{idle}")
    return said


def machine_s() -> float:
    """Seconds of one core for a fixed piece of work, half Python's and half numpy's: runs of machines that
    differ are compared by it. The best of three, since a busy machine takes the others longer."""
    import numpy as np

    def seconds() -> float:
        began, total = time.thread_time(), 0
        for number in range(2_000_000):
            total += number * number % 7
        values = np.random.default_rng(0).random(1_000_000)
        for _ in range(8):
            values = np.sort(np.sqrt(values[::-1] + 0.5))
        return time.thread_time() - began

    return min(seconds() for _ in range(3))


def main() -> int:
    """Print each part's time, the dearest files and the slowest tests of all parts of the latest run."""
    parts = _written()
    if not parts:
        print("No run has been written to var/test-times yet: make test", file=sys.stderr)
        return 1
    print("\n".join(parts_took()))
    rows = []
    for part in parts:
        whole = json.loads(part.read_text())
        rows += [(row["wall_s"], row["cpu_s"], name) for name, row in whole["tests"].items()]
    files = defaultdict[str, list[float]](lambda: [0.0, 0.0])
    for wall_s, used_s, name in rows:
        of_file = files[name.partition("::")[0]]
        of_file[0] += wall_s
        of_file[1] += used_s
    dearest = sorted(((*both, name) for name, both in files.items()), key=lambda row: -row[1])[:DEAREST]
    for title, table in (
        (f"the {DEAREST} files that take most of the processors", dearest),
        (f"the slowest {SLOWEST}", sorted(rows, reverse=True)[:SLOWEST]),
    ):
        print(f"\n{'wall s':>8} {'CPU s':>8}  {title}")
        for wall_s, used_s, name in table:
            print(f"{wall_s:8.1f} {used_s:8.1f}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
