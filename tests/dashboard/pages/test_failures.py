"""Failures as issues: what a compiler said is text, and a group is tried again by who may."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from catalog.models import AuditEntry, Role
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from dashboard.notifications.models import Alert
from dashboard.operation import retention
from tests.dashboard.people import member_client
from tuning.models import Exploration, FailureGroup, Trial

pytestmark = pytest.mark.django_db
HOSTILE = '</pre><script>alert("kernel")</script><img src=x onerror=alert(2)>'


def test_causes_are_listed_with_whom_they_struck(catalogue, pages: Client) -> None:
    page = pages.get("/failures/").content.decode()
    group = FailureGroup.objects.order_by("-trials")[0]
    assert f'href="/failures/{group.pk}/"' in page
    rows = pages.get("/failures/?export=json").json()["rows"]
    assert {row["status"] for row in rows} == {"wrong_result", "timed_out", "crashed"}
    assert pages.get("/failures/?status=crashed&export=json").json()["rows"][0]["routes"] == "onednn"
    assert "no status “nope”" in pages.get("/failures/?status=nope").content.decode()
    assert pages.get("/failures/?q=%00nothing+such").status_code == 200
    assert pages.get(f"/failures/{group.pk}/?export=csv").status_code == 200
    assert pages.get("/failures/999999/").status_code == 404


def test_what_a_compiler_said_is_never_html(catalogue, pages: Client) -> None:
    group = FailureGroup.objects.get(status="crashed")
    Trial.objects.filter(pk=group.latest_id).update(
        detail=HOSTILE + "\n" * 40, log_tail=HOSTILE, label=HOSTILE, worker=HOSTILE[:90]
    )
    FailureGroup.objects.filter(pk=group.pk).update(reason=HOSTILE, routes=[HOSTILE])
    for path in ("/failures/", f"/failures/{group.pk}/"):
        page = pages.get(path).content.decode()
        assert "<script>alert" not in page and "<img src=x" not in page
    assert "&lt;script&gt;alert" in page and '<details class="more"><summary>' in page


def test_a_long_cause_stands_whole_on_its_page_though_its_trials_are_gone(catalogue, pages: Client) -> None:
    group = FailureGroup.objects.get(status="crashed")
    reason = "a long cause " * 14 + "with its end"
    FailureGroup.objects.filter(pk=group.pk).update(reason=reason, first=None, latest=None)
    assert f">{reason}</h1>" in pages.get(f"/failures/{group.pk}/").content.decode()


def test_an_operator_has_a_group_tried_again_and_it_is_written_down(catalogue) -> None:
    group = FailureGroup.objects.get(status="timed_out")
    operator = member_client(default_organisation(), Role.OPERATOR, "ann")
    assert f"/failures/{group.pk}/again/" in operator.get(f"/failures/{group.pk}/").content.decode()
    answer = operator.post(f"/failures/{group.pk}/again/", follow=True)
    assert "will try this again" in answer.content.decode()
    assert Exploration.objects.filter(pending_routes="tvm").exists()
    assert AuditEntry.objects.get(action="failures.again").detail["asked"] > 0
    viewer = member_client(default_organisation(), Role.VIEWER, "vera")
    assert "/again/" not in viewer.get(f"/failures/{group.pk}/").content.decode()
    assert viewer.post(f"/failures/{group.pk}/again/").status_code == 403
    assert viewer.post("/failures/999999/again/").status_code == 404


def test_rest_lists_shows_and_tries_again(catalogue, client: Client) -> None:
    _, key = create_api_key(default_organisation(), "ops", ["lookup", "operate"])
    bearer = {"headers": {"Authorization": f"Bearer {key}"}}
    rows = client.get("/api/v1/failure-groups/?status=timed_out", **bearer).json()["results"]
    (row,) = rows
    shown = client.get(f"/api/v1/failure-groups/{row['id']}", **bearer).json()
    assert shown["detail"] == "built for 20 s; limit 20 s" and shown["routes"] == ["tvm"]
    answer = client.post(
        f"/api/v1/failure-groups/{row['id']}/again", json.dumps({}), content_type="application/json", **bearer
    )
    assert answer.status_code == 200 and answer.json()["asked"] > 0
    assert client.get("/api/v1/failure-groups/?status=nope", **bearer).status_code == 400


def test_what_the_first_trial_said_stands_beside_the_latest(catalogue, pages: Client, client: Client) -> None:
    group = FailureGroup.objects.order_by("-trials")[0]
    first, latest = group.first, group.latest
    assert first is not None and latest is not None and first != latest
    Trial.objects.filter(pk=first.pk).update(detail="it began like this")
    Trial.objects.filter(pk=latest.pk).update(detail="and came to this")
    page = pages.get(f"/failures/{group.pk}/").content.decode()
    assert page.index("and came to this") < page.index("it began like this")
    _, key = create_api_key(default_organisation(), "reads", ["lookup", "operate"])
    bearer = {"headers": {"Authorization": f"Bearer {key}"}}
    shown = client.get(f"/api/v1/failure-groups/{group.pk}", **bearer).json()
    assert (shown["first_detail"], shown["detail"]) == ("it began like this", "and came to this")
    assert (shown["first_exploration"], shown["exploration"]) == (first.exploration_id, latest.exploration_id)
    FailureGroup.objects.filter(pk=group.pk).update(first=None)  # begun before that was kept
    page = pages.get(f"/failures/{group.pk}/").content.decode()
    assert "and came to this" in page and "<h3>The first</h3>" not in page
    FailureGroup.objects.filter(pk=group.pk).update(first=latest)
    assert pages.get(f"/failures/{group.pk}/").content.decode().count("and came to this") == 1


def test_the_page_says_how_long_causes_are_kept_and_how_many_went(catalogue, pages: Client) -> None:
    before = FailureGroup.objects.count()
    assert "kept 90 days after it was seen last" in pages.get("/failures/").content.decode()
    group = FailureGroup.objects.order_by("pk")[0]
    FailureGroup.objects.filter(pk=group.pk).update(last_at=timezone.now() - timedelta(days=91))
    told = Alert.objects.create(
        rule="new_failure", cause=f"new_failure:{group.pk}", severity="info", text="t", path="/",
        fired_at=timezone.now(), seen_at=timezone.now(),
    )  # fmt: skip
    assert retention.forget_failures() == 0, "its alert is open"
    told.ended_at = timezone.now()
    told.save()
    assert retention.forget_failures() == 1
    assert "1 is gone, their trials stay" in pages.get("/failures/").content.decode()
    assert FailureGroup.objects.count() == before - 1 and Trial.objects.filter(status=group.status).exists()
    gone = pages.get(f"/failures/{group.pk}/")
    assert gone.status_code == 404 and "kept 90 days" in gone.content.decode()


def test_no_text_of_a_list_is_cut(catalogue, pages: Client) -> None:
    FailureGroup.objects.update(reason="no such intrinsic " * 11)
    page = pages.get("/failures/").content.decode()
    assert "no such intrinsic " * 10 in page and "clip-name" not in page
