"""The pages in a real browser: filters, themes, without scripts. Needs Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User

from tests.dashboard.factory import full_catalogue
from tests.dashboard.serving import follow, give_session, until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def page(chromium: Any, live_server: Any) -> Iterator[Any]:
    """A logged-in page. What goes wrong in it, or leaves this machine, fails the test at its end."""
    User.objects.create_superuser("admin", password="admin")
    context = chromium.new_context(base_url=live_server.url, reduced_motion="reduce", color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    wrong: list[str] = []
    opened.on(
        "console", lambda m: wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    host = urlsplit(live_server.url).netloc
    opened.on("request", lambda r: wrong.append(r.url) if urlsplit(r.url).netloc not in ("", host) else None)
    give_session(context, live_server.url, "admin")
    yield opened
    context.close()
    assert not wrong


def drawn(page: Any) -> int:
    """How many charts are there, once all are drawn."""
    until(page, "!document.querySelector('.chart.waiting')")
    return page.locator(".chart svg.main-svg").count()


def test_filters_and_orders_go_to_the_url_and_come_back_from_it(page: Any) -> None:
    full_catalogue(hours=3)
    page.goto("/operators/")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.wait_for_url("**q=softmax**")
    until(page, "document.querySelectorAll('#results tbody tr').length === 3")
    page.select_option("#status", "failed")
    page.wait_for_url("**status=failed**")
    until(page, "document.querySelectorAll('#results tbody tr').length === 1")
    page.reload()
    assert page.input_value("#q") == "softmax" and page.input_value("#status") == "failed"
    assert page.locator("#results tbody tr").count() == 1
    page.goto("/operators/")
    page.get_by_role("link", name="Speed-up").click()
    page.wait_for_selector("th[aria-sort=descending] >> text=Speed-up")
    assert "sort=-speedup" in page.url
    page.select_option("#op_type", "Conv")
    page.wait_for_url("**op_type=Conv**")
    assert "sort=-speedup" in page.url


def test_the_theme_is_remembered_and_charts_follow_it(page: Any) -> None:
    full_catalogue(hours=30)
    page.goto("/")
    assert drawn(page) >= 1
    canvas = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.chart .xtick text')).fill"
    light, light_ink = page.evaluate(canvas), page.evaluate(ink)
    page.get_by_role("button", name="Dark").click()
    until(page, f"{ink} !== {light_ink!r}")
    dark = page.evaluate(canvas)
    assert dark != light
    page.goto("/operators/")
    assert page.evaluate(canvas) == dark
    assert page.get_by_role("button", name="Dark").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="As the system").click()
    assert page.evaluate(canvas) == light


def test_pages_work_without_scripts(chromium: Any, live_server: Any) -> None:
    User.objects.create_superuser("admin", password="admin")
    full_catalogue(hours=3)
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    give_session(context, live_server.url, "admin")
    page = context.new_page()
    page.goto("/operators/")
    page.fill("#q", "matmul")
    follow(page, page.get_by_role("button", name="Apply"))
    assert "q=matmul" in page.url
    assert page.locator("#results tbody tr").count() == 4
    page.goto("/models/")
    follow(page, page.locator(".row-link").first)
    assert page.locator("#live tbody tr").count()
    assert not page.locator(".chart").first.is_visible()  # no empty frames: the tables tell it
    context.close()
