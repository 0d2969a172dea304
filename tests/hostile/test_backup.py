"""A backup is taken from a service that answers, and what is restored from it answers the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import Deployment

pytestmark = pytest.mark.slow


@pytest.fixture
def sqlite(deploy: Callable[..., Deployment]) -> Deployment:
    return deploy()


def elsewhere(deployment: Deployment, folder: Path, **variables: str) -> Deployment:
    """The same service with an empty home and no database."""
    home = {"OPATLAS_HOME": str(folder), "OPATLAS_NODE": "another"}
    return replace(deployment, environment={**deployment.environment, **home, **variables})


def refused(deployment: Deployment, *arguments: str) -> str:
    """A command that ends with a sentence."""
    process = deployment.start("manage.py", *arguments)
    _, said = process.communicate(timeout=120)
    assert process.returncode != 0 and "Traceback" not in said, said
    return said.strip().splitlines()[-1]


def answers(deployment: Deployment, key: str) -> list[Any]:
    return [json.loads(line) for line in deployment.run("-m", "tests.hostile.lookups", key).splitlines()]


def counts(deployment: Deployment) -> tuple[int, int]:
    ((usage,),) = deployment.query("SELECT COUNT(*) FROM catalog_usage")
    ((tally,),) = deployment.query("SELECT COALESCE(SUM(hits), 0) FROM catalog_lookuptally")
    return int(usage), int(tally)


def comes_back(before: Deployment, after: Deployment, destination: Path, folder: Path) -> None:
    """Back up under load, restore, compare."""
    key = before.run("-m", "tests.hostile.lookups", "publish", str(folder / "made")).strip()
    served = answers(before, key)
    assert sum(one["status"] == "hit" for one in served[0]["results"]) == 3
    writer = before.start("-m", "tests.hostile.journalling", "0.005")  # each is a row to be restored
    assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
    for _ in range(50):
        assert writer.stdout.readline() == "answered\n"
    answered = 50 * 2 + 3  # of two operators each, and those above
    drainer = before.start("manage.py", "drain_journal", "--every", "0.05")
    try:
        assert "Backed up: " in before.manage("backup", str(destination))
        assert writer.poll() is None and drainer.poll() is None, "it was under load all the while"
    finally:
        for process in (writer, drainer):
            process.kill()
            process.communicate()
    assert "Restored: " in after.manage("restore", str(destination))
    after.manage("drain_journal")
    usage, tally = counts(after)
    assert usage == tally and usage >= answered, "what was answered before is counted"
    items = 'SELECT COUNT(*) FROM (SELECT DISTINCT segment, "offset", item FROM catalog_usage) AS items'
    assert after.query(items) == [(usage,)], "once, though the machine has another name"
    assert json.dumps(answers(after, key)) == json.dumps(served)
    assert "0 are damaged" in after.manage("scrub")


def test_on_sqlite_into_a_folder(sqlite: Deployment, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    key = Path(sqlite.environment["OPATLAS_HOME"], "signing_key.pem")
    key.write_text("a private key")
    comes_back(sqlite, elsewhere(sqlite, tmp_path / "new"), backup, tmp_path)
    modes = {path.stat().st_mode & 0o777 for path in backup.rglob("*") if path.is_file()}
    assert modes == {0o600} and backup.stat().st_mode & 0o777 == 0o700
    restored = tmp_path / "new" / "signing_key.pem"
    assert (restored.read_text(), restored.stat().st_mode & 0o777) == ("a private key", 0o600)
    assert "is not empty" in refused(elsewhere(sqlite, tmp_path / "new"), "restore", str(backup))


@pytest.mark.services
@pytest.mark.nightly
def test_on_postgres_into_a_file(
    deploy: Callable[..., Deployment], private_postgres: Any, tmp_path: Path
) -> None:
    def of(name: str) -> str:
        return name.replace("opatlas@", "opatlas:very-secret@")

    before = deploy(DATABASE_URL=of(private_postgres.new_database(migrated=True)))
    after = elsewhere(before, tmp_path / "new", DATABASE_URL=of(private_postgres.new_database()))
    comes_back(before, after, tmp_path / "backup.tar", tmp_path)
    assert (tmp_path / "backup.tar").stat().st_mode & 0o777 == 0o600
    assert "The database is not empty" in refused(after, "restore", str(tmp_path / "backup.tar"))
    alone = elsewhere(before, tmp_path / "third")
    del alone.environment["DATABASE_URL"]
    assert "is of a service on postgresql" in refused(alone, "restore", str(tmp_path / "backup.tar"))
