"""The overview: what it shows, to whom, over which time, and as a file."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from catalog import models as c
from catalog.rollups.rollups import refresh_rollups
from dashboard.notifications.models import Alert
from dashboard.pages.overview.overview import CHANGES_SHOWN
from dashboard.run import troubles
from tests.dashboard.factory import Factory, resnet_operators
from tests.figures.traffic_rows import lookups_of, messy_traffic
from tuning.models import Pause, Revalidation, Worker
from tuning.statistics import paid_back


def test_key_figures_lead_to_their_definitions(pages: Client, catalogue: Factory) -> None:
    html = pages.get("/").content.decode()
    for name in ("hit_rate", "saved", "reuse", "reuse_rate", "paid_back", "tuning_spent", "queue_depth"):
        assert f'/definitions/#{name}"' in html, name


def test_the_hit_rate_is_counted_by_what_the_url_says(pages: Client, catalogue: Factory) -> None:
    for by in ("lookups", "calls", "operators"):
        html = pages.get(f"/?by={by}&range=24h").content.decode()
        current = re.findall(r'<a href="([^"]*)" aria-current="true">', html)
        assert any(f"by={by}" in href for href in current), by
        # The other choices keep the range, and the ranges keep the choice.
        assert "range=24h&amp;by=" in html and f"by={by}&amp;range=7d" in html, by


def test_a_range_that_cannot_be_read_is_a_sentence_and_the_default(pages: Client, catalogue: Factory) -> None:
    for query in ("range=2w", "since=never", "since=2026-02-01&until=2026-01-01", "since=%00", "by=x"):
        answer = pages.get(f"/?{query}")
        assert answer.status_code == 200, query
    assert "range is one of" in pages.get("/?range=2w").content.decode()


def test_since_and_until_bound_what_is_counted(pages: Client, db: None) -> None:
    messy_traffic()
    refresh_rollups()
    rows = pages.get("/?since=2026-11-18&until=2026-11-19&export=json&table=traffic").json()["rows"]
    hits = lookups_of(c.Usage.objects.filter(served_at__date="2026-11-18"))
    assert len(rows) == 24
    assert sum(row["hits"] for row in rows) == hits > 0


def test_every_table_is_exported_as_it_is_shown(pages: Client, catalogue: Factory) -> None:
    html = pages.get("/").content.decode()
    for table in ("traffic", "saved", "routes", "reused", "savers", "wins"):
        assert f"export=csv&amp;table={table}" in html
        answer = pages.get(f"/?export=csv&table={table}")
        assert answer.headers["Content-Type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
        assert rows == [] or all(rows[0]), table
        assert len(rows) == len(pages.get(f"/?export=json&table={table}").json()["rows"]), table


def test_what_exploring_returned_within_its_first_hour_is_a_time(
    pages: Client, catalogue: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    young = paid_back.PaidBack(explored=9, spent_s=3600.0, saved_s=0.008064)
    monkeypatch.setattr(paid_back, "both", lambda *_: (young, {}))
    html = pages.get("/").content.decode()
    assert "<dd>−1 h 0 min</dd><dd>8.06 ms saved, 1 h 0 min of" in html


def test_declared_versions_are_marked_where_they_lie_in_the_time(pages: Client, catalogue: Factory) -> None:
    Revalidation.objects.all().delete()
    other = c.Environment.objects.order_by("pk").last()
    assert other is not None
    for before in (None, other):  # the first environment of a route is no change
        Revalidation.objects.create(target=catalogue.target, route="tvm", before=before, after=other)

    def marks() -> list[str]:
        source = re.search(
            r'<script id="hit-rate"[^>]*>(.*?)</script>', pages.get("/").content.decode(), re.S
        )
        assert source
        return [mark["hovertext"] for mark in json.loads(source[1])["layout"].get("annotations", [])]

    assert marks() == [f"tvm: {other} was declared for {catalogue.target.capability}"]
    assert "other versions declared" in pages.get("/").content.decode()
    Revalidation.objects.update(asked_at=timezone.now() - timedelta(days=20))
    assert marks() == []


def test_a_tenant_sees_its_own_traffic_only(client: Client, pages: Client, db: None) -> None:
    messy_traffic()
    refresh_rollups()
    span = "since=2026-09-01&until=2026-11-21&export=json&table=traffic"
    north = c.Organisation.objects.get(name="north")
    user = User.objects.create_user("someone")
    c.Membership.objects.create(user=user, organisation=north)
    client.force_login(user)
    seen = sum(row["hits"] for row in client.get(f"/?{span}").json()["rows"])
    assert seen == lookups_of(c.Usage.objects.filter(organisation=north))
    every = sum(row["hits"] for row in pages.get(f"/?{span}").json()["rows"])
    assert every == lookups_of(c.Usage.objects.all()) > seen
    south = c.Organisation.objects.get(name="south")
    theirs = pages.get(f"/?{span}&org={south.pk}").json()["rows"]
    assert sum(row["hits"] for row in theirs) == lookups_of(c.Usage.objects.filter(organisation=south))
    assert sum(row["hits"] for row in client.get(f"/?{span}&org={south.pk}").json()["rows"]) == seen
    assert pages.get("/?org=999999").status_code == pages.get("/?org=x²").status_code == 200
    html = client.get("/?range=1y").content.decode()
    assert "Charged" not in html  # a viewer sees no bill
    assert "exploring</a>, when it was asked for" not in html  # what the service spends is not theirs


def test_somebody_without_an_organisation_sees_no_traffic(reader: Client, db: None) -> None:
    messy_traffic()
    refresh_rollups()
    rows = reader.get("/?range=1y&export=json&table=traffic").json()["rows"]
    assert rows and not any(row["hits"] + row["misses"] for row in rows)


def test_before_anything_was_rolled_up_the_page_is_there(pages: Client, db: None) -> None:
    factory = Factory()
    for operator in resnet_operators(factory, 3):
        factory.implement(operator)
    html = pages.get("/").content.decode()
    assert "No lookups in this time" in html
    assert "The map is empty" not in html


@pytest.fixture
def trouble(catalogue: Factory, configure, tmp_path) -> None:
    """Every worker was stopped without a word, and two processes of this machine ended."""
    Worker.objects.update(last_seen_at=timezone.now() - timedelta(minutes=3), stopped_at=None)
    configure(home=tmp_path)
    (tmp_path / "run").mkdir()
    ended = troubles.Trouble("web", "was killed by SIGKILL", time.time() - 20, 1, troubles.AGAIN, 0.5)
    hung = troubles.Trouble(
        "courier", "gave no sign of life for 30 s (courier)", time.time(), 4, troubles.WAITS, 4
    )
    troubles.write(tmp_path / "run", [ended, hung])


def words(answer) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.content.decode()))


@pytest.mark.parametrize("path", ["/", "/queues/"])
def test_silent_workers_and_what_happened_to_processes_are_said_in_words(pages, trouble, path) -> None:
    said = words(pages.get(path))
    assert "Nobody explores for" in said and "there is no other" in said
    assert "None is there now." in said and ("3 silent workers" in said) == (path == "/")  # folded there
    assert (
        "The process web of this machine was killed by SIGKILL" in said and "and was started again." in said
    )
    assert "it is started again 4 s after that. It ended 4 times in a row." in said


def test_a_tenant_reads_nothing_of_this_machines_processes(reader, trouble) -> None:
    said = words(reader.get("/"))
    assert "Nobody explores for" in said and "of this machine" not in said


def test_where_all_is_well_it_says_so(pages, catalogue, configure, tmp_path) -> None:
    configure(home=tmp_path)
    Worker.objects.update(last_seen_at=timezone.now(), stopped_at=None)
    said = words(pages.get("/"))
    assert "Nobody explores" not in said and re.search(r"All well\. \d+ % of the lookups hit", said)
    assert "3 on cpu.zen3." in said
    pause = Pause.objects.create(capability="*", reason="a new disk")
    said = words(pages.get("/"))
    assert "Every queue is paused just now: a new disk." in said and "All well" not in said
    pause.delete()
    now = timezone.now()
    alert = Alert.objects.create(
        rule="hits_falling", cause="hits_falling:", severity="warning", state="acknowledged", text="t",
        path="/", fired_at=now, seen_at=now,
    )  # fmt: skip
    said = words(pages.get("/"))
    assert "1 alert that somebody has taken up goes on." in said and "All well" not in said
    alert.delete()
    assert "All well" in words(pages.get("/"))
    Worker.objects.update(last_seen_at=now - timedelta(minutes=3))
    assert "All well" not in words(pages.get("/"))


def test_routes_that_began_to_fail_since_yesterday_are_said(pages, reader, db) -> None:
    now, factory = timezone.now(), Factory()
    factory.operator("Relu", "Relu 64 float32")
    rows = {}
    for route, hours, over in (("xla", 30, None), ("halide", 5, 1), ("tvm", 2, None)):
        since = now - timedelta(hours=hours)
        facts = {"capability": "cpu.zen3", "route": route, "trials": 9, "operators": 4, "status": "crashed",
                 "reason": "no compiler", "since": since.isoformat()}  # fmt: skip
        ended = now - timedelta(hours=over) if over else None
        rows[route] = Alert.objects.create(
            rule="failing", cause=f"failing:{factory.target.pk}:{route}", severity="error", text="t",
            path="/", facts=facts, fired_at=since, seen_at=now, ended_at=ended,
            state="resolved" if over else "firing",
        )  # fmt: skip
    page = pages.get("/").content.decode()
    changed = page[page.index('id="changed-title"') :].partition("</section>")[0]
    said = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", changed))
    assert "0 new bests, 0 withdrawn, 2 routes began to fail." in said
    assert said.index("halide on cpu.zen3") > said.index("tvm on cpu.zen3") and "xla" not in said
    assert "since 5 h ago, until 1 h ago: no compiler" in said and "works again" in said
    assert f'href="/alerts/{rows["tvm"].pk}/"' in changed
    assert "began to fail" not in words(reader.get("/"))  # the host's affair


def test_what_changed_since_yesterday_is_said(pages, db) -> None:
    factory = Factory()
    fast, old = (factory.operator("Relu", f"Relu {length} float32") for length in (64, 65))
    (best,) = factory.implement(fast, [("tvm", "compiler", "tiled")])
    (gone,) = factory.implement(old, [("cpp", "manual", "by hand")])
    where = {**factory.where, "scope": "shared"}
    c.BestChange.objects.all().delete()  # the factory tells a past of its own
    c.BestChange.objects.create(operator=fast, **where, after=best.implementation, reason="first")
    made = c.Implementation.objects.filter(pk=gone.implementation_id)
    made.update(revoked_at=timezone.now(), revoked_reason="reads past its input")
    said = words(pages.get("/"))
    assert "1 new best, 1 withdrawn" in said and "reads past its input" in said
    c.BestChange.objects.update(created_at=timezone.now() - timedelta(hours=25))
    made.update(revoked_at=timezone.now() - timedelta(hours=25))
    assert "Nothing changed: no new best, nothing withdrawn." in words(pages.get("/"))


def test_the_newest_changes_are_shown_and_all_are_counted(pages, db) -> None:
    factory = Factory()
    names = [f"Relu {64 + n} float32" for n in range(CHANGES_SHOWN + 2)]
    for name in names:
        (best,) = factory.implement(factory.operator("Relu", name), [("tvm", "compiler", "tiled")])
    where = {**factory.where, "scope": "shared"}
    changes = c.BestChange.objects
    changes.all().delete()
    for name in names:
        operator = c.Operator.objects.get(summary=name)
        changes.create(operator=operator, **where, after=best.implementation, reason="first")
    newest = set(c.BestChange.objects.order_by("-pk").values_list("pk", flat=True)[: CHANGES_SHOWN + 1])
    changes.exclude(pk__in=newest).update(created_at=timezone.now() - timedelta(hours=25))
    page = pages.get("/").content.decode()
    shown = page[page.index('id="changed-title"') :].partition("</section>")[0]
    assert f"{CHANGES_SHOWN + 1} new bests, 0 withdrawn." in shown
    said = re.findall(r">(Relu \d+ float32)<", shown)
    assert said == names[-1 : -1 - CHANGES_SHOWN : -1]  # the newest first; one that counts is not shown
