"""Archiving the audit log: killed anywhere it loses nothing; on PostgreSQL one role alone removes rows."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from catalog.people.archiving import ARCHIVIST
from tests.hostile.conftest import Deployment

pytestmark = pytest.mark.slow

COUNT = 1200
ENTRIES = f"""
import django; django.setup()
from datetime import timedelta
from unittest import mock
from django.utils import timezone
from catalog.models import AuditEntry
with mock.patch("django.utils.timezone.now", return_value=timezone.now() - timedelta(days=60)):
    AuditEntry.objects.bulk_create(
        AuditEntry(actor="ada", action="queue.pause", subject=str(n)) for n in range({COUNT})
    )
"""
SERVICE = "archiving_service"
OWNED = f"""
DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('ALTER TABLE %I OWNER TO {SERVICE}', name);
    END LOOP;
END $$
"""


def asked(path: Path) -> list[str]:
    day = (datetime.now(UTC) - timedelta(days=40)).date()
    return ["archive_audit", "--before", str(day), "--to", str(path)]


def counted(deployment: Deployment, action: str) -> int:
    ((count,),) = deployment.query(f"SELECT COUNT(*) FROM catalog_auditentry WHERE action = '{action}'")
    return int(count)


@pytest.mark.parametrize(
    ("fault", "left"),
    [
        pytest.param("audit-exported=kill", COUNT, marks=pytest.mark.nightly),
        ("audit-removing=kill@2", COUNT - 500),
    ],
)
def test_killed_anywhere_it_goes_on(
    deploy: Callable[..., Deployment], tmp_path: Path, fault: str, left: int
) -> None:
    deployment, path = deploy(), tmp_path / "audit.jsonl"
    deployment.run("-c", ENTRIES)
    killed = replace(deployment, environment={**deployment.environment, "OPATLAS_FAILPOINTS": fault})
    process = killed.start("manage.py", *asked(path))
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert counted(deployment, "queue.pause") == left
    assert f"{COUNT} entries" in deployment.manage("archive_audit", "--check", str(path))
    assert f"{left} were removed" in deployment.manage(*asked(path))
    assert counted(deployment, "queue.pause") == 0
    assert counted(deployment, "audit.archive") == 1


@contextmanager
def service_role(url: str) -> Iterator[psycopg.Connection[Any]]:
    """The tables are an ordinary role's, as a service's are; gives the administrator's connection."""
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(f"CREATE ROLE {SERVICE} LOGIN")
        administrator.execute(OWNED.encode())
        try:
            yield administrator
        finally:
            known = administrator.execute("SELECT rolname FROM pg_roles").fetchall()
            for (name,) in known:
                if name in (SERVICE, ARCHIVIST):
                    administrator.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())


@pytest.mark.services
def test_on_postgres_nobody_but_the_archivist_removes_and_nobody_changes(
    deploy: Callable[..., Deployment], private_postgres: Any, tmp_path: Path
) -> None:
    url, path = private_postgres.new_database(migrated=True), tmp_path / "audit.jsonl"
    with service_role(url) as administrator:
        own = url.replace("opatlas@", f"{SERVICE}@")
        deployment = deploy(DATABASE_URL=own)
        deployment.run("-c", ENTRIES)

        process = deployment.start("manage.py", *asked(path))
        _, said = process.communicate(timeout=120)
        assert process.returncode == 1 and "Traceback" not in said and not path.exists(), said
        administrator.execute(said.strip().partition("administrator run ")[2].encode())

        def refused(statement: str, error: type[psycopg.Error], role: str = "") -> None:
            with psycopg.connect(own) as connection:
                if role:
                    connection.execute(f"SET ROLE {role}".encode())
                with pytest.raises(error):
                    connection.execute(statement.encode())

        remove, change = "DELETE FROM catalog_auditentry", "UPDATE catalog_auditentry SET actor = 'nobody'"
        added_to = psycopg.errors.RaiseException
        refused(remove, added_to)  # though it may become the archivist
        refused(change, added_to)
        refused(change, psycopg.errors.InsufficientPrivilege, ARCHIVIST)
        administrator.execute(f"GRANT UPDATE ON catalog_auditentry TO {ARCHIVIST}".encode())
        refused(change, added_to, ARCHIVIST)
        with psycopg.connect(url) as connection, pytest.raises(added_to):
            connection.execute(remove.encode())  # a superuser's own name is none either
        assert counted(deployment, "queue.pause") == COUNT

        assert f"{COUNT} were removed" in deployment.manage(*asked(path))
        assert counted(deployment, "queue.pause") == 0
        assert counted(deployment, "audit.archive") == 1
        assert path.stat().st_mode & 0o777 == 0o600
