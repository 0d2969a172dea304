"""Every page of the resolver in a browser: accessible in light and dark, quiet, within its policy, and not
wider than a telephone. A page is covered as soon as its address is in a ``urls.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.browser.conftest import Watched
from tests.dashboard.examples import page_paths
from tests.dashboard.factory import full_catalogue
from tests.dashboard.kernels import gallery
from tests.dashboard.serving import until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

SERIOUS = ("serious", "critical")
_RUN = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations']});
  return found.violations.filter((one) => %s.includes(one.impact)).map((one) =>
    `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
}"""


@pytest.fixture
def filled(admin: Any) -> None:
    gallery(full_catalogue(hours=30))


def axe_source() -> str:
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def shown(page: Any) -> Iterator[tuple[str, str]]:
    """(name, address) of every address that answers with a page, the sign-in page aside."""
    for name, path in page_paths().items():
        answer = page.request.get(path, max_redirects=0)
        kind = answer.headers.get("content-type", "")
        if answer.status >= 500:
            yield name, path  # it is looked at, and fails there
        # What has no head is a live part of another page.
        if answer.status == 200 and kind.startswith("text/html") and "<head>" in answer.text():
            yield name, path


def settle(page: Any) -> None:
    """Until charts are drawn."""
    until(page, "!document.querySelector('.chart.waiting')")


WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}


def test_every_page(filled: None, window: Callable[..., Watched]) -> None:
    """One catalogue, looked at three times: light, dark and first as a telephone has it, without scripts."""
    light = window("admin", color_scheme="light", viewport=WIDE)
    pages = dict(shown(light.page))
    assert len(pages) >= 25
    found = [f"light: {line}" for line in inaccessible(light, pages, narrow=False)]
    dark = window("admin", color_scheme="dark", viewport=NARROW)
    found += [f"dark: {line}" for line in inaccessible(dark, pages, narrow=True)]
    plain = window("admin", java_script_enabled=False)
    found += [f"without scripts: {line}" for line in told_without_scripts(plain, pages)]
    assert not found, "\n".join(found)


def inaccessible(watched: Watched, pages: dict[str, str], *, narrow: bool) -> Iterator[str]:
    """What axe finds serious on a wide screen; with ``narrow``, what was wrong before on a small one."""
    page, axe = watched.page, axe_source()
    for name, path in pages.items():
        if narrow:
            page.set_viewport_size(NARROW)
        answer = page.goto(path)
        settle(page)
        if narrow:
            yield from (f"{name} ({path}) {line}" for line in out_of_bounds(watched, answer))
            page.set_viewport_size(WIDE)
        yield from (f"{name} ({path}): {line}" for line in findings(page, axe))
    page.context.clear_cookies()
    page.goto("/login/")
    yield from (f"login: {line}" for line in findings(page, axe))


def findings(page: Any, axe: str) -> list[str]:
    page.evaluate(axe)
    return list(page.evaluate(_RUN % list(SERIOUS)))


def out_of_bounds(watched: Watched, answer: Any) -> Iterator[str]:
    """What a page does beyond its policy and its screen."""
    if answer.status >= 500:
        yield f"answered {answer.status}"
        return
    policy = answer.headers.get("content-security-policy", "")
    if "script-src" not in policy and "default-src" not in policy:
        yield "has no content security policy"
    if "unsafe-inline" in policy or "unsafe-eval" in policy:
        yield f"allows what it should not: {policy}"
    yield from (f"breaks its policy: {line}" for line in watched.violations())
    sideways = watched.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    if sideways > 0:
        yield f"scrolls sideways by {sideways} px at 360"


def told_without_scripts(watched: Watched, pages: dict[str, str]) -> Iterator[str]:
    page = watched.page
    for name, path in pages.items():
        page.goto(path)
        if not page.locator("h1").first.is_visible():
            yield f"{name} has no heading"
        words = len(page.locator("main").inner_text().split())
        if words < 10:
            yield f"{name} says {words} words"
        # No empty frame where a chart would be drawn: the table under it tells the same.
        if page.locator(".chart:visible").count():
            yield f"{name} has an empty frame"
