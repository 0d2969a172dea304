"""The pages in a real browser: scripts, themes, keyboard. Needs Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User

from tests.dashboard.factory import full_catalogue
from tests.dashboard.serving import log_in, until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def page(chromium: Any, live_server: Any) -> Iterator[Any]:
    """A logged-in page. What goes wrong in it, or leaves this machine, fails the test at its end."""
    User.objects.create_superuser("admin", password="admin")
    context = chromium.new_context(base_url=live_server.url, reduced_motion="reduce", color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    wrong: list[str] = []
    opened.on(
        "console", lambda m: wrong.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    opened.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    host = urlsplit(live_server.url).netloc
    opened.on("request", lambda r: wrong.append(r.url) if urlsplit(r.url).netloc not in ("", host) else None)
    log_in(opened, "admin")
    yield opened
    context.close()
    assert not wrong


def drawn(page: Any) -> int:
    """How many charts are there, once all are drawn."""
    until(page, "!document.querySelector('.chart.waiting')")
    return page.locator(".chart svg.main-svg").count()


def test_from_an_empty_catalogue_to_the_samples_report(page: Any) -> None:
    page.get_by_role("button", name="Take the sample ResNet-50").click()
    page.wait_for_url("**/models/*/")
    assert page.locator("h1").inner_text() == "ResNet-50 (sample)"
    assert page.locator("#live tbody tr").count() > 50
    page.get_by_role("link", name="Operators", exact=True).first.click()
    page.locator("#results .row-link").first.click()
    assert "Use it" in page.locator("main").inner_text()


def test_filters_go_to_the_url_and_come_back_from_it(page: Any) -> None:
    full_catalogue(hours=3)
    page.goto("/operators/")
    page.keyboard.press("/")
    page.keyboard.type("softmax")
    page.wait_for_url("**q=softmax**")
    assert page.locator("#results tbody tr").count() == 3
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


def test_a_filter_keeps_the_order_that_was_chosen(page: Any) -> None:
    full_catalogue(hours=3)
    page.goto("/operators/")
    page.get_by_role("link", name="Speed-up").click()
    page.wait_for_url("**sort=-speedup**")
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


def test_everything_is_reached_by_keyboard(page: Any) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto("/")
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.textContent.trim()"))
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", "what has the focus must show it"
        if any("Take the sample" in text for text in reached):
            break
    assert {"Overview", "Operators", "Explorations", "Models", "Dark"} <= reached
    assert any("Take the sample" in text for text in reached)
    page.locator("details.menu > summary").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Log out").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("button", name="Log out").is_visible()


def test_what_is_explored_moves_by_itself(page: Any) -> None:
    from tuning.models import Exploration

    full_catalogue(hours=3)
    row = Exploration.objects.filter(state="running", stage=2).get()
    page.goto(f"/explorations/{row.pk}/")
    Exploration.objects.filter(pk=row.pk).update(doing="tvm: building the 42nd", steps_done=8)
    page.get_by_text("tvm: building the 42nd").first.wait_for()
    assert drawn(page) >= 1
    Exploration.objects.filter(pk=row.pk).update(state="done", doing="")
    until(page, "!document.querySelector('.live')")


def test_pages_work_without_scripts(chromium: Any, live_server: Any) -> None:
    User.objects.create_superuser("admin", password="admin")
    full_catalogue(hours=3)
    context = chromium.new_context(base_url=live_server.url, java_script_enabled=False)
    page = context.new_page()
    log_in(page, "admin")
    page.goto("/operators/")
    page.fill("#q", "matmul")
    page.get_by_role("button", name="Apply").click()
    assert "q=matmul" in page.url
    assert page.locator("#results tbody tr").count() == 4
    page.goto("/models/")
    page.locator(".row-link").first.click()
    page.locator("#live tbody tr").first.wait_for()
    assert not page.locator(".chart").first.is_visible()  # no empty frames: the tables tell it
    context.close()
