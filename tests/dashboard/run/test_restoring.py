"""Backups that are not restored, each with its reason; and what a copy is made of."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from catalog.conf import conf
from dashboard.run import backing_up, dumps, restoring
from dashboard.run.backing_up import NotBackedUp, back_up
from dashboard.run.restoring import NotRestored, restore

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="what both have in common"),
]


@pytest.fixture(autouse=True)
def home(configure: Any, tmp_path: Path) -> Path:
    """A home with a stored file, a journal and a key."""
    configure(home=tmp_path / "home", store=tmp_path / "home" / "artifacts")
    for name, content in {"kernel": b"code", "other": b"other code"}.items():
        digest = hashlib.sha256(content).hexdigest()
        path = conf().store / digest[:2] / digest[2:4] / digest
        path.parent.mkdir(parents=True)
        path.write_bytes(content if name == "kernel" else b"damaged")
    (conf().home / "journal").mkdir()
    (conf().home / "journal" / "20261125T000000-1-abc.jsonl").write_text("{}\n")
    (conf().home / "signing_key.pem").write_text("a key")
    return conf().home


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    back_up(tmp_path / "backup")
    return tmp_path / "backup"


def change(folder: Path, **values: Any) -> None:
    """Of the manifest, sealed again."""
    given = json.loads((folder / "backup.json").read_text())
    del given["sha256"]
    given |= values
    (folder / "backup.json").write_text(json.dumps(given | {"sha256": backing_up.seal(given)}))


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def stored(folder: Path) -> Path:
    return next(folder.glob("store/*/*/*"))


def test_it_holds_rows_whole_files_the_journal_and_keys(backup: Path, home: Path) -> None:
    files = set(json.loads((backup / "backup.json").read_text())["files"])
    kernel = hashlib.sha256(b"code").hexdigest()
    assert {name for name in files if name.startswith("store/")} == {
        f"store/{kernel[:2]}/{kernel[2:4]}/{kernel}"
    }
    assert {"database.sqlite3", "keys/signing_key.pem", "journal/20261125T000000-1-abc.jsonl"} < files
    with closing(sqlite3.connect(backup / "database.sqlite3")) as database:
        assert database.execute("SELECT COUNT(*) FROM django_migrations").fetchone() > (0,)


def test_a_database_that_another_program_locks_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "locked", isolation_level=None)) as locked:
        locked.executescript("CREATE TABLE x (y); BEGIN EXCLUSIVE; INSERT INTO x VALUES (1);")
        with pytest.raises(dumps.DumpError, match="is locked by another program"):
            dumps.copy_sqlite(tmp_path / "locked", tmp_path / "copy", patience_s=0)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: spoil(stored(folder)), "is damaged: store/.* is not what was backed up"),
        (lambda folder: spoil(folder / "database.sqlite3"), "database.sqlite3 is not what was backed up"),
        (lambda folder: spoil(folder / "keys/signing_key.pem"), "signing_key.pem is not what was backed up"),
        (lambda folder: stored(folder).unlink(), "is gone from it"),
        (lambda folder: (folder / "extra").write_text("x"), "its manifest does not name extra"),
        (lambda folder: (folder / "backup.json").write_text("{"), "its backup.json cannot be read"),
        (lambda folder: spoil(folder / "backup.json"), "is damaged: its backup.json"),
        (lambda folder: (folder / "backup.json").unlink(), "is no backup of this service"),
        (lambda folder: change(folder, format=2), "has the format 2: this version reads 1"),
        (lambda folder: change(folder, database="postgresql"), "is of a service on postgresql"),
        (
            lambda folder: change(folder, migrations=[["catalog", "9999_of_later"]]),
            "is of another version, which has catalog.9999_of_later",
        ),
        (shutil.rmtree, "There is no backup"),
    ],
)
def test_what_is_damaged_or_foreign_is_refused(backup: Path, harm: Callable[[Path], Any], said: str) -> None:
    harm(backup)
    with pytest.raises(CommandError, match=said) as refused:
        call_command("restore", str(backup))
    assert str(refused.value).count("\n") == 0


def test_only_an_empty_database_and_home_are_filled(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotRestored, match="The database is not empty"):
        restore(backup)
    monkeypatch.setattr(restoring, "tables", list)
    with pytest.raises(NotRestored, match=r"home is not empty \(it has .*artifacts"):
        restore(backup)
    shutil.rmtree(conf().store)
    with pytest.raises(NotRestored, match=r"home is not empty \(it has .*journal"):
        restore(backup)
    shutil.rmtree(conf().home / "journal")
    (conf().home / "signing_key.pem").write_text("another")
    with pytest.raises(NotRestored, match=r"signing_key\.pem is another key"):
        restore(backup)


def test_a_tar_that_reaches_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("x")
    with tarfile.open(tmp_path / "evil.tar", "w") as packed:
        packed.add(tmp_path / "evil", "../../outside")
    with pytest.raises(NotRestored, match="cannot be unpacked as a backup"):
        restore(tmp_path / "evil.tar")
    assert not list(tmp_path.rglob("outside"))


def test_a_file_that_the_manifest_names_outside_of_it_is_refused(backup: Path) -> None:
    change(backup, files={"../home/signing_key.pem": ["0" * 64, 5]})
    with pytest.raises(NotRestored, match="is damaged"):
        restore(backup)


def test_nothing_is_written_over_or_left_behind(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotBackedUp, match="is there already"):
        back_up(backup)
    with pytest.raises(NotBackedUp, match="There is no folder"):
        back_up(tmp_path / "nowhere" / "backup")

    def full(destination: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backing_up, "dump", full)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotBackedUp, match=r"Nothing was backed up: .*No space left"):
        back_up(tmp_path / "another")
    assert sorted(tmp_path.iterdir()) == before


def test_what_the_journal_got_after_the_rows_were_copied_is_not_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a segment missing that was drained, and taken away, meanwhile."""
    segment = conf().home / "journal" / "20261125T000000-1-abc.jsonl"
    dump = backing_up.dump

    def while_it_is_used(destination: Path) -> None:
        with segment.open("a") as journal:
            journal.write('{"later": 1}\n')
        segment.unlink()
        dump(destination)

    monkeypatch.setattr(backing_up, "dump", while_it_is_used)
    back_up(tmp_path / "backup")
    assert (tmp_path / "backup" / "journal" / segment.name).read_text() == "{}\n"


