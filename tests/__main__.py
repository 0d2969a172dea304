"""``python -m tests``: ``make test``, in three parts; ``--all`` adds what is worth a nightly run only.

Further arguments are pytest's. How long each part and each test took is written to var/test-times/. Where
very few tests failed they are asked again at the end, twice, with nothing beside them: eleven thousand on two
busy cores are never all on time. Who fails once more has failed; who does not is named as unsteady in the
last lines, and is to be mended all the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.services import make_migrated
from tests.times import FOLDER, failed_in

TESTS = Path(__file__).resolve().parent
GROUPED = ("--dist", "loadgroup", "--no-loadscope-reorder")
"""Groups, and their order, are tests/conftest.py's."""
MOST_AGAIN = 3
"""Failures that may be the machine's; more of them are the code's."""


@dataclass(frozen=True)
class Part:
    name: str
    how: str
    chosen: str  # a marker expression
    options: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()  # only files that name one of these are read


# Three on two cores: tests in parallel wait for children and pages for half of their time.
PARTS = (
    Part("parallel", "in parallel", "not timing and not alone", ("-n", "3", *GROUPED)),
    Part("workers", "two real workers at a time", "alone and not timing", ("-n", "2", *GROUPED), ("alone",)),
    Part("timing", "one after the other", "timing", (), ("timing",)),
)


def files_with(marks: tuple[str, ...]) -> list[str]:
    """Test files in which one of the marks stands: reading all five thousand tests takes longer."""
    named = re.compile(rf"\bmark\.({'|'.join(marks)})\b")
    return [str(path) for path in sorted(TESTS.rglob("test_*.py")) if named.search(path.read_text())]


def run(part: Part, nightly: bool, name: str, more: list[str]) -> int:
    chosen = part.chosen if nightly else f"({part.chosen}) and not nightly"
    files = files_with(part.marks) if part.marks else []
    # What pytest makes of five thousand assertions is kept for the next of these processes: half a minute.
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *part.options, "-m", chosen, *more, *files],
        env={**inherited, "OPATLAS_TEST_PART": name},
    ).returncode


def fail_alone(failed: list[str], more: list[str]) -> bool:
    """Whether any of them fails again, in either of two runs without others."""
    print(f"\n=== Asked again, alone: {', '.join(failed)} ===", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *more, *failed]
    environment = {**os.environ, "OPATLAS_TEST_PART": ""}
    return any(subprocess.run(command, env=environment, cwd=TESTS.parent).returncode for _ in range(2))


def main(arguments: list[str]) -> int:
    nightly = "--all" in arguments
    more = [argument for argument in arguments if argument != "--all"]
    within_a_test = "OPATLAS_TEST_PART" in os.environ  # which collects, and writes nothing
    if not within_a_test:
        shutil.rmtree(FOLDER, ignore_errors=True)
        # The databases that tests copy are made while the tests are read.
        threading.Thread(target=make_migrated).start()
    codes, took, failed = list[int](), list[str](), list[str]()
    for part in PARTS:
        started = time.monotonic()
        print(f"\n=== Tests {part.how} ===", flush=True)
        code = run(part, nightly, "" if within_a_test else part.name, more)
        took.append(f"{part.how}: {time.monotonic() - started:.0f} s")
        if code == pytest.ExitCode.TESTS_FAILED:
            failed += failed_in(part.name)
        codes.append(code)
    broken = [code for code in codes if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)]
    worst = broken[0] if broken else max(codes)
    if not broken and 0 < len(failed) <= MOST_AGAIN and not fail_alone(failed, more):
        worst = 0
        print(f"\n=== Unsteady, to be mended: {', '.join(failed)} ===", flush=True)
    print(f"\n=== {'; '.join(took)} (make test-times: the slowest) ===", flush=True)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
