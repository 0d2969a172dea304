"""Alive, and ready: each thing that a process needs, broken in turn."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.utils import timezone

from catalog.steps import LASTS, step
from dashboard.operation import readiness
from tuning.conf import conf

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh(configure: Any, tmp_path: Path) -> Iterator[None]:
    """Folders of its own, and nothing remembered."""
    configure(home=tmp_path / "home", store=tmp_path / "store")
    (tmp_path / "home").mkdir()
    readiness._migrations.cache_clear()
    yield
    readiness._migrations.cache_clear()


def ask() -> tuple[int, dict[str, Any]]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()


def test_everything_is_there() -> None:
    status, said = ask()
    assert (status, said["status"]) == (200, "ready")
    assert list(said["checks"]) == [
        "database", "migrations", "clock", "journal", "artifacts", "broker", "steps",
    ]  # fmt: skip
    assert all(check["ok"] and check["took_ms"] >= 0 for check in said["checks"].values())


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    ask()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_database_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("could not connect to server at 10.0.0.7 as opatlas")

    monkeypatch.setattr(connection, "cursor", refuse)
    status, said = ask()
    assert (status, said["status"]) == (503, "not ready")
    assert not said["checks"]["database"]["ok"] and not said["checks"]["migrations"]["ok"]
    assert said["checks"]["journal"]["ok"]
    assert "10.0.0.7" not in str(said)  # nobody outside learns where it is
    assert Client().get("/healthz").status_code == 200  # alive all the same


def test_missing_migrations() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'webhooks'")
    status, said = ask()
    assert status == 503 and "run manage.py migrate" in said["checks"]["migrations"]["detail"]


@pytest.mark.parametrize(("ahead_s", "said"), [
    (600, "s ahead of the database's: set it."), (-600, "s behind the database's: set it."), (2, ""),
])  # fmt: skip
def test_a_clock_that_differs_from_the_databases_is_told(
    monkeypatch: pytest.MonkeyPatch, ahead_s: int, said: str
) -> None:
    now = timezone.now
    monkeypatch.setattr(
        readiness, "timezone", SimpleNamespace(now=lambda: now() + timedelta(seconds=ahead_s))
    )
    status, answered = ask()
    assert (status, answered["status"]) == (200, "degraded" if said else "ready")
    assert said in answered["checks"]["clock"].get("detail", "")


@pytest.mark.parametrize(("check", "folder"), [("journal", "home/journal"), ("artifacts", "store")])
def test_folder_that_cannot_be_written(check: str, folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / folder).write_text("a file where a folder should be")
    status, said = ask()
    assert (status, said["status"]) == (503, "not ready")
    assert "cannot be written" in said["checks"][check]["detail"]
    assert [name for name, one in said["checks"].items() if not one["ok"]] == [check]


def test_broker_that_is_away_only_degrades(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "home/broker").write_text("no folder")
    status, said = ask()
    assert (status, said["status"]) == (200, "degraded") and not said["checks"]["broker"]["ok"]


def test_redis_that_is_away_only_degrades(
    settings: Any, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery import Celery

    configure(broker_url="redis://127.0.0.1:1/0")
    monkeypatch.setattr("tuning.celery.app", Celery("away", broker=conf().broker_url))
    status, said = ask()
    assert (status, said["status"]) == (200, "degraded") and not said["checks"]["broker"]["ok"]


@pytest.mark.services
def test_redis_that_is_there(
    settings: Any, configure: Any, private_redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery import Celery

    configure(broker_url=private_redis.new_url())
    monkeypatch.setattr("tuning.celery.app", Celery("there", broker=conf().broker_url))
    assert ask()[1]["status"] == "ready"


def test_work_that_fails_again_and_again_only_degrades_and_is_named() -> None:
    for times in range(1, LASTS + 1):
        assert ask()[1]["status"] == "ready", times
        with step("promoting misses"):
            raise KeyError("/srv/secret")
    status, said = ask()
    assert (status, said["status"]) == (200, "degraded"), "a load balancer must not end the lookups for it"
    detail = said["checks"]["steps"]["detail"]
    assert detail == "What fails again and again: promoting misses. The alerts say why."
    with step("promoting misses"):
        pass
    assert ask()[1]["status"] == "ready"
