"""The audit log's old entries leave it in one way: exported, compared, removed, and with a trace of that."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from unittest import mock

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.utils import timezone

from catalog.models import AuditEntry
from catalog.people import archiving
from catalog.people.archiving import ARCHIVIST, NotArchived, archive, check
from catalog.people.audit import record
from tests.disks import fill, small_disk

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def archivist(db: None) -> None:
    """PostgreSQL's role, which goes with the test's transaction."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ARCHIVIST])
            if cursor.fetchone() is None:
                cursor.execute(f"CREATE ROLE {ARCHIVIST}")
            cursor.execute(f"GRANT SELECT, DELETE ON catalog_auditentry TO {ARCHIVIST}")


def happened(count: int, days_ago: float, user: User | None = None) -> list[int]:
    """Entries of that day."""
    at = timezone.now() - timedelta(days=days_ago)
    with mock.patch("django.utils.timezone.now", return_value=at):
        return [
            record("queue.pause", subject=f"queue {n}", user=user, detail={"why": "zäh", "n": n}).pk
            for n in range(count)
        ]


def day(days_ago: int) -> date:
    return (timezone.now() - timedelta(days=days_ago)).date()


def run(*arguments: object) -> str:
    said = io.StringIO()
    call_command("archive_audit", *map(str, arguments), stdout=said)
    return said.getvalue()


def there() -> list[int]:
    """The entries of the log, those aside that say what was archived."""
    rows = AuditEntry.objects.exclude(action=archiving.ACTION).order_by("pk")
    return list(rows.values_list("pk", flat=True))


def test_what_is_old_is_in_the_file_and_no_longer_in_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "BATCH", 2)
    old, new = happened(5, 60), happened(2, 10)
    rows = list(AuditEntry.objects.filter(pk__in=old).order_by("pk").values())
    path = tmp_path / "audit.jsonl"
    said = run("--before", day(40), "--to", path)
    assert "5 entries" in said and "5 were removed" in said
    assert there() == new
    *lines, last = path.read_bytes().splitlines(keepends=True)
    exported = [json.loads(line) for line in lines]
    assert [one | {"at": datetime.fromisoformat(one["at"])} for one in exported] == rows
    assert json.loads(last) == {
        "before": str(day(40)), "count": 5, "first_id": old[0], "last_id": old[-1],
        "sha256": hashlib.sha256(b"".join(lines)).hexdigest(),
    }  # fmt: skip
    trace = AuditEntry.objects.get(action=archiving.ACTION)
    assert (trace.subject, trace.detail) == ("audit.jsonl", json.loads(last))
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path], "nothing is left beside it"
    assert "5 entries" in run("--check", path)


def test_asked_again_it_goes_on_and_says_so_once(tmp_path: Path) -> None:
    happened(3, 60)
    path = tmp_path / "audit.jsonl"
    assert [archive(day(40), path), archive(day(40), path)] == [(check(path), 3), (check(path), 0)]
    assert AuditEntry.objects.filter(action=archiving.ACTION).count() == 1


def test_what_was_exported_before_an_account_was_deleted_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = User.objects.create_user("ada")
    happened(2, 60, user)
    path = tmp_path / "audit.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_remove_all", lambda path: 0)
        assert archive(day(40), path) == (check(path), 0)
    user.delete()
    assert archive(day(40), path) == (check(path), 2)


def test_without_anything_old_no_file_is_made(tmp_path: Path) -> None:
    new = happened(2, 31)
    assert "no file was written" in run("--before", day(40), "--to", tmp_path / "audit.jsonl")
    assert there() == new and not list(tmp_path.iterdir())


def test_what_is_of_the_last_month_stays(tmp_path: Path) -> None:
    new = happened(1, 29.9)
    for wrong in (day(29), day(-1)):
        with pytest.raises(CommandError, match="Nothing newer than 30 days"):
            run("--before", wrong, "--to", tmp_path / "audit.jsonl")
    run("--before", day(30), "--to", tmp_path / "audit.jsonl")
    assert there() == new


