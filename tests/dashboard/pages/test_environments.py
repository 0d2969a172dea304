"""Pages about environments and revoking: what they show, and who may act."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from catalog import models as c
from catalog.best.damage import note_damage
from catalog.registry import digest_of
from tests.dashboard.factory import Factory
from tuning import models as t

NEWER = {"apache-tvm": "0.28.0"}


def text(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_it_shows_what_is_declared_brought_and_different(pages: Client, catalogue: Factory) -> None:
    html = text(pages, "/environments/")
    assert "apache-tvm 0.28.0 against 0.27.0.post1" in html
    assert "worker-3@canary" in html
    assert "apache-tvm 0.26.0 against 0.27.0.post1" in html  # declared before: one can go back
    assert "3 re-measured, 1 better, 1 worse, 1 failed" in html
    assert "crashed: signal 11" in html


def test_failures_and_regressions_come_first(pages: Client, catalogue: Factory) -> None:
    html = text(pages, "/environments/")
    places = [html.index(f"</svg>{verdict}</span>") for verdict in ("failed", "worse", "better")]
    assert places == sorted(places)


def test_workers_say_what_is_not_declared(pages: Client, reader: Client, catalogue: Factory) -> None:
    html = text(pages, "/overview/live/")
    assert "not declared" in html
    assert "apache-tvm 0.28.0 against 0.27.0.post1" in html
    assert html.count('action="/environments/declare/"') == 1
    assert 'action="/environments/declare/"' not in text(reader, "/overview/live/")


@pytest.mark.parametrize(
    "form", [{"worker": "worker-3@canary", "route": "tvm"}, {"route": "tvm", "environment": digest_of(NEWER)}]
)
def test_declaring_from_a_worker_or_from_the_list(
    pages: Client, catalogue: Factory, form: dict[str, str]
) -> None:
    answer = pages.post("/environments/declare/", {"target": catalogue.target.key, **form}, follow=True)
    assert "Declared: tvm: apache-tvm 0.28.0." in answer.content.decode()
    assert c.DeclaredEnvironment.objects.get(route="tvm").environment.versions == NEWER
    row = t.Revalidation.objects.latest("pk")
    assert row.asked_by == "admin"
    assert row.bests.filter(verdict="waiting").count() == c.Best.objects.filter(route="tvm").count()
    again = pages.post("/environments/declare/", {"worker": "worker-3@canary", "route": "tvm"}, follow=True)
    assert "Declared already" in again.content.decode()


def test_what_cannot_be_declared_says_why(pages: Client, catalogue: Factory) -> None:
    form = {"target": catalogue.target.key, "route": "tvm", "environment": "0" * 64}
    assert "No worker brings" in pages.post("/environments/declare/", form, follow=True).content.decode()
    assert pages.post("/environments/declare/", {"worker": "nobody"}).status_code == 404


def test_only_administrators_declare(reader: Client, catalogue: Factory) -> None:
    form = {"worker": "worker-3@canary"}
    assert reader.post("/environments/declare/", form).status_code == 403
    assert "Declare<" not in text(reader, "/environments/")
    assert reader.get("/environments/declare/").status_code == 405


def test_revoking_from_the_operators_page(pages: Client, catalogue: Factory) -> None:
    best = c.Best.objects.filter(rank=0, method="compiler").select_related("operator")[0]
    path = f"/operators/{best.operator.key}/"
    assert "Revoke an implementation" in text(pages, path)
    form = {"implementation": str(best.implementation_id), "reason": "it reads past its input"}
    answer = pages.post(f"{path}revoke/", form, follow=True)
    html = answer.content.decode()
    assert "It is no longer served" in html
    assert "it reads past its input" in html  # in the history
    assert c.Best.objects.get(operator=best.operator, rank=0).implementation_id != best.implementation_id


def test_revoking_needs_a_reason_an_administrator_and_something_to_revoke(
    pages: Client, reader: Client, catalogue: Factory
) -> None:
    best = c.Best.objects.filter(rank=0).select_related("operator")[0]
    path = f"/operators/{best.operator.key}/revoke/"
    number = str(best.implementation_id)
    assert reader.post(path, {"implementation": number, "reason": "no"}).status_code == 403
    assert "Say why" in pages.post(path, {"implementation": number}, follow=True).content.decode()
    for odd in ("", "x", "9" * 30, "0"):
        assert pages.post(path, {"implementation": odd, "reason": "no"}).status_code == 404
    assert c.Implementation.objects.filter(pk=best.implementation_id, revoked_at=None).exists()
    assert "Revoke an implementation" not in text(reader, f"/operators/{best.operator.key}/")


def test_history_tells_wins_revocations_and_environments(pages: Client, catalogue: Factory) -> None:
    operator = t.Revalidated.objects.get(verdict="failed").exploration.operator
    html = text(pages, f"/operators/{operator.key}/")
    assert "measured again: failed" in html
    assert "apache-tvm 0.26.0 became apache-tvm 0.27.0.post1, declared by admin" in html
    assert "reads one line past its input" in html
    assert "first verified result" in html
    assert "torch 2.13.0" in html  # the environment of who won


def test_an_empty_service_has_none(pages: Client) -> None:
    assert "Nothing declared yet" in text(pages, "/environments/")


def test_it_says_how_many_artifacts_are_damaged_to_who_may_see_them(
    pages: Client, catalogue: Factory
) -> None:
    theirs = c.Organisation.objects.create(name="Another")
    c.Membership.objects.create(user=User.objects.create_user("eve"), organisation=theirs, role=c.Role.ADMIN)
    stranger = Client()
    stranger.force_login(User.objects.get(username="eve"))
    assert "Nothing is damaged" in text(pages, "/environments/")
    best = c.Best.objects.filter(scope=c.SHARED).first()
    assert best is not None
    note_damage(best.implementation.artifact, "artifact is damaged: kernel.so is gone from the store")
    for client in (pages, stranger):
        html = text(client, "/environments/")
        assert "1 artifact damaged" in html and "kernel.so is gone from the store" in html
    c.Implementation.objects.filter(artifact=best.implementation.artifact).update(scope="org:0")
    assert "1 artifact damaged" in text(pages, "/environments/")
    assert "Nothing is damaged" in text(stranger, "/environments/"), "others' private ones are not counted"
