"""Signs of life: a file's time, or a word to systemd; one a second at most, and never a reason to fail."""

from __future__ import annotations

import os
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
    now_s, sign = 1000.0, tmp_path / "courier"
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    alive.beat("courier")
    os.utime(sign, (0, 0))  # as two touches within a tick of the kernel's clock may have one time
    alive.beat("courier")
    assert sign.stat().st_mtime_ns == 0
    now_s += alive.EVERY_S
    alive.beat("courier")
    assert sign.stat().st_mtime_ns > 0


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
