"""What runs is written down when it became another, once, and is a mark on the charts."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.operation import releases
from dashboard.operation.models import Release
from dashboard.operation.releases import SERVICE, changes, note_releases, version_of_service
from tests.dashboard.factory import Factory
from tuning.models import Revalidation, Worker

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def service(monkeypatch) -> dict[str, str]:
    """What version the service says it is of."""
    says = {"version": "0.1.0 (aaaa)"}
    monkeypatch.setattr(releases, "version_of_service", lambda: says["version"])
    Worker.objects.all().delete()
    Revalidation.objects.all().delete()
    return says


@pytest.fixture
def factory() -> Factory:
    return Factory()


def works(factory: Factory, pid: int, host: str = "h1", **versions: str) -> Worker:
    routes = {name: {"available": True, "versions": {name: version}} for name, version in versions.items()}
    return Worker.objects.create(
        name=f"w0@{host}#{pid}", host=host, pid=pid, target=factory.target, routes=routes, memory_bytes=1,
        last_seen_at=timezone.now(),
    )  # fmt: skip


def said() -> list[str]:
    return [str(row) for row in Release.objects.exclude(said="").order_by("pk")]


def test_an_upgrade_of_the_service_is_written_down_once(service, factory) -> None:
    assert [note_releases() for _ in range(2)] == [0, 0]
    assert Release.objects.get().versions == {SERVICE: "0.1.0 (aaaa)"}
    service["version"] = "0.2.0 (bbbb)"
    assert [note_releases() for _ in range(2)] == [1, 0]
    assert said() == [f"{SERVICE} 0.1.0 (aaaa) became 0.2.0 (bbbb)"]


def test_a_workers_libraries_are_held_against_those_of_its_place_before(factory) -> None:
    first = works(factory, 1, torch="2.12", numpy="2.3")
    works(factory, 1, host="h2", torch="2.12")
    assert note_releases() == 0
    Worker.objects.filter(pk=first.pk).update(stopped_at=timezone.now())
    begun = works(factory, 2, torch="2.13", numpy="2.3")
    assert [note_releases() for _ in range(2)] == [1, 0]
    row = Release.objects.exclude(said="").get()
    assert (str(row), row.host, row.target, row.at) == (
        "torch 2.12 became 2.13", "h1", factory.target, begun.started_at
    )  # fmt: skip


def test_of_several_workers_of_a_place_the_youngest_says_what_runs_there(factory) -> None:
    works(factory, 1, torch="2.12")
    note_releases()
    works(factory, 2, torch="2.13")  # the one before goes on for a while
    assert [note_releases() for _ in range(2)] == [1, 0]


def test_a_library_that_comes_and_goes_is_no_release(factory) -> None:
    row = works(factory, 1, torch="2.12", tvm="0.19")
    note_releases()
    for versions in ({"torch": "2.12"}, {"torch": "2.12", "xla": "0.8"}, {"torch": "2.12", "tvm": "0.20"}):
        routes = {name: {"available": True, "versions": {name: one}} for name, one in versions.items()}
        Worker.objects.filter(pk=row.pk).update(routes=routes)
        note_releases()
    assert said() == ["tvm 0.19 became 0.20"]


def test_silent_and_stopped_workers_say_nothing(factory) -> None:
    row = works(factory, 1, torch="2.12")
    Worker.objects.filter(pk=row.pk).update(last_seen_at=timezone.now() - timedelta(hours=1))
    note_releases()
    assert not Release.objects.exclude(target=None).exists()


def test_where_nothing_changed_it_takes_two_statements(factory, django_assert_num_queries) -> None:
    for number in range(5):
        works(factory, number, host=f"h{number}", torch="2.12")
    note_releases()
    with django_assert_num_queries(2):
        note_releases()


def test_changes_are_of_what_both_name() -> None:
    assert changes({"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1", "a": "3"}) == (
        "a 1 became 3, b 1 became 2"
    )


def test_the_version_is_the_trees_and_its_codes() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+ \([0-9a-f]{8}\)", version_of_service())


def test_charts_mark_releases_beside_declared_versions(pages: Client, catalogue: Factory, service) -> None:
    Worker.objects.all().delete()
    Revalidation.objects.all().delete()
    note_releases()
    service["version"] = "0.2.0 (bbbb)"
    works(catalogue, 1, torch="2.12")
    note_releases()
    works(catalogue, 2, torch="2.13")
    note_releases()
    Release.objects.filter(target=None).update(at=timezone.now() - timedelta(hours=2))

    def marks() -> list[str]:
        html = pages.get("/").content.decode()
        source = re.search(r'<script id="hit-rate"[^>]*>(.*?)</script>', html, re.S)
        assert source
        return [mark["hovertext"] for mark in json.loads(source[1])["layout"].get("annotations", [])]

    assert marks() == [
        f"{SERVICE} 0.1.0 (aaaa) became 0.2.0 (bbbb)",
        f"torch 2.12 became 2.13 on h1 ({catalogue.target.capability})",
    ]
    Release.objects.update(at=timezone.now() - timedelta(days=20))
    assert marks() == []
