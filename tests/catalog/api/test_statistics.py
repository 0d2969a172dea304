"""Statistics over REST: the pages' figures, a key's own organisation, sentences for what cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import models
from catalog.figures import FIGURES
from catalog.people.keys import create_api_key
from catalog.rollups.rollups import refresh_rollups
from catalog.selectors import statistics
from catalog.timerange import parse_range
from catalog.viewing import Viewer
from tests.figures.traffic_rows import NOW, lookups_of, messy_traffic

_SPAN = {"since": "2026-09-01", "until": NOW.isoformat()}


@pytest.fixture
def of_tenant(db: None, api_with: Any) -> Any:
    """A client of the organisation "north", with traffic there and elsewhere."""
    messy_traffic()
    refresh_rollups()
    north = models.Organisation.objects.get(name="north")
    return api_with(create_api_key(north, "north", ("lookup",))[1])


def test_a_tenant_gets_what_its_own_lookups_came_to(of_tenant: Any) -> None:
    answer = of_tenant.get("statistics/traffic", **_SPAN).json()
    north = models.Organisation.objects.get(name="north")
    expected = statistics.total(statistics.slots(Viewer(focus=north.pk), parse_range(_SPAN)))
    assert answer["grain"] == "day"
    counted = lookups_of(models.Usage.objects.filter(organisation=north))
    assert answer["total"]["hits"] == expected.hits == counted
    assert answer["total"]["saved_s"] == pytest.approx(expected.saved_s)
    assert sum(slot["hits"] for slot in answer["slots"]) == expected.hits
    assert sum(route["hits"] for route in answer["routes"]) == expected.hits


def test_a_key_that_runs_the_service_gets_all_of_it(of_tenant: Any, api: Any, organisation: Any) -> None:
    models.Organisation.objects.filter(pk=organisation.pk).update(host=True)
    answer = api.get("statistics/traffic", **_SPAN).json()
    assert answer["total"]["hits"] == lookups_of(models.Usage.objects.all())


def test_operators_are_sorted_and_come_in_pages(of_tenant: Any) -> None:
    for sort, key in (("-saved", "saved_s"), ("-jobs", "jobs"), ("jobs", "jobs")):
        answer = of_tenant.get("statistics/operators", sort=sort, limit=5).json()
        values = [row[key] for row in answer["results"]]
        assert len(values) == 5 < answer["count"]
        assert values == sorted(values, reverse=sort.startswith("-"))


def test_the_overview_has_what_the_page_shows(of_tenant: Any) -> None:
    answer = of_tenant.get("statistics/overview", **_SPAN).json()
    north = models.Organisation.objects.get(name="north")
    known = statistics.catalogue(Viewer(roles={north.pk: frozenset()}, focus=north.pk))
    assert answer["catalogue"]["known"] == known.known > 0
    assert answer["jobs"] == 3
    assert answer["now"]["workers"] == 0 and answer["now"]["oldest_s"] is None


def test_every_figure_is_defined(of_tenant: Any) -> None:
    groups = of_tenant.get("statistics/definitions").json()
    assert {figure["name"] for group in groups for figure in group["figures"]} == set(FIGURES)


@pytest.mark.parametrize(
    ("path", "query", "where"),
    [
        ("traffic", {"range": "2w"}, "range"),
        ("traffic", {"since": "yesterday"}, "since"),
        ("traffic", {"since": "2026-02-01", "until": "2026-01-01"}, "since"),
        ("overview", {"until": "9999-99-99"}, "until"),
        ("operators", {"sort": "password"}, "sort"),
        ("operators", {"limit": "0"}, "limit"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(
    api: Any, path: str, query: dict[str, str], where: str
) -> None:
    answer = api.get(f"statistics/{path}", **query)
    assert answer.status_code == 400
    assert answer.json()["where"] == where


def test_without_a_key_there_are_no_statistics(api_with: Any) -> None:
    for path in ("traffic", "operators", "definitions", "overview"):
        assert api_with(None).get(f"statistics/{path}").status_code == 401