@pytest.mark.parametrize("arguments", [[], ["--before", "2026-01-01"], ["--to", "audit.jsonl"]])
def test_a_day_and_a_file_are_named_together(arguments: list[str]) -> None:
    with pytest.raises(CommandError, match="Name a day and a new file"):
        run(*arguments)


def test_no_other_file_is_written_over(tmp_path: Path) -> None:
    old, path = happened(2, 60), tmp_path / "notes.txt"
    path.write_text("of somebody else")
    with pytest.raises(NotArchived, match="name a new file"):
        archive(day(40), path)
    assert (path.read_text(), there()) == ("of somebody else", old)


def test_a_file_that_comes_meanwhile_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, path = happened(2, 60), tmp_path / "audit.jsonl"
    write = archiving._write

    def meanwhile(before: date, file: io.BufferedWriter) -> int:
        path.write_text("of another")
        return write(before, file)

    monkeypatch.setattr(archiving, "_write", meanwhile)
    with pytest.raises(NotArchived, match="File exists"):
        archive(day(40), path)
    assert (path.read_text(), there(), list(tmp_path.iterdir())) == ("of another", old, [path])


def test_a_file_of_another_day_is_not_gone_on_with(tmp_path: Path) -> None:
    happened(2, 60)
    path = tmp_path / "audit.jsonl"
    archive(day(50), path)
    later = happened(2, 45)
    with pytest.raises(NotArchived, match=f"older than {day(50)}"):
        archive(day(40), path)
    assert there() == later


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0].replace(b"queue 0", b"queue 9"), *lines[1:]],
        lambda lines: [lines[0], *lines[2:]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: lines[:-1],
        lambda lines: [*lines[:-1], lines[-1][:20]],
        lambda lines: [*lines[:-1], lines[-1].replace(b'"count":3', b'"count":4')],
        lambda lines: [*lines, b"{}\n"],
        lambda lines: [*lines[:-1], re.sub(rb'"before":"\d+', b'"before":"1999', lines[-1])],
        lambda lines: [b"[]\n"],
        lambda lines: [],
    ],
    ids=["changed", "a line less", "in another order", "no last line", "cut off", "another count",
         "a line more", "newer than it says", "a list", "empty"],
)  # fmt: skip
def test_of_a_file_that_is_not_as_it_was_nothing_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    old, path = happened(3, 60), tmp_path / "audit.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(archiving, "_remove_all", lambda path: 0)
        archive(day(40), path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    with pytest.raises(CommandError, match=r"archive|last line"):
        run("--check", path)
    with pytest.raises(NotArchived):
        archive(day(40), path)
    assert there() == old


def test_a_file_of_another_database_removes_nothing(tmp_path: Path) -> None:
    numbers, path = happened(3, 60), tmp_path / "audit.jsonl"
    archive(day(40), path)
    AuditEntry.objects.bulk_create(
        AuditEntry(pk=number, actor="ada", action="kernel.approve") for number in numbers
    )
    with pytest.raises(NotArchived, match="of another database"):
        archive(day(40), path)
    assert there() == numbers


def test_where_it_cannot_be_written_nothing_is_removed(tmp_path: Path) -> None:
    old = happened(2, 60)
    with pytest.raises(CommandError, match=r"No such file or directory.*nothing was removed"):
        run("--before", day(40), "--to", tmp_path / "nowhere" / "audit.jsonl")
    with pytest.raises(CommandError, match="cannot be read"):
        run("--check", tmp_path / "nothing")
    assert there() == old


def test_on_a_full_disk_nothing_is_removed(tmp_path: Path) -> None:
    old = happened(2, 60)
    with small_disk(tmp_path / "small", 64) as disk:
        filler = fill(disk)
        with pytest.raises(CommandError, match=r"The disk is full: .*nothing was removed"):
            run("--before", day(40), "--to", disk / "audit.jsonl")
        assert (there(), list(disk.iterdir())) == (old, [filler])
        filler.unlink()
        assert "2 were removed" in run("--before", day(40), "--to", disk / "audit.jsonl")
