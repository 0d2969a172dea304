"""Signs of life: a file's time, or a word to systemd; one a second at most, and never a reason to fail."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from catalog import alive


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive, "_said_at", {})
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)


def test_a_sign_is_a_files_time_and_one_a_second_is_enough(configure, tmp_path, monkeypatch) -> None:
    configure(alive=tmp_path)
    alive.beat("courier")
    first = (tmp_path / "courier").stat().st_mtime_ns
    alive.beat("courier")
    assert (tmp_path / "courier").stat().st_mtime_ns == first
    later = time.monotonic() + alive.EVERY_S
    monkeypatch.setattr(time, "monotonic", lambda: later)
    alive.beat("courier")
    assert (tmp_path / "courier").stat().st_mtime_ns > first


def test_systemd_is_told_through_its_socket(tmp_path, monkeypatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        alive.beat("worker")
        assert systemd.recv(100) == b"WATCHDOG=1"


def test_a_folder_or_socket_that_is_gone_hinders_nobody(configure, monkeypatch) -> None:
    configure(alive=Path("/nonexistent/folder"))
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/socket")
    alive.beat("worker")


def test_nothing_is_touched_where_nobody_asks(configure) -> None:
    configure(alive=None)
    alive.beat("worker")
