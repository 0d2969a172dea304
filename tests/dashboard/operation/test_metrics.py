"""What Prometheus reads: what it says, who may, and what it costs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from catalog import models
from catalog.best.damage import note_damage
from catalog.conf import conf
from catalog.models import MissState, Organisation, TrafficSlot
from catalog.usage import journal
from dashboard.billing.models import Account
from dashboard.operation import gauges
from dashboard.operation.chores import Logbook
from dashboard.operation.models import ChoreRun
from dashboard.run.courier import Chore, Courier
from tests.dashboard.factory import Factory, resnet_operators
from tests.dashboard.webhooks.making import webhooks_of
from tuning.models import Exploration, Stage, Worker
from tuning.priority import Priority

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh() -> None:
    gauges.forget()


def scrape(**headers: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    gauges.forget()
    answer = Client().get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.content
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def value(found: Any, name: str, **labels: str) -> float:
    return found[name, frozenset(labels.items())]


def test_only_this_machine_reads_without_a_token(settings: Any) -> None:
    assert Client().get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="::1").get("/metrics").status_code == 200
    assert Client(REMOTE_ADDR="10.0.0.5").get("/metrics").status_code == 403
    assert Client().get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403
    assert Client().post("/metrics").status_code == 405


def test_with_a_token_who_knows_it_reads(configure: Any) -> None:
    configure(metrics_token="correct horse")
    outside = Client(REMOTE_ADDR="10.0.0.5")
    assert outside.get("/metrics", headers={"Authorization": "Bearer correct horse"}).status_code == 200
    for wrong in ("", "Bearer", "Bearer wrong", "correct horse", "Bearer ünïcode"):
        assert outside.get("/metrics", headers={"Authorization": wrong}).status_code == 403
    assert Client().get("/metrics").status_code == 403


def test_requests_are_counted_by_route(api: Any) -> None:
    labels = {"method": "GET", "route": "operator-list", "status": "200"}
    key = ("opatlas_http_requests_total", frozenset(labels.items()))
    before = scrape().get(key, 0)
    api.get("operators/")
    api.get("operators/?limit=2")
    found = scrape()
    assert found[key] == before + 2
    assert value(found, "opatlas_http_request_seconds_count", route="operator-list") >= 2
    Client().get("/never/heard/of/this")
    names = {dict(labels).get("route") for name, labels in scrape() if name == "opatlas_http_requests_total"}
    assert "none" in names and not any("never" in str(name) for name in names)


def test_unknown_methods_add_no_label(settings: Any) -> None:
    Client().generic("BREW", "/healthz")
    found = scrape()
    assert value(found, "opatlas_http_requests_total", method="other", route="healthz", status="405") >= 1


def test_queues_and_explorations(db: None) -> None:
    factory = Factory()
    first, second, third = resnet_operators(factory, 3)
    queued = factory.explore(first, "queued", 1)
    factory.explore(second, "running", 2)
    Exploration.objects.filter(pk=queued.pk).update(
        asked_at=timezone.now() - timedelta(minutes=10), priority=1, capability="cpu.zen5"
    )
    factory.miss(third, MissState.WAITING)
    found = scrape()
    stage, priority = queued.stage, 1
    labels = {"capability": "cpu.zen5", "stage": Stage(stage).name.lower(),
              "priority": Priority(priority).name.lower()}  # fmt: skip
    assert value(found, "opatlas_queue_depth", **labels) == 1
    assert 590 < value(found, "opatlas_queue_oldest_seconds", **labels) < 660
    assert value(found, "opatlas_explorations", state="queued") == 1
    assert value(found, "opatlas_explorations", state="running") == 1
    assert value(found, "opatlas_explorations", state="done") == 0
    assert value(found, "opatlas_collect_queue_depth") == 1


def test_workers_alive(db: None) -> None:
    factory = Factory()
    for name, ago_s in (("alive", 1), ("silent", 3600)):
        Worker.objects.create(
            name=name, host="node", pid=1, target=factory.target, tier="T1",
            last_seen_at=timezone.now() - timedelta(seconds=ago_s),
        )  # fmt: skip
    assert value(scrape(), "opatlas_workers_alive", capability=factory.target.capability) == 1


def test_lookups_are_summed_over_all_tenants(db: None) -> None:
    today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for grain, start, tenant, hits, misses in (
        ("day", today, "all", 40, 7), ("day", today - timedelta(days=1), "all", 2, 1),
        ("hour", today, "all", 40, 7), ("day", today, "org:1", 30, 5),
    ):  # fmt: skip
        TrafficSlot.objects.create(grain=grain, start=start, tenant=tenant, hits=hits, misses=misses)
    found = scrape()
    assert value(found, "opatlas_lookups_total", result="hit") == 42
    assert value(found, "opatlas_lookups_total", result="miss") == 8


def test_journal_that_was_not_drained(db: None, configure: Any, tmp_path: Any) -> None:
    configure(home=tmp_path)
    folder = tmp_path / "journal"
    folder.mkdir()
    (folder / f"one{journal.SUFFIX}").write_bytes(b"x" * 1000)
    (folder / f"two{journal.SUFFIX}").write_bytes(b"x" * 500)
    path = journal.segments()[0]
    models.JournalSegment.objects.create(node=conf().node, segment=path.name, drained_bytes=400)
    assert value(scrape(), "opatlas_journal_undrained_bytes") == 1100


def test_webhooks_backlog(db: None) -> None:
    webhooks_of(Organisation.objects.create(name="tenant"))
    found = scrape()
    assert value(found, "opatlas_webhooks_pending") == 8
    assert value(found, "opatlas_webhook_endpoints_failing") == 1
    assert value(found, "opatlas_webhook_endpoints_disabled") == 1


def fine() -> None:
    """A chore."""


def broken() -> None:
    """A chore that fails."""
    raise RuntimeError("no disk")


def test_chores_are_written_down_but_seldom(db: None) -> None:
    courier = Courier((Chore(f"{__name__}.fine", 0.0), Chore(f"{__name__}.broken", 0.0)))
    courier.round()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            courier.round()
    written = [one for one in queries if "operation_chorerun" in one["sql"]]
    assert written == []
    found = scrape()
    assert value(found, "opatlas_chore_runs_total", chore=f"{__name__}.fine") == 1
    assert value(found, "opatlas_chore_failures_total", chore=f"{__name__}.broken") == 1
    assert value(found, "opatlas_chore_last_success_timestamp_seconds", chore=f"{__name__}.fine") > 1.7e9
    assert ("opatlas_chore_last_success_timestamp_seconds",
            frozenset({("chore", f"{__name__}.broken")})) not in found  # fmt: skip
    assert "no disk" in ChoreRun.objects.get(name=f"{__name__}.broken").last_error


def test_a_failure_and_its_end_are_written_at_once(db: None) -> None:
    logbook = Logbook()
    for error in ("", "", "broke", "broke", ""):
        logbook.note("chore", 0.1, error)
    row = ChoreRun.objects.get()
    assert (row.runs, row.failures, row.last_error) == (5, 2, "")


def test_ledger_drift_shows(db: None) -> None:
    assert value(scrape(), "opatlas_ledger_drift_micros") == 0
    organisation = Organisation.objects.create(name="tenant")
    Account.objects.create(organisation=organisation, currency="EUR", balance_micros=5)
    assert value(scrape(), "opatlas_ledger_drift_micros") == 5


def test_database_that_is_away_is_said(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert value(scrape(), "opatlas_database_up") == 1

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OperationalError("away")

    monkeypatch.setattr(connection, "cursor", refuse)
    found = scrape()
    assert value(found, "opatlas_database_up") == 0
    assert any(name == "opatlas_http_requests_total" for name, _ in found)


def test_scrapes_in_a_row_ask_the_database_once(db: None) -> None:
    scrape()
    with CaptureQueriesContext(connection) as queries:
        Client().get("/metrics")
    assert len(queries) == 0
    gauges.forget()
    with CaptureQueriesContext(connection) as queries:
        Client().get("/metrics")
    assert 0 < len(queries) <= 20


def test_damaged_artifacts_are_counted_and_when_all_were_compared(catalogue: Factory) -> None:
    assert value(scrape(), "opatlas_artifacts_damaged") == 0
    note_damage(models.Artifact.objects.filter(implementations__isnull=False).first(), "artifact is damaged")
    ended = timezone.now()
    models.ScrubPass.objects.create(pk=1, ended_at=ended)
    found = scrape()
    assert value(found, "opatlas_artifacts_damaged") == 1
    assert value(found, "opatlas_store_compared_timestamp_seconds") == pytest.approx(ended.timestamp())
