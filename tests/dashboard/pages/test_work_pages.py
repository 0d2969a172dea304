"""Explorations, queues, the collect queue and jobs as people use them, without JavaScript."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from catalog import models as c
from catalog.usage import job_days
from tests.dashboard.factory import Factory, full_catalogue, resnet_operators
from tests.dashboard.people import member_client
from tuning import models as t
from tuning.queue import rates

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str) -> str:
    answer = client.get(path, follow=True)
    assert answer.status_code == 200, path
    return answer.content.decode()


@pytest.fixture
def tenant_operator(db: None) -> tuple[c.Organisation, Client]:
    """Somebody who operates what one tenant owns."""
    organisation = c.Organisation.objects.create(name="a tenant")
    return organisation, member_client(organisation, c.Role.OPERATOR, "tina")


def test_every_figure_of_a_job_says_of_which_time_it_is(pages: Client, catalogue: Factory) -> None:
    job = c.Job.objects.get(name="nightly-train", organisation=catalogue.organisation)
    page = text_of(pages, f"/jobs/{job.pk}/?range=30d")
    figures = page[page.index('<dl class="figures">') :].partition("</dl>")[0]
    said = [re.sub(r"<[^>]+>", "", one) for one in re.findall(r"<dt>(.*?)</dt>", figures)]
    assert {one.rpartition(", ")[2] for one in said} == {"in all", "now", "30d"}, said
    titles = [re.sub(r"<[^>]+>", "", one) for one in re.findall(r"<h2[^>]*>(.*?)</h2>", page)]
    timed = ("in all", "now", "30d", "since the beginning")
    assert all(one.endswith(timed) for one in titles), titles


def test_every_page_of_the_part_answers(pages: Client, catalogue: Factory) -> None:
    job = c.Job.objects.get(name="nightly-train")
    for path in (
        "/queues/", "/queues/?seen=x", "/queues/collect/", "/queues/collect/?state=waiting&q=Conv", "/jobs/",
        "/jobs/?q=night", f"/jobs/{job.pk}/", f"/jobs/{job.pk}/?range=1y&status=miss&sort=-saved",
        f"/jobs/{job.pk}/?range=never&status=x&sort=%00", "/queues/collect/?state=x&reason=%00&q=%00",
    ):  # fmt: skip
        text_of(pages, path)


def test_what_is_shown_can_be_had_as_csv_and_json(pages: Client, catalogue: Factory) -> None:
    for path, table in (
        ("/queues/", "lanes"), ("/queues/", "capabilities"), ("/queues/", "workers"),
        ("/queues/", "throughput"), ("/queues/", "reasons"), ("/queues/", "dead"),
        ("/queues/collect/", "misses"), ("/jobs/", "jobs"), ("/explorations/", "explorations"),
    ):  # fmt: skip
        rows = pages.get(path, {"export": "json", "table": table}).json()["rows"]
        assert rows, table
        lines = pages.get(path, {"export": "csv", "table": table}).content.decode().splitlines()
        assert lines[0].split(",") == list(rows[0]), table


def test_an_export_respects_the_filters(pages: Client, catalogue: Factory) -> None:
    rows = pages.get("/explorations/?state=dead&export=json").json()["rows"]
    assert [row["state"] for row in rows] == ["dead"]
    waiting = pages.get("/queues/collect/?state=waiting&export=json").json()["rows"]
    assert {row["state"] for row in waiting} == {"waiting"}


def test_a_running_exploration_shows_its_progress_time_left_and_log(
    pages: Client, catalogue: Factory
) -> None:
    row = t.Exploration.objects.get(state="running", stage=0)
    html = text_of(pages, f"/explorations/{row.pk}/")
    assert f'<progress class="bar" max="9" value="{row.steps_done}"' in html
    assert f"{row.steps_done} of 9 steps" in html
    assert "Time left" in html and "about" in html
    assert "onnxruntime: timing" in html  # what the worker does now
    assert "worker-1@node" in html  # who holds the lease


def test_a_dead_one_says_its_last_words(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.get(state="dead")
    html = text_of(pages, f"/explorations/{row.pk}/")
    assert "signal 11 (SIGSEGV)" in html and "Traceback" in html
    assert "was lost 3 times" in html
    assert text_of(pages, "/queues/").count("was lost 3 times") == 1  # a dead letter


def test_discarding_takes_a_reason_that_people_read(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="queued").first()
    assert row is not None
    pages.post(f"/explorations/{row.pk}/discard/", {"reason": "nobody runs it"})
    row.refresh_from_db()
    assert (row.state, row.reason) == ("discarded", "nobody runs it (discarded by admin)")


def test_several_at_once_and_what_could_not_be(pages: Client, catalogue: Factory) -> None:
    queued = list(t.Exploration.objects.filter(state="queued").values_list("pk", flat=True))[:3]
    done = t.Exploration.objects.filter(state="done").values_list("pk", flat=True)[0]
    answer = pages.post(
        "/explorations/bulk/",
        {"id": [*queued, done], "verb": "pause", "next": "/explorations/?state=active"}, follow=True,
    )  # fmt: skip
    assert answer.redirect_chain[0][0] == "/explorations/?state=active"
    html = answer.content.decode()
    assert "3 explorations paused." in html
    assert f"Cannot pause exploration {done}: it is done" in html
    assert t.Exploration.objects.filter(pk__in=queued, state="paused").count() == 3


def test_the_form_of_several_leads_nowhere_else(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state="queued").first()
    assert row is not None
    answer = pages.post(
        "/explorations/bulk/", {"id": row.pk, "verb": "pause", "next": "https://evil.example/"}
    )
    assert answer.headers["Location"] == "/explorations/"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"verb": "pause"}, "Choose one or more explorations first."),
        ({"verb": "pause", "id": ["x", "-1"]}, "Choose one or more explorations first."),
        ({"verb": "pause", "id": ["99999999"]}, "There is no exploration 99999999."),
        ({"verb": "prioritise", "id": ["1"], "priority": "many"}, "priority"),
        ({"verb": "pause", "id": [str(n) for n in range(1, 300)]}, "Name 1 to 200 rows"),
    ],
)
def test_bad_input_is_one_sentence(
    pages: Client, catalogue: Factory, data: dict[str, Any], says: str
) -> None:
    if data.get("priority"):
        data = data | {"id": [str(t.Exploration.objects.filter(state="queued")[0].pk)]}
    before = list(t.Exploration.objects.order_by("pk").values_list("pk", "state", "priority"))
    answer = pages.post("/explorations/bulk/", data, follow=True)
    assert says in answer.content.decode()
    assert before == list(t.Exploration.objects.order_by("pk").values_list("pk", "state", "priority"))


def test_a_miss_is_explored_by_hand(pages: Client, catalogue: Factory) -> None:
    miss = c.Miss.objects.filter(state="discarded").first()
    assert miss is not None
    pages.post("/queues/collect/bulk/", {"id": miss.pk, "verb": "explore", "priority": "0"})
    miss.refresh_from_db()
    row = t.Exploration.objects.get(operator=miss.operator)
    assert (miss.state, row.state, row.priority) == ("promoted", "queued", 0)


def test_a_miss_is_discarded_with_a_reason(pages: Client, catalogue: Factory) -> None:
    miss = c.Miss.objects.filter(state="waiting").first()
    assert miss is not None
    answer = pages.post(f"/queues/collect/{miss.pk}/discard/", {"reason": "a typo"}, follow=True)
    assert answer.status_code == 200
    miss.refresh_from_db()
    assert (miss.state, miss.reason) == ("discarded", "a typo (discarded by admin)")
    assert "a typo" in text_of(pages, "/queues/")


def test_pausing_one_queue_with_a_reason(pages: Client, catalogue: Factory) -> None:
    pages.post("/queues/pause/", {"capability": "cpu.zen3", "reason": "new firmware"})
    html = text_of(pages, "/queues/")
    assert "new firmware (paused by admin)" in html
    assert "It is paused." in html  # no time to drain can be said
    pages.post("/queues/resume/", {"capability": "cpu.zen3"})
    assert not t.Pause.objects.exists()


def test_a_reader_looks_and_changes_nothing(reader: Client, catalogue: Factory) -> None:
    for path in ("/queues/", "/queues/collect/", "/explorations/"):
        html = text_of(reader, path)
        for control in ('type="checkbox"', 'name="verb"', 'action="/queues/pause/"'):
            assert control not in html, (path, control)
    row = t.Exploration.objects.filter(state="queued").first()
    miss = c.Miss.objects.filter(state="waiting").first()
    assert row is not None and miss is not None
    assert reader.post(f"/explorations/{row.pk}/pause/").status_code == 403
    assert reader.post(f"/queues/collect/{miss.pk}/explore/").status_code == 403
    assert reader.post("/queues/pause/").status_code == 403
    html = reader.post("/explorations/bulk/", {"id": row.pk, "verb": "pause"}, follow=True).content.decode()
    assert "only operators of the host organisation may change it" in html
    row.refresh_from_db()
    assert row.state == "queued"


def test_a_tenants_operator_steers_what_the_tenant_owns_and_nothing_else(
    tenant_operator: tuple[c.Organisation, Client], catalogue: Factory
) -> None:
    organisation, client = tenant_operator
    shared, own, foreign = t.Exploration.objects.filter(state="queued").order_by("pk")[:3]
    for row, owner in ((own, organisation), (foreign, c.Organisation.objects.create(name="others"))):
        row.scope, row.owner = f"org:{owner.pk}", owner
        row.save()
    assert client.post(f"/explorations/{own.pk}/pause/").status_code == 302
    assert client.post(f"/explorations/{shared.pk}/pause/").status_code == 403
    assert client.post(f"/explorations/{foreign.pk}/pause/").status_code == 404
    assert client.get(f"/explorations/{foreign.pk}/").status_code == 404
    assert client.post("/queues/pause/").status_code == 403
    states = dict(t.Exploration.objects.values_list("pk", "state"))
    assert (states[own.pk], states[shared.pk], states[foreign.pk]) == ("paused", "queued", "queued")


def test_a_tenant_sees_its_own_jobs_and_models_only(
    tenant_operator: tuple[c.Organisation, Client], catalogue: Factory
) -> None:
    organisation, client = tenant_operator
    mine = c.Job.objects.create(organisation=organisation, name="ours")
    theirs = c.Job.objects.get(name="nightly-train")
    html = text_of(client, "/jobs/")
    assert "ours" in html and "nightly-train" not in html
    assert client.get(f"/jobs/{mine.pk}/").status_code == 200
    assert client.get(f"/jobs/{theirs.pk}/").status_code == 404
    model = c.Model.objects.first()
    assert model is not None
    assert client.get(f"/models/{model.pk}/").status_code == 404
    assert "ResNet-50 (sample)" not in text_of(client, "/models/").split("Nothing at hand")[0]


def test_a_job_says_what_is_missing_and_why(pages: Client, db: None) -> None:
    factory = Factory()
    operators = resnet_operators(factory, 4)
    factory.implement(operators[0])
    factory.miss(operators[1], "discarded", "needs 41 GB of memory")
    factory.miss(operators[2], "waiting")
    job = factory.job("train", operators)
    html = text_of(pages, f"/jobs/{job.pk}/")
    assert "1 of 4 operators" in html
    for words in ("needs 41 GB of memory", "waiting to be decided on", "its miss was not queued"):
        assert words in html, words


def test_a_job_says_who_answered_and_what_was_fetched_for_later(pages: Client, db: None) -> None:
    factory = Factory()
    operators = resnet_operators(factory, 2)
    job = factory.job("train", operators)
    path = f"/jobs/{job.pk}/"
    assert "reported nothing that came along" in text_of(pages, path)
    c.JobOperator.objects.update(hits=0, misses=0)
    c.JobOperator.objects.filter(operator=operators[0]).update(hits=80, misses=10)
    said = {"memory_hits": 50, "machine_hits": 20, "unasked_misses": 10}
    along = {"prefetched": 8, "prefetched_used": 6, "prefetched_bytes": 9000, "prefetched_used_bytes": 5000}
    job_days.add_cache_day(job.pk, factory.now, said | along | {"prefetch_requests": 2})
    html = text_of(pages, path)
    drawn = re.findall(r'<rect data-part="(\w+)" x="([\d.]+)" width="([\d.]+)"', html)
    assert [(part, float(start), float(width)) for part, start, width in drawn] == [
        ("memory", 0, 50), ("machine", 50, 20), ("service", 70, 10), ("missed", 80, 10), ("unasked", 90, 10),
        ("used", 0, 75), ("wasted", 75, 25),
    ]  # fmt: skip
    for words in ("<dd>80 %</dd>", "<dd>70 %</dd>", "<strong>4</strong>", "<strong>4.00 kB</strong>"):
        assert words in html, words

    def rows(table: str, of: str = path) -> Any:
        return pages.get(of, {"export": "json", "table": table}).json()["rows"]

    assert [row["lookups"] for row in rows("sources")] == [50, 20, 10, 10, 10]
    assert [(row["operators"], row["bytes"]) for row in rows("prefetched")] == [(6, 5000), (2, 4000)]
    assert sum(row["cached_hits"] for row in rows("days")) == 70
    (row,) = rows("jobs", "/jobs/")
    assert (row["cached_share"], row["service_hits"], row["prefetched_used"]) == (0.7, 10, 6)


def test_lists_beyond_the_bound_are_not_counted(
    pages: Client, catalogue: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.web.paging.COUNTED", 5)
    html = text_of(pages, "/explorations/?page=999")
    assert "of 5+ explorations" in html


def test_no_page_takes_a_query_per_row(db: None, queries_of: Callable[[str], int]) -> None:
    factory = full_catalogue(hours=2)
    job = c.Job.objects.get(name="nightly-train")
    paths = ("/explorations/", "/queues/", "/queues/collect/", "/jobs/", f"/jobs/{job.pk}/", "/models/")
    before = {path: queries_of(path) for path in paths}
    more = [factory.operator("Relu", f"Relu {n}×77 float32") for n in range(25)]
    for n, operator in enumerate(more):
        factory.implement(operator)
        factory.trials(factory.explore(operator, ("queued", "running", "dead")[n % 3], n % 2))
        factory.job(f"job {n}", more)
        factory.model(f"model {n}", more)
    for n in range(25):
        factory.miss(factory.operator("Add", f"Add {n}×77 float32"), "postponed", f"reason {n}")
    c.JobOperator.objects.bulk_create(c.JobOperator(job=job, operator=operator, hits=1) for operator in more)
    after = {path: queries_of(path) for path in paths}
    assert after == before


def test_a_models_export_and_coverage(pages: Client, catalogue: Factory) -> None:
    model = c.Model.objects.get(name="bert-base")
    html = text_of(pages, f"/models/{model.pk}/")
    assert "Calls covered" in html and "Saved per run" in html
    rows = json.loads(pages.get(f"/models/{model.pk}/?export=json&table=operators").content)["rows"]
    assert len(rows) == model.operators.count()
    missing = pages.get(f"/models/{model.pk}/?export=json&table=missing").json()["rows"]
    assert sum(row["operators"] for row in missing) == sum(row["status"] != "hit" for row in rows)


def test_the_queues_say_what_is_proved_again(pages: Client, catalogue: Factory) -> None:
    html = text_of(pages, "/queues/")
    assert "Proved again" in html and "could not be reproduced" in html
    rows = json.loads(pages.get("/queues/?export=json&table=rechecks").content)["rows"]
    assert rows[0]["state"] == "waiting" and len(rows) == 4
    assert "error code" not in html, "what clients said is theirs"


def test_a_priority_that_does_not_exist_is_shown_as_unknown(pages: Client, catalogue: Factory) -> None:
    row = t.Exploration.objects.filter(state=t.State.QUEUED).latest("pk")
    t.Exploration.objects.filter(pk=row.pk).update(priority=7)
    for path in ("/queues/", "/explorations/?state=queued", f"/explorations/{row.pk}/"):
        assert "unknown (7)" in text_of(pages, path), path
    assert 'priority="unknown (7)"' in text_of(pages, "/metrics")


@pytest.mark.parametrize("path", ["/queues/", "/explorations/"])
def test_what_a_process_keeps_between_pages_tells_nobody_of_others(
    tenant_operator: tuple[c.Organisation, Client], pages: Client, catalogue: Factory, path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Paces are the whole service's; who holds what is asked for each reader."""
    at = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: at)
    private = t.Exploration.objects.filter(state=t.State.RUNNING).first()
    assert private is not None
    other = c.Organisation.objects.create(name="another tenant")
    worker = t.Worker.objects.create(
        name="w9", host="here", pid=1, target=private.target, last_seen_at=at, doing="timing"
    )
    t.Exploration.objects.filter(pk=private.pk).update(
        scope=f"org:{other.pk}", lease_owner=f"{worker.name}/1"
    )
    _, tenant = tenant_operator

    def seen(client: Client) -> str:
        return re.sub(r'value="\w{64}"', "", text_of(client, path))

    alone = seen(tenant)
    rates.forget()
    everything = seen(pages)  # and from now on its paces are kept
    assert f"/explorations/{private.pk}/" in everything
    assert seen(tenant) == alone and f"/explorations/{private.pk}/" not in alone
