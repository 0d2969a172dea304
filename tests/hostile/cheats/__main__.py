"""``make test-cheats``: every cheat, every honest kernel and the simulated GPU, which judge the judge.

Minutes, for who changes the judge: ``make test`` holds one of each mechanism only. What passes is written to
green.json with a digest of all that it depends on, and a test fails where that is stale. What a busy host
left undecided is asked again, and kept for the next call, which goes on with that if nothing has changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.hostile.cheats.green import ROOT, SUITES, digest, write

LEFT = ROOT / "var" / "test-cheats"
TRIES = 3
BUSY = "a busy host"
"""Begins the reason of each test that is skipped for it."""


def main(only: list[str]) -> int:
    """Run the suites (those named, else all), and write down each that is green."""
    return max(judged(name) for name in only or SUITES)


def judged(name: str) -> int:
    """0 where all of a suite passed, or what was left of it."""
    kept, now = LEFT / f"{name}.json", digest(name)
    known = json.loads(kept.read_text()) if kept.exists() else {}
    tests = known["left"] if known.get("digest") == now else list(SUITES[name].tests)
    for _ in range(TRIES):
        print(f"\n=== {name}: {', '.join(tests)} ===", flush=True)
        code, tests = run(tests)
        if code or not tests:
            break
        LEFT.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps({"digest": now, "left": tests}))
    if not code and not tests:
        kept.unlink(missing_ok=True)
        write(name, now)
    elif not code:
        print(f"\n{name}: {BUSY} left undecided: {', '.join(tests)}", flush=True)
    return code or int(bool(tests))


def run(tests: list[str]) -> tuple[int, list[str]]:
    """pytest's exit code, and which tests a busy host left undecided."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # One process: a second would stretch the first one's times.
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *tests]
        code = subprocess.run(command, cwd=ROOT).returncode
        return code, undecided(ElementTree.parse(report)) if report.exists() else []


def undecided(report: ElementTree.ElementTree) -> list[str]:
    """Names of tests that were skipped since the host was busy."""
    return [
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        for case in report.iter("testcase")
        if any(skipped.get("message", "").startswith(BUSY) for skipped in case.iter("skipped"))
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
