"""Processes forked from one that has read the tests: a run ends though a test kills its process, groups and
parts hold, and who fails beside others is asked again alone."""

from __future__ import annotations

import ast
import datetime
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest, unsteady

ROOT = Path(__file__).resolve().parents[1]
KILLERS = """
import os, signal, subprocess, time
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.group("some")
def test_of_a_group(number):
    if number == 2:
        subprocess.Popen(["sleep", "60"])  # which outlives the process, as servers of tests may
        os._exit(9)

@pytest.mark.parametrize("number", range(20))
def test_alone(number):
    time.sleep(0.01)
    if number == 11:
        os.kill(os.getpid(), signal.SIGKILL)
"""
PARTS = """
import os, time
from pathlib import Path
import pytest

LINES = Path(__file__).with_name("lines")

@pytest.fixture(autouse=True)
def line(request):
    began = time.monotonic()
    yield
    with LINES.open("a") as file:
        file.write(f"{request.node.name} {os.getpid()} {began} {time.monotonic()}\\n")

@pytest.mark.timing
@pytest.mark.parametrize("number", range(2))
def test_timing(number):
    time.sleep(0.05)

@pytest.mark.alone
@pytest.mark.parametrize("number", range(4))
def test_workers(number):
    time.sleep(0.05)

@pytest.mark.parametrize("number", range(9))
def test_parallel(number):
    time.sleep(0.05)

@pytest.mark.parametrize("number", range(5))
@pytest.mark.group("some")
def test_of_a_group(number):
    pass
"""
UNSTEADY = """
from pathlib import Path
seen = Path(__file__).with_name("seen")

def test_unsteady():
    if not seen.exists():
        seen.touch()
        assert False
"""
THIRD = """
from pathlib import Path
seen = Path(__file__).with_name("seen")

def test_that_fails_the_third_time():
    with seen.open("a") as file:
        file.write("x")
    assert len(seen.read_text()) < 3
"""
HANGING = """
import ctypes
import pytest
import torch
import tests.forked

tests.forked.OVERDUE_S = 1.0
LARGE = torch.ones(1 << 20).exp().sum()  # begins all threads that it may

@pytest.mark.timeout(1)
def test_outside_of_python():
    ctypes.PyDLL(None).sleep(200)

def test_on_all_cores():
    assert torch.get_num_threads() == THREADS
    assert torch.ones(1 << 20).exp().sum() == LARGE
"""
PORTS = """
import os
from pathlib import Path
import pytest
from dashboard.run.stack import free_port

@pytest.mark.parametrize("number", range(4))
def test_ports(number):
    with Path(__file__).with_name("ports").open("a") as file:
        file.writelines(f"{os.getpid()} {free_port()}\\n" for _ in range(400))
"""
CONFTEST = """
import pytest
from tests.forked import GROUP

def pytest_configure(config):
    for mark in ("group", "timing", "alone", "timeout"):
        config.addinivalue_line("markers", mark)

def pytest_collection_modifyitems(items):
    for item in items:
        if mark := item.get_closest_marker("group"):
            item.stash[GROUP] = mark.args[0]
"""


def run(folder: Path, tests: str, *options: str, processes: int = 2) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_some.py").write_text(tests)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.forked"),
            *("--processes", str(processes), "-c", os.devnull, "--rootdir", str(folder), *options),
            str(folder),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )  # fmt: skip


@pytest.mark.parametrize("processes", [1, 2])
def test_what_kills_its_process_has_failed_and_the_others_are_run(processes: int, tmp_path: Path) -> None:
    done = run(tmp_path, KILLERS, "--again", processes=processes)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 24 passed" in done.stdout
    assert "its process ended by code 9 while it ran test_some.py::test_of_a_group[2]" in done.stdout
    assert "its process ended by signal SIGKILL while it ran test_some.py::test_alone[11]" in done.stdout
    assert done.stdout.count("failed again") == 2


def test_what_hangs_is_ended_and_threads_of_who_reads_the_tests_are_missed_by_nobody(tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    done = run(tmp_path, HANGING.replace("THREADS", str(cores)))
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "ended by signal SIGABRT while it ran test_some.py::test_outside_of_python" in done.stdout


def test_parts_come_one_after_the_other_and_groups_stay_together(tmp_path: Path) -> None:
    done = run(tmp_path, PARTS, processes=3)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "lines").read_text().splitlines()]
    spans = [(name, int(pid), float(began), float(ended)) for name, pid, began, ended in lines]
    assert len(spans) == 20
    assert len({pid for name, pid, *_ in spans if "group" in name}) == 1
    assert len({pid for name, pid, *_ in spans if "parallel" in name}) > 1

    def most_beside(part: str) -> int:
        """Tests that ran while one of the part began."""
        begun = [began for name, _, began, _ in spans if part in name]
        return max(sum(began <= at < ended for _, _, began, ended in spans) for at in begun)

    assert most_beside("timing") == 1
    assert most_beside("workers") <= 2
    assert min(began for name, _, began, _ in spans if "timing" in name) == sorted(s[2] for s in spans)[-2]


def test_no_two_processes_draw_the_same_port(tmp_path: Path) -> None:
    done = run(tmp_path, PORTS)
    assert done.returncode == 0, done.stdout + done.stderr
    drawn: dict[str, set[str]] = {}
    for line in (tmp_path / "ports").read_text().splitlines():
        pid, port = line.split()
        drawn.setdefault(pid, set()).add(port)
    one, other = drawn.values()
    assert not one & other


def test_who_passes_only_alone_is_named_and_fails_the_run_where_that_is_known(tmp_path: Path) -> None:
    listed = tmp_path / "unsteady.toml"
    listed.touch()
    first = run(tmp_path, UNSTEADY, "--again", "--unsteady", str(listed))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "1 failed" in first.stdout
    entry = re.search(
        r'^\[\[test\]\]\nname = "test_some.py::test_unsteady"\n.*\n.*$', first.stdout, re.MULTILINE
    )
    assert entry, first.stdout
    listed.write_text(entry[0])
    (tmp_path / "seen").unlink()
    again = run(tmp_path, UNSTEADY, "--again", "--unsteady", str(listed))
    assert again.returncode == 1, again.stdout + again.stderr
    assert "knows it already, so this run has failed: test_some.py::test_unsteady" in again.stdout


def test_a_run_of_several_times_stops_at_the_first_failure(tmp_path: Path) -> None:
    done = run(tmp_path, THIRD, "--times", "5")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Time 3 of 5" in done.stdout and "Time 4" not in done.stdout
    assert "1 failed, 2 passed" in done.stdout


def test_few_are_listed_as_unsteady_and_each_with_its_cause() -> None:
    listed = unsteady.listed()
    assert len(listed) <= unsteady.MOST
    for test in listed:
        path, name = re.fullmatch(r"(tests/[\w/]+\.py)::(?:\w+::)*(\w+)(?:\[.*\])?", test["name"]).groups()  # type: ignore[union-attr]
        functions = [
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert name in functions
        assert isinstance(test["date"], datetime.date) and len(test["cause"]) > 20


def test_those_that_begin_are_there() -> None:
    assert [name for name in conftest.TAKE_S if not (ROOT / "tests" / name).exists()] == []
