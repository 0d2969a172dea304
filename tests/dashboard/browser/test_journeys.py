"""What people do with the pages: decide, watch, narrow down, export, and all of it by keyboard."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import by_day
from tests.dashboard.browser.conftest import Watched
from tests.dashboard.factory import full_catalogue
from tests.dashboard.kernels import evaluated, person, submitted
from tests.dashboard.serving import until

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_second_user_approves_and_the_first_cannot(window: Callable[..., Watched]) -> None:
    from catalog.models import AuditEntry, Operator
    from tuning.kernels.models import KernelVersion

    factory = full_catalogue(hours=3)
    ada = person("ada", decides=True)
    person("grace", decides=True)
    operators = list(Operator.objects.filter(op_type="Softmax")[:2])
    version = evaluated(submitted(ada), operators, factory)
    address = f"/kernels/{version.kernel_id}/v{version.number}/"

    own = window("ada").page
    own.goto(address)
    assert own.get_by_role("button", name="Approve").count() == 0

    page = window("grace").page
    page.goto("/kernels/")
    page.get_by_role("link", name=version.kernel.name).first.click()
    # The decision comes after all evidence, and is in sight while that is read.
    page.wait_for_selector("#decision")
    at, last, height = page.evaluate(
        "[document.querySelector('#decision').getBoundingClientRect().bottom,"
        " [...document.querySelectorAll('#live > *')].at(-1).id, innerHeight]"
    )
    assert last == "decision" and at <= height
    page.locator("#decision summary").click()
    page.fill("[name=reason]", "Read and understood.")
    page.get_by_label("the source").check()
    page.get_by_label("the risk lines").check()
    page.get_by_role("button", name="Approve").click()
    page.wait_for_selector(".state-line .badge >> text=approved")
    version.refresh_from_db()
    assert version.state == "approved" and version.decided_by.username == "grace"
    assert KernelVersion.objects.filter(state="approved").count() == 1
    assert AuditEntry.objects.filter(action__contains="kernel", actor="grace").exists()
    own.reload()
    assert "Read and understood." in own.locator("ol.timeline").inner_text()


def test_an_exploration_moves_without_a_reload(admin: Any, window: Callable[..., Watched]) -> None:
    from tuning.models import Exploration

    full_catalogue(hours=3)
    row = Exploration.objects.filter(state="running", stage=2).get()
    page = window("admin").page
    page.goto(f"/explorations/{row.pk}/")
    page.evaluate("window.here = true")  # gone after a reload
    for step in ("building the 42nd", "timing the 42nd"):
        Exploration.objects.filter(pk=row.pk).update(doing=f"tvm: {step}")
        page.get_by_text(f"tvm: {step}").first.wait_for()
    until(page, "document.querySelector('.chart svg.main-svg') && !document.querySelector('.chart.waiting')")
    Exploration.objects.filter(pk=row.pk).update(state="done", doing="")
    until(page, "!document.querySelector('main').innerText.includes('42nd')")
    until(page, "!document.querySelector('.live')")
    assert page.evaluate("window.here") is True


# By day a field that is typed and one that is chosen, and so on below: two pages of each.
FILTERS = (
    ("/operators/", "#q", "softmax"),
    ("/explorations/", "select[name=state]", "done"),
    ("/queues/collect/", "select[name=state]", "postponed"),
    ("/jobs/", "[name=q]", "resnet"),
)


@pytest.mark.parametrize("filters", by_day.first(1, [FILTERS[:2], FILTERS[2:]]), ids=str)
def test_filters_stay_in_the_address_over_reload_and_back(
    admin: Any, window: Callable[..., Watched], filters: Any
) -> None:
    full_catalogue(hours=3)
    page = window("admin").page
    for path, field, value in filters:
        filter_and_come_back(page, path, field, value)


def filter_and_come_back(page: Any, path: str, field: str, value: str) -> None:
    page.goto(path)
    control = page.locator(f"main {field}").first
    if field.startswith("select"):
        control.select_option(value)
    else:
        control.fill(value)
    name = control.get_attribute("name")
    page.wait_for_url(f"**{name}={value}**")
    page.wait_for_load_state("networkidle")
    rows = page.locator("main tbody tr").all_inner_texts()
    assert rows
    address = page.url
    page.reload()
    assert page.locator(f"main {field}").first.input_value() == value
    assert [text.split()[0] for text in page.locator("main tbody tr").all_inner_texts()] == [
        text.split()[0] for text in rows
    ]
    page.goto("/definitions/")
    page.go_back()
    page.wait_for_url(address)
    assert page.locator(f"main {field}").first.input_value() == value
    assert page.locator("main tbody tr").count() == len(rows)


EXPORTING = ("/jobs/?q=resnet", "/operators/?q=softmax", "/methods/", "/models/", "/queues/collect/")


@pytest.mark.parametrize("paths", by_day.first(1, [EXPORTING[:2], EXPORTING[2:]]), ids=str)
def test_the_downloaded_csv_has_the_rows_that_are_shown(
    admin: Any, window: Callable[..., Watched], paths: Sequence[str]
) -> None:
    full_catalogue(hours=3)
    page = window("admin").page
    for path in paths:
        compare_with_csv(page, path)


def compare_with_csv(page: Any, path: str) -> None:
    page.goto(path)
    link = page.locator("main a[download]", has_text="CSV").first
    for box in page.locator("main details:has(a[download])").all():
        box.evaluate("box => { box.open = true; }")
    with page.expect_download() as waiting:
        link.click()
    text = Path(waiting.value.path()).read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert waiting.value.suggested_filename.endswith(".csv") and rows
    shown = page.locator("main").inner_text()
    first = next(iter(rows[0]))
    for row in rows:
        named = [value for key, value in row.items() if key in ("name", "summary", "job", "model", first)]
        assert any(value and value in shown for value in named), row


def test_dark_mode_follows_the_system_and_the_choice(admin: Any, window: Callable[..., Watched]) -> None:
    canvas = "getComputedStyle(document.body).backgroundColor"
    light = window("admin", color_scheme="light").page
    dark = window("admin", color_scheme="dark").page
    light.goto("/definitions/")
    dark.goto("/definitions/")
    assert light.evaluate(canvas) != dark.evaluate(canvas)
    light.get_by_role("button", name="Dark").click()
    assert light.evaluate(canvas) == dark.evaluate(canvas)
    light.goto("/jobs/")
    assert light.evaluate(canvas) == dark.evaluate(canvas)  # remembered, and there before anything is drawn


TYPED = ("/", "/billing/", "/operators/", "/queues/", "/notifications/")


@pytest.mark.parametrize("paths", by_day.first(1, [TYPED[:2], TYPED[2:]]), ids=str)
def test_the_keyboard_reaches_everything_and_shows_where_it_is(
    admin: Any, window: Callable[..., Watched], paths: Sequence[str]
) -> None:
    full_catalogue(hours=3)
    page = window("admin").page
    page.route("**/*", standing_still)
    for path in paths:
        tab_through(page, path)


def standing_still(route: Any) -> None:
    """A part that is renewed while somebody tabs through it takes the focus along."""
    renewed = route.request.resource_type in ("xhr", "fetch", "eventsource")
    route.fulfill(status=204) if renewed else route.continue_()


def tab_through(page: Any, path: str) -> None:
    page.goto(path)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(path)
    page.keyboard.press("Tab")
    wanted = page.evaluate(
        """[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, summary')]
        .filter((one) => one.checkVisibility() && !one.disabled && one.tabIndex >= 0
                && !(one.type === 'radio' && !one.checked)).length"""
    )
    seen, blind = set(), []
    for _ in range(wanted + 30):
        found = page.evaluate(
            """() => { const one = document.activeElement; const style = getComputedStyle(one);
            if (one === document.body) return null;
            window.order = window.order || new Map();
            if (!window.order.has(one)) window.order.set(one, window.order.size);
            return [window.order.get(one), style.outlineStyle !== 'none' || style.boxShadow !== 'none',
                    one.outerHTML.slice(0, 120)]; }"""
        )
        if found is None:
            break
        number, visible, text = found
        seen.add(number)
        if not visible:
            blind.append(text)
        page.keyboard.press("Tab")
    assert not blind, (path, blind[:5])
    assert len(seen) >= wanted, f"{len(seen)} of {wanted} controls of {path} are reached"


def test_keys_search_and_a_telephone_shows_which_page_is_open(
    admin: Any, window: Callable[..., Watched]
) -> None:
    full_catalogue(hours=3)
    page = window("admin").page
    page.goto("/operators/")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.locator("details.menu > summary").first.focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Log out").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("button", name="Log out").is_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("disk room")
    until(page, "document.querySelector('#found a')?.innerText.startsWith('Growth')")
    page.keyboard.press("Enter")
    page.wait_for_url("**/growth/")
    page.set_viewport_size({"width": 360, "height": 780})
    page.reload()
    at = page.locator(".nav a[aria-current]").bounding_box()
    assert at["x"] >= 0 and at["x"] + at["width"] <= 360
