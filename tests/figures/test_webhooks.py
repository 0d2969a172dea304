"""The webhooks' figures, counted again from the rows."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from catalog.models import Membership, Organisation, Role
from catalog.viewing import viewer_of
from dashboard.webhooks import selectors
from dashboard.webhooks.models import Delivery
from tests.dashboard.webhooks.making import webhooks_of

pytestmark = pytest.mark.django_db


def test_waiting_and_failed_are_counted_by_endpoint_and_tenant() -> None:
    ours, theirs, empty = (Organisation.objects.create(name=name) for name in ("ours", "theirs", "empty"))
    webhooks_of(ours)
    webhooks_of(theirs)
    Delivery.objects.filter(endpoint__organisation=theirs).update(state="pending")
    for organisation in (ours, theirs, empty):
        user = User.objects.create_user(f"of {organisation}")
        Membership.objects.create(user=user, organisation=organisation, role=Role.BILLING)
        found = {one.endpoint.pk: (one.pending, one.failed) for one in selectors.endpoints(viewer_of(user))}
        expected: dict[int, list[int]] = {}
        for row in Delivery.objects.select_related("endpoint"):
            if row.endpoint.organisation_id == organisation.pk:
                counts = expected.setdefault(row.endpoint_id, [0, 0])
                counts[0] += row.state == "pending"
                counts[1] += row.state == "failed"
        assert found == {pk: tuple(counts) for pk, counts in expected.items()}
        assert bool(found) == (organisation != empty)
