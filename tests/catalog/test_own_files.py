"""What a service keeps is its user's alone; a store that several share is open to whom it was."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog.own_files import keep_to_ourselves, share_file, store_folder
from tests.databases import ROOT


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def manage(home: Path, *arguments: str, by: tuple[str, ...] = ("manage.py",)) -> Any:
    environment = {**os.environ, "OPATLAS_HOME": str(home), "DATABASE_URL": "", "OPATLAS_STORE": ""}
    command = [sys.executable, *by, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, umask=0o022, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
def test_database_sessions_and_keys_are_closed_to_others_under_an_open_umask(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)  # whatever the umask
    said = manage(home, "migrate", "contenttypes", "--noinput", "-v", "0").stderr  # which makes the database
    assert f"{home} was open to other users of this machine (755): it is closed to them now (700)." in said
    assert mode(home) == 0o700
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".sqlite3" or "sqlite" in path.name for path in files)
    assert [path for path in files if mode(path) & 0o077] == []
    assert "was open" not in manage(home, "check", "--tag", "models").stderr


@pytest.mark.slow
def test_a_worker_makes_nothing_before_it_keeps_to_itself(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    said = manage(home, "report", by=("-m", "celery", "-A", "tuning")).stderr
    assert (home / "broker").is_dir() and "open" not in said
    assert [path for path in (home, *home.rglob("*")) if mode(path) & 0o077] == []


def test_a_home_of_another_user_is_told_of(
    tmp_path: Path, configure: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)  # whatever the umask
    configure(home=home)
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setattr(os, "geteuid", lambda: home.stat().st_uid + 60_000)
    keep_to_ourselves()  # it may, as root does
    said = capsys.readouterr().err
    assert f"{home} was open to other users" in said and mode(home) == 0o700
    assert f"{home} belongs to " in said and "give the folder, and what is in it, to user" in said
    home.chmod(0o755)

    def refused(path: Path, mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refused)
    keep_to_ourselves()
    said = capsys.readouterr().err
    assert "is open to other users of this machine (755), and only its owner can close it" in said


@pytest.mark.parametrize(
    ("given", "folders", "files"), [(0o2770, 0o2770, 0o660), (0o755, 0o755, 0o644), (0o700, 0o700, 0o600)]
)
def test_a_shared_store_keeps_its_administrators_mode_and_group(
    tmp_path: Path, configure: Any, given: int, folders: int, files: int
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    if os.geteuid() == 0:
        os.chown(store, -1, 23456)
    store.chmod(given)
    configure(store=store)
    before = os.umask(0o077)
    try:
        made = store_folder(store / "ab" / "cd") / "file"
        made.write_bytes(b"kernel")
        share_file(made)
    finally:
        os.umask(before)
    for folder in (store / "ab", store / "ab" / "cd"):
        assert (mode(folder), folder.stat().st_gid) == (folders, store.stat().st_gid)
    assert (mode(made), made.stat().st_gid) == (files, store.stat().st_gid)
