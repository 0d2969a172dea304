"""The queues page says to the host, and to nobody else, how the workers are shared out."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.dashboard.factory import Factory
from tuning.models import Exploration, WorkerShare
from tuning.queue.shares import charge
from tuning.statistics.shares import organisations_shares


@pytest.fixture
def two(catalogue: Factory, tenant: Any) -> Any:
    """The host and a tenant, which had three quarters lately; both have something waiting."""
    WorkerShare.objects.all().delete()
    row = Exploration.objects.filter(state="queued").order_by("pk").first()
    Exploration.objects.filter(pk=row.pk).update(asked_by=tenant)  # type: ignore[union-attr]
    charge(tenant.pk, 300.0)
    charge(catalogue.organisation.pk, 100.0)
    return tenant


def test_shares_are_said_in_words(pages: Client, two: Any) -> None:
    html = pages.get("/queues/").content.decode()
    assert "Had 75 % lately, where 50 % are due to it: the others go before it." in html
    assert "Had 25 % lately, and 50 % are due to it: it goes before the others." in html


def test_a_weight_changes_what_is_due(pages: Client, two: Any) -> None:
    answer = pages.post("/queues/weight/", {"organisation": two.pk, "weight": "3"}, follow=True)
    assert "75 % are due to it" in answer.content.decode()
    assert {row.name: row.due for row in organisations_shares()}[two.name] == 0.75


@pytest.mark.parametrize("weight", ["0", "x", "nan", "-1", "1e9", ""])
def test_a_weight_that_is_none_is_refused_in_a_sentence(pages: Client, two: Any, weight: str) -> None:
    answer = pages.post("/queues/weight/", {"organisation": two.pk, "weight": weight}, follow=True)
    assert "A weight is a number from 0.01 to 100" in answer.content.decode()
    assert not WorkerShare.objects.exclude(weight=1.0).exists()


def test_a_tenant_sees_no_others(two: Any, client: Client, django_user_model: Any) -> None:
    from catalog.models import Membership

    user = django_user_model.objects.create_user("theirs")
    Membership.objects.create(user=user, organisation=two, role="admin")
    client.force_login(user)
    assert "shares-title" not in client.get("/queues/").content.decode()
    assert client.post("/queues/weight/", {"organisation": two.pk, "weight": "50"}).status_code == 403
    assert not WorkerShare.objects.exclude(weight=1.0).exists()


def test_who_waits_alone_has_everything_and_who_does_not_wait_is_owed_nothing(two: Any) -> None:
    Exploration.objects.exclude(asked_by=two).delete()
    told = {row.name: row for row in organisations_shares()}
    assert told[two.name].said == "Nobody else waits: it has everything."
    (other,) = (row for name, row in told.items() if name != two.name)
    assert other.said == "Nothing of it waits: the others have its part."
