"""An operator is alerted, takes it up, and has what failed tried again; a hostile message stays text."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.dashboard.browser.conftest import Watched
from tests.dashboard.factory import full_catalogue
from tests.dashboard.notifications.making import alerts_of
from tuning.models import Exploration, FailureGroup, Trial

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
HOSTILE = "</pre><script>window.stolen = 1</script><img src=x onerror='window.stolen = 1'>"


def test_from_the_overview_to_what_failed_and_back_into_the_queue(
    admin: Any, window: Callable[..., Watched]
) -> None:
    alerts_of(full_catalogue(hours=6))
    group = FailureGroup.objects.get(status="timed_out")
    Trial.objects.filter(pk=group.latest_id).update(detail=HOSTILE + "\nat line 3" * 40, log_tail=HOSTILE)
    watched = window("admin")
    page = watched.page
    page.goto("/")
    page.get_by_role("link", name=re.compile("alerts? fire")).click()
    page.wait_for_url("**/alerts/")
    page.get_by_role("link", name=re.compile("tvm failed on all")).click()
    page.get_by_label("Why").fill("The compiler was updated.")
    page.get_by_role("button", name="I see to it").click()
    text = page.locator("main").inner_text()
    assert "admin sees to it" in text and "The compiler was updated." in text
    page.goto(f"/failures/{group.pk}/")
    page.locator("main details summary").first.click()
    assert "<script>window.stolen" in page.locator("main pre").first.inner_text()
    page.get_by_role("button", name="Try again").click()
    assert "will try this again" in page.locator("main").inner_text()
    assert Exploration.objects.filter(pending_routes="tvm").exists()
    assert page.evaluate("window.stolen") is None and not watched.violations()
    assert not watched.wrong
