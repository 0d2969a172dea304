"""A payer is warned of spending and understands a charge: from the warning to the hit that was served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from opatlas.identity import parse_operator
from tests.catalog import making
from tests.dashboard.billing.conftest import own_state, price  # noqa: F401
from tests.dashboard.browser.conftest import open_window
from tests.dashboard.people import member_client
from tests.dashboard.serving import follow, log_in
from tests.dashboard.stories.tales import PAYER
from tests.dashboard.stories.telling import StoryTeller

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
]

DAYS, SWEPT_DAYS = 14, 2
SIZES = (64, 96, 128, 192, 256, 384)


@pytest.fixture
def acme(price: Any, db: None) -> Any:  # noqa: F811
    """Two weeks of charges: every night a training run, and lately a sweep that asks much more often."""
    from catalog.models import Organisation
    from dashboard.billing.accounts import give_credit

    organisation = Organisation.objects.create(name="Acme")
    began = timezone.now() - timedelta(days=DAYS)
    with at(began):
        price(0.02, name="Compiled code", method="compiler")
        give_credit(organisation, 8_000_000, "Transfer 2026-118", currency="EUR", by={"actor": "admin"})
    places = [compiled(size) for size in SIZES]
    for day in range(1, DAYS + 1):
        with at(began + timedelta(days=day, minutes=-30)):
            asked(organisation, "nightly-train", places)
        for number in range(14 * (day > DAYS - SWEPT_DAYS)):
            with at(began + timedelta(days=day, minutes=number - 20)):
                asked(organisation, "learning-rate-sweep", places)
    return organisation


def at(moment: datetime) -> Any:
    """The service's clock, set back."""
    return mock.patch("django.utils.timezone.now", return_value=moment)


def compiled(size: int) -> dict[str, Any]:
    """A product of square matrices whose best is compiled code."""
    from catalog.best.publishing import publish
    from catalog.registry import register_operator, register_setting, register_target

    inputs = [{"shape": [size, size], "dtype": "float32"}] * 2
    place = {
        "operator": register_operator(parse_operator({"op": "MatMul", "inputs": inputs})),
        "target": register_target(making.TARGET),
        "setting": register_setting(making.SETTING),
    }
    publish(
        making.new_result(
            place, "tvm", 1.4 + size / 1000, method="compiler", label="vectors of 8, tiles of 4 × 16"
        )
    )
    return place


def asked(organisation: Any, job: str, places: list[dict[str, Any]]) -> None:
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup

    operators = [AskedOperator(place["operator"].key, 48.0) for place in places]
    where = {name: places[0][name] for name in ("target", "setting")}
    lookup(LookupRequest(**where, operators=operators, organisation=organisation, job=job))


@pytest.fixture
def story(acme: Any, chromium: Any, live_server: Any) -> Iterator[StoryTeller]:
    from catalog.rollups.rollups import keep_rollups_fresh
    from dashboard.notifications.alerts.watching import watch

    keep_rollups_fresh(), watch()  # as the courier does every few seconds
    member_client(acme, "billing", "paula", "paula")
    watched = open_window(chromium, live_server.url)
    log_in(watched.page, "paula")
    yield StoryTeller(PAYER, watched.page)
    watched.page.context.close()
    assert not watched.wrong


def test_is_warned_and_understands_a_charge(story: StoryTeller) -> None:
    from catalog.models import Usage
    from dashboard.billing.models import LedgerEntry

    page = story.page
    story.show("overview")
    follow(page, page.get_by_role("link", name=re.compile("alerts? fires?")))
    follow(page, page.get_by_role("link", name=re.compile("of credit are left")))
    assert "EUR were spent within 3 days" in story.said() and "left 2.96 EUR" in story.said()
    story.show("warning")
    page.get_by_role("link", name="Where to look").click()
    page.wait_for_url("**/billing/")
    assert "Each compiler hit costs 0.02 EUR" in story.said()
    story.show("billing")
    page.get_by_role("link", name="All entries").click()
    page.wait_for_url("**/billing/ledger/")
    first = page.locator("main tbody tr").first
    assert "learning-rate-sweep" in first.inner_text()
    story.show("ledger")
    first.get_by_role("link", name="0.02 EUR").click()

    charge = LedgerEntry.objects.latest("pk")
    served = Usage.objects.get(pk=charge.usage_number)
    page.wait_for_url(f"**/billing/ledger/{charge.pk}/")
    text = story.said()
    assert "0.02 EUR for one hit" in text and "Each compiler hit costs 0.02 EUR" in text
    assert f"{served.served_at:%Y-%m-%d %H:%M:%S} UTC" in text and served.operator.summary in text
    assert served.route in text and "48 calls" in text
    story.show("charge")
    page.get_by_role("link", name="learning-rate-sweep").click()
    page.wait_for_url(f"**/jobs/{served.job_id}/")
    story.show("job")
    story.over()