def test_what_is_stored_while_the_rows_are_copied_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.sha256(b"newer").hexdigest()
    dump = backing_up.dump

    def while_it_is_used(destination: Path) -> None:
        path = conf().store / digest[:2] / digest[2:4] / digest
        path.parent.mkdir(parents=True)
        path.write_bytes(b"newer")
        dump(destination)

    monkeypatch.setattr(backing_up, "dump", while_it_is_used)
    back_up(tmp_path / "backup")
    assert len(list((tmp_path / "backup").glob(f"store/*/*/{digest}"))) == 1


def test_postgres_programs_get_the_password_by_their_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[tuple[list[str], dict[str, str]]] = []

    def run(command: list[str], *, env: dict[str, str], **rest: Any) -> Any:
        told.append((command, env))
        return type("Done", (), {"returncode": 1, "stderr": "server\nis away"})()

    settings = {"NAME": "atlas", "USER": "ada", "PASSWORD": "very-secret", "HOST": "db", "PORT": 5433}
    fake = type(
        "Fake", (), {"vendor": "postgresql", "settings_dict": settings | {"OPTIONS": {"sslmode": "require"}}}
    )
    monkeypatch.setattr(dumps, "connection", fake)
    monkeypatch.setattr(dumps.subprocess, "run", run)
    for act in (dumps.dump, dumps.fill):
        with pytest.raises(dumps.DumpError, match="failed: server is away"):
            act(tmp_path / "dump")
    for command, environment in told:
        assert not any("secret" in word for word in command)
        assert environment["PGPASSWORD"] == "very-secret" and environment["PGSSLMODE"] == "require"
        assert (environment["PGHOST"], environment["PGPORT"], environment["PGUSER"]) == ("db", "5433", "ada")
