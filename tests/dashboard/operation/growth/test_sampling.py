"""What tables, folders and disks are said to take is what they take."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from catalog.conf import conf, journal_folder
from catalog.models import Organisation
from dashboard.operation.growth import sampling
from dashboard.operation.growth.rules import rules
from dashboard.operation.models import SizeSample

pytestmark = pytest.mark.django_db
KIB = 1024


@pytest.fixture(autouse=True)
def home(configure: Any, tmp_path: Path) -> Path:
    configure(home=tmp_path / "home", store=tmp_path / "home" / "deep" / "artifacts")
    journal_folder().mkdir(parents=True)
    return tmp_path / "home"


def write(path: Path, kib: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(kib * KIB))


def du(path: Path) -> int:
    """Bytes of the files below, as the system's own programs count them; folders' own aside."""
    files = f"find {path} -not -type d -print0 | du --block-size=1 --files0-from=-"
    said = subprocess.run(files, shell=True, check=True, capture_output=True, text=True)
    return sum(int(line.split()[0]) for line in said.stdout.splitlines())


def sampled() -> dict[str, SizeSample]:
    return {row.name: row for row in sampling.sampled(timezone.now())}


def test_folders_take_what_their_files_take_and_nothing_counts_twice(home: Path) -> None:
    write(conf().store / "ab" / "cd" / "file", 300)
    write(journal_folder() / "1.journal", 40)
    write(home / "mail" / "1.eml", 20)
    write(home / "secret_key", 1)
    (home / "another way there").symlink_to(conf().store)
    found = sampled()
    assert found[sampling.STORE].bytes == du(conf().store) >= 300 * KIB
    assert found[sampling.JOURNAL].bytes == du(journal_folder()) >= 40 * KIB
    rest = du(home) - du(conf().store) - du(journal_folder())
    assert found[sampling.STATE].bytes == rest and 21 * KIB <= rest < 100 * KIB
    on = {(row.disk, row.free_bytes is None) for row in found.values() if row.name in sampling.FOLDERS}
    ((mount, unknown),) = on
    assert Path(mount).is_mount() and not unknown


def test_a_folder_that_is_not_there_is_not_measured(home: Path) -> None:
    assert sampling.STORE not in sampled() and sampling.JOURNAL in sampled()


def test_once_the_time_is_up_the_rest_counts_as_what_was_seen(tmp_path: Path) -> None:
    for number in range(8):
        write(tmp_path / "many" / f"{number}" / "file", 64)
    whole = sampling.folder_bytes(tmp_path / "many")
    assert whole == du(tmp_path / "many")
    assert sampling.folder_bytes(tmp_path / "many", limit_s=-1) == whole


def test_the_database_takes_what_its_server_says() -> None:
    Organisation.objects.bulk_create(Organisation(name=f"{n} {'x' * 150}") for n in range(500))
    found = sampled()
    if connection.vendor == "sqlite":
        path = Path(str(connection.settings_dict["NAME"]))
        there = [Path(f"{path}{end}") for end in ("", "-wal", "-shm")]
        assert found[sampling.DATABASE].bytes == sum(one.stat().st_size for one in there if one.exists()) > 0
        assert found[sampling.DATABASE].disk and found[sampling.DATABASE].free_bytes
        return
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE parted (at int, what text) PARTITION BY RANGE (at)")
        for number in range(3):
            bounds = f"FROM ({number}) TO ({number + 1})"
            cursor.execute(f"CREATE TABLE parted_{number} PARTITION OF parted FOR VALUES {bounds}")
        cursor.execute("INSERT INTO parted SELECT n % 3, repeat('x', 500) FROM generate_series(1, 3000) n")
        cursor.execute("ANALYZE parted, catalog_organisation")
        cursor.execute("SELECT SUM(pg_total_relation_size('parted_' || n)) FROM generate_series(0, 2) n")
        (whole,) = cursor.fetchone()
    found = sampled()
    assert (found["parted"].bytes, found["parted"].rows) == (whole, 3000)
    assert found["catalog_organisation"].rows == Organisation.objects.count()
    assert found["catalog_organisation"].bytes > 500 * 150
    assert not [name for name in found if name.startswith(("parted_", "pg_"))]
    assert {row.disk for row in found.values() if row.name not in sampling.FOLDERS} == {""}


def test_it_is_done_once_a_day_and_what_is_old_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    SizeSample.objects.create(at=now - timedelta(days=401), name="of long ago", bytes=1)
    sampling.sample_when_due()
    first = SizeSample.objects.count()
    assert first > 0 and not SizeSample.objects.filter(name="of long ago").exists()
    sampling.sample_when_due()
    assert SizeSample.objects.count() == first
    monkeypatch.setattr(sampling.timezone, "now", lambda: now + timedelta(days=1, minutes=1))
    sampling.sample_when_due()
    assert SizeSample.objects.values("at").distinct().count() == 2


def test_every_rule_is_of_something_that_there_is() -> None:
    named = set(rules())
    there = {*connection.introspection.table_names(), *sampling.FOLDERS, sampling.DATABASE}
    assert named <= there
    assert "90 days" in rules()["tuning_trial"] and "1 day after" in rules()["artifact store"]
