"""Charts of time in a browser: the reader's own time, gaps, and a time that is chosen by dragging."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.dashboard.browser.conftest import Watched
from tests.dashboard.browser.test_every_page import settle
from tests.dashboard.factory import full_catalogue

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(300)]
PLOT = "#figure-hit-rate .nsewdrag"


@pytest.fixture
def overview(admin: Any, window: Callable[..., Watched]) -> Any:
    full_catalogue(hours=30)
    page = window("admin", timezone_id="Asia/Tokyo", viewport={"width": 1280, "height": 900}).page
    page.goto("/?range=24h")
    settle(page)
    return page


def test_hours_are_the_readers_own_and_utc_where_one_points(overview: Any) -> None:
    given = overview.evaluate("JSON.parse(document.getElementById('hit-rate').textContent).data[0].x[0]")
    shown, said, zone = overview.evaluate(
        "(() => { const f = document.getElementById('figure-hit-rate');"
        " return [f.data[0].x[0], f.data[0].text[0], f.layout.xaxis.title.text]; })()"
    )
    utc = datetime.fromisoformat(given)
    assert (datetime.fromisoformat(shown) - utc.replace(tzinfo=None)).total_seconds() == 9 * 3600
    assert f"{utc:%Y-%m-%d %H:%M} UTC" in said and zone == "time in Asia/Tokyo"


def test_dragging_chooses_a_time_that_the_address_holds(overview: Any) -> None:
    overview.locator("#figure-hit-rate").scroll_into_view_if_needed()
    box = overview.locator(PLOT).first.bounding_box()
    overview.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] / 2)
    overview.mouse.down()
    overview.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] / 2, steps=8)
    overview.mouse.up()
    overview.wait_for_url("**since=**")
    asked = parse_qs(urlsplit(overview.url).query)
    since, until = (datetime.fromisoformat(asked[name][0]) for name in ("since", "until"))
    assert 10 <= (until - since).total_seconds() / 3600 <= 14 and "range" not in asked
    settle(overview)
    first = overview.evaluate("JSON.parse(document.getElementById('hit-rate').textContent).data[0].x[0]")
    assert abs((datetime.fromisoformat(first) - since).total_seconds()) <= 3600
