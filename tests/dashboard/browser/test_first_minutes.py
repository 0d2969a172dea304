"""A new user's first ten minutes, on a real worker: log in, begin with a sample model, watch it explored."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dashboard.browser.conftest import open_window
from tests.dashboard.serving import copied, follow, log_in, serving
from tests.tuning.live import Live

pytestmark = [pytest.mark.alone, pytest.mark.slow, pytest.mark.browser, pytest.mark.timeout(600)]


def test_from_the_login_to_the_first_result(live_service: Live, chromium: Any) -> None:
    from django.contrib.auth.models import User
    from django.core.wsgi import get_wsgi_application

    from catalog.models import Best

    User.objects.create_superuser("newcomer", password="newcomer")
    live_service.start_worker()
    with serving(get_wsgi_application()) as url:
        watched = open_window(chromium, url)
        page = watched.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        log_in(page, "newcomer")

        # An empty overview tells how to begin.
        assert "The map is empty" in page.locator("h1").inner_text()
        follow(page, page.get_by_role("button", name="Make my key and put it in"))
        page.wait_for_selector("#steps-title")
        asked = page.locator("#ask-first").inner_text()
        assert "Bearer opk_" in asked and "$OPATLAS_KEY" not in asked
        assert page.locator(".first-steps [data-done=yes]").first.inner_text().startswith("An API key")
        live_service.wait_warm(timeout_s=180)
        page.get_by_role("button", name="Take the sample ResNet-50").click()
        page.wait_for_url("**/models/*/")
        assert page.locator("h1").inner_text() == "ResNet-50 (sample)"
        assert page.locator("#live tbody tr").count() > 50

        # Its operators are there, and are being explored.
        page.get_by_role("link", name="Operators", exact=True).first.click()
        page.wait_for_url("**/operators/**")
        assert page.locator("#results tbody tr").count() >= 20
        page.get_by_role("link", name="Explorations", exact=True).first.click()
        page.wait_for_selector("main .row-link", timeout=60_000)
        page.locator("main .row-link").first.click()
        page.wait_for_url("**/explorations/*/")
        page.evaluate("window.here = true")
        first = live_service.wait_for(lambda: Best.objects.order_by("pk").first(), "a first result", 180)
        # What is watched moved, or ended, without a reload.
        assert page.evaluate("window.here") is True

        # The operator that has a result says so, and how to ask for it.
        page.goto(f"/operators/{first.operator.key}/")
        assert "eager" in page.locator("main").inner_text()
        curl = copied(page, "use-curl")
        assert curl.startswith("curl ") and first.operator.key in curl and url in curl

        # And the overview counts it.
        page.goto("/")
        assert "The map is empty" not in page.locator("main").inner_text()
        assert not watched.wrong
        watched.page.context.close()
