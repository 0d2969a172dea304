"""The page of what grows, and the same over REST: what is said of which samples, and to whom."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from catalog.models import Organisation
from catalog.people.keys import create_api_key
from dashboard.operation.growth import page as growth_page
from dashboard.operation.growth.selectors import measured
from dashboard.operation.models import SizeSample
from tests.dashboard.operation.growth.making import GB, SIZES, sizes
from tests.dashboard.people import member_client

pytestmark = pytest.mark.django_db


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/growth/{query}")
    assert answer.status_code == 200
    return answer.content.decode()


def test_it_says_when_the_disk_is_full_and_what_grows(pages: Client) -> None:
    sizes(timezone.now(), days=60)
    html = text(pages)
    assert "Nothing will be full within two years." in html
    assert "The database grows by " in html and "its server has cannot be seen from here" in html
    assert "catalog_usage" in html and "+21.0 MB" in html and "−" in html
    assert "Nothing was measured from" in html
    assert "Logs are kept for 90 days, trials for good." in html
    assert 'data-chart="taken"' in html
    assert "2 smaller ones" in html


def test_a_disk_that_fills_is_said_first(pages: Client) -> None:
    now = timezone.now()
    for day in range(3):
        at = now - timedelta(days=2 - day, minutes=1)
        SizeSample.objects.create(
            at=at, name="artifact store", bytes=GB, disk="/srv", free_bytes=GB * 3 - 12_000_000 * day
        )
    html = text(pages)
    assert "The disk will be full in about 8 months: what lies on it grows by 12.0 MB a day." in html
    assert "not within two years" in html, "the store itself does not grow"


def test_before_anything_is_known_that_is_said(pages: Client) -> None:
    html = text(pages)
    assert "Nothing was measured yet" in html and "data-chart" not in html
    sizes(timezone.now(), days=1)
    html = text(pages)
    assert "Measured since today; growth is known tomorrow." in html and "data-chart" not in html


def test_a_courier_that_is_away_is_noticed(pages: Client) -> None:
    sizes(timezone.now() - timedelta(days=6))
    assert "does the courier run?" in text(pages)


def test_the_chart_has_every_byte_once() -> None:
    now = timezone.now()
    sizes(now)
    found = measured(now)
    figure = growth_page.taken(found, ["artifact store", "catalog_usage"])
    assert [one["name"] for one in figure["data"]] == ["artifact store", "catalog_usage", "everything else"]
    for number, at in enumerate(found.moments):
        drawn = sum(one["y"][number] for one in figure["data"])
        taken = sum(SizeSample.objects.filter(at=at).values_list("bytes", flat=True))
        assert drawn == pytest.approx(taken / GB)


def test_the_export_has_all_that_was_measured_last(pages: Client) -> None:
    sizes(timezone.now(), small=40)
    rows = json.loads(pages.get("/growth/", {"export": "json", "table": "growth"}).content)["rows"]
    assert len(rows) == len(SIZES) + 40
    assert [row["bytes"] for row in rows] == sorted((row["bytes"] for row in rows), reverse=True)
    (store,) = (row for row in rows if row["name"] == "artifact store")
    assert store["disk"] == "/srv/opatlas" and store["full_in_days"] > 20_000 and store["rows"] is None
    disks = json.loads(pages.get("/growth/", {"export": "json", "table": "disks"}).content)["rows"]
    assert [row["disk"] for row in disks] == ["/srv/opatlas"]
    assert disks[0]["bytes_a_day"] == pytest.approx(50_000_000)


def test_what_is_no_longer_there_is_not_listed(pages: Client) -> None:
    now = timezone.now()
    sizes(now - timedelta(days=1))
    SizeSample.objects.create(at=now, name="catalog_usage", bytes=5 * GB)
    html = text(pages)
    assert "catalog_usage" in html and "tuning_trial" not in html


@pytest.mark.parametrize(("role", "allowed"), [("operator", True), ("admin", True), ("viewer", False)])
def test_it_is_for_who_runs_the_service(
    organisation: Organisation, tenant: Organisation, role: str, allowed: bool
) -> None:
    sizes(timezone.now())
    own = member_client(organisation, role)
    assert own.get("/growth/").status_code == (200 if allowed else 403)
    assert ('href="/growth/"' in own.get("/operators/").content.decode()) is allowed
    theirs = member_client(tenant, role)
    assert theirs.get("/growth/").status_code == 403
    assert 'href="/growth/"' not in theirs.get("/operators/").content.decode()


def test_over_rest_it_is_the_same_and_for_the_same(
    api_with: Any, make_key: Any, tenant: Organisation
) -> None:
    sizes(timezone.now())
    answer = api_with(make_key("operate")).get("statistics/growth").json()
    assert answer["said"].startswith("Nothing will be full") and answer["notes"]
    assert len(answer["things"]) == len(SIZES) + 4
    assert answer["disks"][0]["disk"] == "/srv/opatlas"
    for key in (make_key("lookup"), create_api_key(tenant, "theirs", ["operate", "admin"])[1]):
        assert api_with(key).get("statistics/growth").status_code == 403
