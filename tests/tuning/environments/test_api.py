"""Environments by REST and by command."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from catalog.models import Best, DeclaredEnvironment
from catalog.registry import digest_of
from tests.tuning.fakes import FakeRoute
from tuning.environments import revalidation
from tuning.models import Exploration, Revalidation

pytestmark = pytest.mark.django_db

NEW = digest_of({"fakes": "2"})


def run(*arguments: str) -> str:
    said = io.StringIO()
    call_command("declare_environment", *arguments, stdout=said, stderr=io.StringIO())
    return said.getvalue()


@pytest.fixture(autouse=True)
def one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuning.worker.process.close_old_connections", lambda: None)


@pytest.fixture
def two_workers(make_miss: Callable[..., Any], worker_with: Callable[..., Any]) -> Any:
    """An operator explored by ``old``, and ``new`` with another version of its route; gives ``new``."""
    make_miss()
    worker_with(FakeRoute("quick", offers=[{"ratio": 2.0}]), name="old").run_until_idle()
    return worker_with(FakeRoute("quick", offers=[{"ratio": 2.0}], installed={"fakes": "2"}), name="new")


def test_who_brings_what_is_listed(api: Any, two_workers: Any) -> None:
    rows = {row["route"]: row for row in api.get("environments/").json()}
    assert list(rows) == ["eager", "quick"]
    declared, other = rows["quick"]["environments"]
    assert (declared["declared"], declared["workers"], declared["difference"]) == (True, ["old"], "")
    assert (other["environment"], other["workers"]) == (NEW, ["new"])
    assert other["difference"] == "fakes 2 against 1"
    assert rows["eager"]["environments"][0]["workers"] == ["new", "old"]


def test_declaring_measuring_again_and_going_back(api: Any, two_workers: Any) -> None:
    (row,) = api.get("environments/").json()[1:]
    answer = api.post("environments/declare", {"target": row["target"], "route": "quick", "environment": NEW})
    (declared,) = answer.json()
    assert (declared["before"], declared["after"]) == ({"fakes": "1"}, {"fakes": "2"})
    assert (declared["total"], declared["waiting"], declared["finished_at"]) == (1, 1, None)
    assert declared["asked_by"].startswith("key ")
    assert api.get("environments/").json()[1]["revalidation"] == declared["id"]
    two_workers.run_until_idle()
    revalidation.settle()
    revalidation.settle()
    found = api.get(f"revalidations/{declared['id']}").json()
    assert found["summary"] == "1 re-measured, 0 better, 0 worse, 0 failed"
    assert found["finished_at"]
    (best,) = found["bests"]
    assert (best["route"], best["verdict"], best["ratio_before"], best["ratio_after"]) == (
        "quick",
        "same",
        2,
        2,
    )
    old = digest_of({"fakes": "1"})
    back = api.post("environments/declare", {"target": row["target"], "route": "quick", "environment": old})
    assert back.json()[0]["summary"] == "0 re-measured, 0 better, 0 worse, 0 failed, 1 restored"
    assert Best.objects.get(route="quick").implementation.environment.versions == {"fakes": "1"}
    assert [one["id"] for one in api.get("revalidations/").json()["results"]] == [
        back.json()[0]["id"],
        declared["id"],
    ]


def test_all_or_some_of_a_worker(api: Any, two_workers: Any) -> None:
    assert api.post("environments/declare", {"worker": "new", "routes": ["eager"]}).json() == []
    (row,) = api.post("environments/declare", {"worker": "new"}).json()
    assert row["route"] == "quick"
    assert api.post("environments/declare", {"worker": "new"}).json() == []


@pytest.mark.parametrize(
    ("document", "status", "said"),
    [
        ({}, 400, "Name a worker"),
        ({"route": "quick"}, 400, "Name a worker"),
        ({"worker": "nobody"}, 404, "no worker by this name"),
        ({"worker": "new", "routes": ["slow"]}, 400, "does not bring slow"),
        ({"worker": "new", "routes": []}, 400, "at least 1"),
        ({"target": "t1:" + "0" * 64, "route": "quick", "environment": NEW}, 404, "not known"),
        ({"target": "there", "route": "quick", "environment": NEW}, 400, "does not match"),
    ],
)
def test_what_cannot_be_declared(api: Any, two_workers: Any, document: Any, status: int, said: str) -> None:
    response = api.post("environments/declare", document)
    assert response.status_code == status
    assert said in response.json()["error"]
    assert not Revalidation.objects.exists()


def test_an_environment_or_a_route_that_nobody_has(api: Any, two_workers: Any) -> None:
    target = api.get("environments/").json()[0]["target"]
    for route, environment, said in (
        ("quick", "0" * 64, "No worker brings"),
        ("slow", NEW, "Nothing is known"),
    ):
        response = api.post(
            "environments/declare", {"target": target, "route": route, "environment": environment}
        )
        assert response.status_code == 400
        assert said in response.json()["error"]


def test_declaring_needs_the_scope(api_with: Any, make_key: Any, two_workers: Any) -> None:
    api = api_with(make_key("lookup", "models"))
    assert api.get("environments/").status_code == 200
    assert api.post("environments/declare", {"worker": "new"}).status_code == 403


def test_what_is_another_organisations_is_not_shown(api: Any, two_workers: Any) -> None:
    (row,) = api.post("environments/declare", {"worker": "new"}).json()
    Exploration.objects.update(scope="org:999")
    found = api.get(f"revalidations/{row['id']}").json()
    assert (found["bests"], found["total"]) == ([], 0)
    assert api.get("revalidations/999999").status_code == 404


def test_by_command(two_workers: Any) -> None:
    listed = run()
    assert "cpu.zen3 quick:" in listed
    assert "* " + digest_of({"fakes": "1"})[:12] in listed
    assert f"{NEW[:12]} fakes 2 (new)" in listed
    said = run("--route", "quick", "--environment", NEW[:10])
    assert said.startswith("declared: quick: fakes 2. 0 re-measured")
    assert "1 waiting" in run()
    assert run("--worker", "new") == "Declared already: nothing was changed.\n"
    assert run("--worker", "old", "--route", "quick").startswith("declared: quick: fakes 1.")
    assert DeclaredEnvironment.objects.get(route="quick").environment.versions == {"fakes": "1"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--worker", "nobody"], "no worker 'nobody'"),
        (["--worker", "new", "--route", "slow"], "does not bring slow"),
        (["--environment", "abc"], "Name the route"),
        (["--route", "quick", "--environment", "zz"], "0 environments fit"),
    ],
)
def test_commands_that_cannot_be(two_workers: Any, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        run(*arguments)
    assert not Revalidation.objects.exists()
