"""Lookups that named no job are counted, listed and shown as a job's are, and are nobody's job."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Q
from django.test import Client

from catalog import models
from catalog.errors import Unknown
from catalog.lookup.reporting import CacheReport, record_report
from catalog.models import UNNAMED, Job, Succession
from catalog.people.keys import create_api_key
from catalog.rollups.rollups import refresh_rollups
from catalog.selectors import jobs, known, reuse, statistics
from catalog.timerange import parse_range
from catalog.usage.draining import drain_journal
from catalog.viewing import MAY, Viewer
from dashboard.notifications.write import subjects
from tests.catalog.conftest import ask, place_of, put, setting, target  # noqa: F401

# ruff: noqa: F811 - fixtures of other folders are imported by their names

pytestmark = pytest.mark.django_db
HOST = Viewer("ann", {}, MAY["admin"])


@pytest.fixture(autouse=True)
def own_state(configure: Any, tmp_path: Any) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home", store=tmp_path / "store")


@pytest.fixture
def asked(ask: Any, put: Any, organisation: Any, tenant: Any) -> None:
    """The same by a job, by one of a misleading name, and without a name; and without one elsewhere."""
    put(64, "eager", 1.0)
    put(64, "tvm", 2.5, method="compiler")
    for name in ("train", UNNAMED, ""):
        for _ in range(3):
            ask(64, 65, job=name, calls=2.0)
    ask(64, organisation=tenant)
    drain_journal()


def of(organisation: Any, name: str) -> Job:
    return Job.objects.get(organisation=organisation, name=name)


def figures(job: Job) -> tuple[Any, ...]:
    row = jobs.rows([job])[0]
    week = parse_range({}, "7d")
    return (
        row.operators, row.hits, row.misses, row.saved_us, jobs.coverage(job, {}), jobs.saved(job),
        [(slot.hits, slot.saved_us) for slot in jobs.over_time(job, week)],
        [(one.operator, one.hits, one.misses, one.calls, one.state) for one in
         jobs.operator_rows(job, {}, jobs.asked_for(job))],
    )  # fmt: skip


def test_the_figures_are_those_of_a_named_job(asked, organisation, tenant) -> None:
    assert figures(of(organisation, "")) == figures(of(organisation, "train"))
    assert jobs.rows([of(organisation, "")])[0].hits == 3
    assert jobs.rows([of(tenant, "")])[0].hits == 1, "each organisation has its own"


def test_what_its_clients_answered_themselves_is_counted_too(asked, organisation, put) -> None:
    best = models.Best.objects.get(rank=0).implementation_id
    record_report(organisation, "", CacheReport("c" * 32, 1, {best: 8.0}, {best: 4}, machine_hits=1))
    row = jobs.rows([of(organisation, "")])[0]
    assert (row.hits, row.memory_hits, row.machine_hits) == (7, 3, 1)


def test_it_is_no_job_where_jobs_are_counted(asked, organisation) -> None:
    refresh_rollups()
    operator = models.Best.objects.get(rank=0).operator
    assert statistics.jobs_served(HOST) == known.use_of(operator, HOST).jobs == 2
    assert {row.job.name for row in reuse.reuse(operator, HOST).jobs} == {"train", UNNAMED}
    assert models.OperatorTotal.objects.get(operator=operator, tenant="all").jobs == 2
    assert not models.Usage.objects.filter(job__name="").exists()
    assert Succession.objects.get().jobs == 2, "an order is a job's"


def test_it_is_listed_marked_found_and_exported(asked, organisation, pages: Client) -> None:
    unnamed, named = of(organisation, ""), of(organisation, UNNAMED)
    html = pages.get("/jobs/").content.decode()
    assert f'href="/jobs/{unnamed.pk}/"><em>{UNNAMED}</em></a>' in html
    assert f'href="/jobs/{named.pk}/">{UNNAMED}</a>' in html, "a job of that name is told apart"
    found = pages.get("/jobs/", {"q": "unnamed", "export": "json"}).json()["rows"]
    assert sorted(row["name"] for row in found) == ["", "", UNNAMED]
    assert {row["name"] for row in pages.get("/jobs/?q=train&export=json").json()["rows"]} == {"train"}
    assert jobs.jobs(Q(), "UNNAMED").count() == 3


def test_its_page_says_what_it_is_and_is_not_watched(asked, organisation, pages: Client) -> None:
    unnamed = of(organisation, "")
    html = pages.get(f"/jobs/{unnamed.pk}/").content.decode()
    assert f"<em>{UNNAMED}</em></h1>" in html and "that gave no job’s name" in html.replace("'", "’")
    assert "Watch" not in html.partition("<dl")[0].partition("<header")[2]
    assert pages.get(f"/jobs/{unnamed.pk}/?export=csv&table=operators").status_code == 200
    # Usage does not refer to it: nothing could ever be told.
    with pytest.raises(Unknown, match="You have no job"):
        subjects.job(HOST, unnamed.pk)
    assert subjects.job(HOST, of(organisation, "train").pk).title == "Job train"


def test_rest_has_it_with_an_empty_name(asked, organisation, client: Client) -> None:
    key = create_api_key(organisation, "reads", ["lookup"])[1]
    bearer = {"headers": {"Authorization": f"Bearer {key}"}}
    rows = client.get("/api/v1/jobs/", **bearer).json()["results"]
    assert [row["name"] for row in rows if row["id"] == of(organisation, "").pk] == [""]
    shown = client.get(f"/api/v1/statistics/jobs/{of(organisation, '').pk}", **bearer).json()
    assert (shown["job"]["name"], shown["job"]["hits"]) == ("", 3)


def test_where_it_was_only_missed_its_coverage_is_judged_there(ask, put, organisation, make_key) -> None:
    key = models.ApiKey.objects.get(prefix=make_key("lookup").split("_")[1])
    ask(65, api_key=key)
    drain_journal()
    unnamed = of(organisation, "")
    miss = models.Miss.objects.get()
    assert jobs.places_of(unnamed) == [(miss.target_id, miss.setting_id)]
    assert jobs.coverage(unnamed, {}).missing[0].state == "waiting"
