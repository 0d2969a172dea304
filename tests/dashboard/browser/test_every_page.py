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


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_serious_accessibility_finding(
    filled: None, window: Callable[..., Watched], theme: str
) -> None:
    watched = window("admin", color_scheme=theme, viewport={"width": 1280, "height": 900})
    page, axe = watched.page, axe_source()
    found: dict[str, list[str]] = {}
    pages = dict(shown(page))
    assert len(pages) >= 25
    for name, path in pages.items():
        page.goto(path)
        settle(page)
        page.evaluate(axe)
        if problems := page.evaluate(_RUN % list(SERIOUS)):
            found[f"{name} {path}"] = problems
    page.context.clear_cookies()
    page.goto("/login/")
    page.evaluate(axe)
    if problems := page.evaluate(_RUN % list(SERIOUS)):
        found["login"] = problems
    assert not found, "\n".join(f"{name}: {line}" for name, lines in found.items() for line in lines)


def test_every_page_keeps_to_its_policy_and_to_the_screen(
    filled: None, window: Callable[..., Watched]
) -> None:
    watched = window("admin", viewport={"width": 360, "height": 780})
    page = watched.page
    found: list[str] = []
    for name, path in dict(shown(page)).items():
        answer = page.goto(path)
        if answer.status >= 500:
            found.append(f"{name} ({path}) answered {answer.status}")
            continue
        settle(page)
        policy = answer.headers.get("content-security-policy", "")
        if "script-src" not in policy and "default-src" not in policy:
            found.append(f"{name}: no content security policy")
        if "unsafe-inline" in policy or "unsafe-eval" in policy:
            found.append(f"{name}: {policy}")
        found += [f"{name} breaks its policy: {line}" for line in watched.violations()]
        sideways = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if sideways > 0:
            found.append(f"{name} ({path}) scrolls sideways by {sideways} px at 360")
    assert not found, "\n".join(found)


def test_every_page_tells_the_same_without_scripts(filled: None, window: Callable[..., Watched]) -> None:
    watched = window("admin", java_script_enabled=False)
    page = watched.page
    for name, path in dict(shown(page)).items():
        page.goto(path)
        assert page.locator("h1").first.is_visible(), name
        words = len(page.locator("main").inner_text().split())
        assert words >= 10, f"{name} says {words} words without scripts"
        # No empty frame where a chart would be drawn: the table under it tells the same.
        assert not page.locator(".chart:visible").count(), name
