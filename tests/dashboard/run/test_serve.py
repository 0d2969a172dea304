"""``manage.py serve``: up, secrets shown once, stopped cleanly, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dashboard.run.stack import ROOT, free_port
from tests import by_day
from tests.databases import new_sqlite
from tests.docs.service import heed_signals

pytestmark = pytest.mark.slow


def start(home: Path, port: int, *options: str, silent_s: int = 30) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", str(port), *options],
        cwd=ROOT,
        env={
            **os.environ,
            "OPATLAS_HOME": str(home),
            "OPATLAS_SILENT_S": str(silent_s),
            "DJANGO_SETTINGS_MODULE": "dashboard.settings",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_signals,
    )


def read_until_up(serve: subprocess.Popen[str], timeout_s: float = 120) -> str:
    said = ""
    deadline = time.monotonic() + timeout_s
    assert serve.stdout is not None
    while "Opatlas is up" not in said:
        line = serve.stdout.readline()
        assert line and time.monotonic() < deadline, said
        said += line
    return said


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def gone(processes: list[psutil.Process], timeout_s: float = 60) -> bool:
    return not psutil.wait_procs(processes, timeout=timeout_s)[1]


@pytest.mark.parametrize("home", by_day.only(["migrated"], ["migrated", "empty"]))
def test_serve_stops_cleanly_and_shows_secrets_only_the_first_time(tmp_path: Path, home: str) -> None:
    port = free_port()
    if home == "migrated":  # where it makes its own, which takes twenty seconds
        new_sqlite(tmp_path / "opatlas.sqlite3")
    serve = start(tmp_path, port)
    try:
        said = read_until_up(serve)
        assert re.search(r"admin / \S{12,}", said) and re.search(r"opk_\S{20,}", said)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            assert answer.status == 200
        children = descendants(serve)
        serve.send_signal(signal.SIGINT)
        rest, _ = serve.communicate(timeout=120)
        assert serve.returncode == 0, rest
        assert gone(children)
    finally:
        if serve.poll() is None:
            serve.kill()

    again = start(tmp_path, free_port())
    try:
        assert "shown once" not in read_until_up(again)
        children = descendants(again)
        # Even a killed service leaves nothing running.
        again.kill()
        again.wait()
        assert gone(children)
    finally:
        if again.poll() is None:
            again.kill()


@pytest.mark.nightly
def test_a_terminals_end_stops_it_like_ctrl_c(tmp_path: Path) -> None:
    """Without workers: that these are stopped too, once serve heeds a signal, the tests beside this show;
    the next is of SIGTERM."""
    new_sqlite(tmp_path / "opatlas.sqlite3")
    serve = start(tmp_path, free_port(), "--workers", "0")
    try:
        read_until_up(serve)
        children = descendants(serve)
        assert len(children) >= 2  # the web server and the courier
        serve.send_signal(signal.SIGHUP)
        rest, _ = serve.communicate(timeout=120)
        assert serve.returncode == 0, rest
        assert "Stopped." in rest
        assert gone(children)
    finally:
        if serve.poll() is None:
            serve.kill()


def child(process: subprocess.Popen[str], word: str, other_than: int = 0) -> psutil.Process:
    """One of the service's processes, by a word of its command."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for one in psutil.Process(process.pid).children():
            with suppress(psutil.Error):  # it ends right now
                if word in " ".join(one.cmdline()) and one.pid != other_than:
                    return one
        time.sleep(0.2)
    raise AssertionError(f"there is no {word}")


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_killed_web_server_and_a_stopped_courier_are_started_again_and_all_stops_together(
    tmp_path: Path,
) -> None:
    new_sqlite(tmp_path / "opatlas.sqlite3")
    port = free_port()
    serve = start(tmp_path, port, "--workers", "0", silent_s=8)
    try:
        read_until_up(serve)
        web, courier = child(serve, "granian"), child(serve, "courier")
        deadline = time.monotonic() + 120
        while not (tmp_path / "run/courier/courier").exists():  # its first sign of life
            assert time.monotonic() < deadline
            time.sleep(0.1)
        courier.send_signal(signal.SIGSTOP)
        web.send_signal(signal.SIGKILL)
        child(serve, "granian", other_than=web.pid)
        fresh = child(serve, "courier", other_than=courier.pid)
        while not answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        children = descendants(serve)
        assert fresh in children and courier not in children
        serve.send_signal(signal.SIGTERM)
        rest, _ = serve.communicate(timeout=120)
        assert serve.returncode == 0, rest
        assert "web was killed by SIGKILL; starting it again" in rest
        assert "courier gave no sign of life for 8 s" in rest and "Stopped." in rest
        assert gone(children)
    finally:
        if serve.poll() is None:
            serve.kill()


def test_a_port_that_is_taken_is_said_plainly(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        serve = start(tmp_path, taken.getsockname()[1])
        said, _ = serve.communicate(timeout=60)
    assert serve.returncode != 0
    assert "in use" in said and "PORT=" in said
