"""Every page of the resolver in a browser: accessible in light and dark, quiet, within its policy, soon
there, then still, light in bytes, and not wider than a telephone. A page is covered as soon as its address is
in a ``urls.py``."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client

from tests.dashboard.browser.conftest import Watched
from tests.dashboard.examples import page_paths
from tests.dashboard.factory import full_catalogue
from tests.dashboard.kernels import gallery
from tests.dashboard.notifications.making import alerts_of
from tests.dashboard.serving import until

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.timeout(600)]

SERIOUS = ("serious", "critical")
# A rule's impact is its findings' own: those of no more than moderate impact need not run.
_RUN = """async ([impacts, rules]) => {
  const weighty = (one) => one.enabled && !one.tags.includes('experimental') && impacts.includes(one.impact);
  const values = rules || axe._audit.rules.filter(weighty).map((one) => one.id);
  const cheap = {resultTypes: ['violations'], preload: false, selectors: false};
  for (const one of document.querySelectorAll('[data-differs]')) one.removeAttribute('data-differs');
  for (const one of differing()) one.setAttribute('data-differs', '');
  axe.configure({rules: [{id: 'color-contrast', selector: '[data-differs]'}]});
  const found = await axe.run(document, {runOnly: {type: 'rule', values}, ...cheap});
  return found.violations.filter((one) => impacts.includes(one.impact)).map((one) =>
    `${one.id} (${one.impact}): ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(' | ')}`);
}"""
COLOURS = ["color-contrast"]
"""The rule of axe that depends on the theme: the dark page is the light one in other colours. It takes longer
than all others where it looks at hundreds of cells that are alike."""
_DIFFERING = """
window.differing = () => {
  const grounds = new Map();
  const ground = (one) => {  // all that is painted below it
    if (!one) return '';
    if (!grounds.has(one)) {
      const {backgroundColor, backgroundImage, opacity} = getComputedStyle(one);
      const own = `${backgroundColor} ${backgroundImage} ${opacity}`;
      grounds.set(one, ground(one.parentElement) + (own === 'rgba(0, 0, 0, 0) none 1' ? '' : `;${own}`));
    }
    return grounds.get(one);
  };
  const firsts = new Map();
  for (const one of document.querySelectorAll('body *')) {
    const says = [...one.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    const field = one.matches('input, select, textarea, button, button *, label, label *, fieldset *');
    if (!(says || field) || !one.checkVisibility({visibilityProperty: true})) continue;
    const {color, fill, fontSize, fontWeight, textShadow, position} = getComputedStyle(one);
    const {width, height} = one.getBoundingClientRect();
    const hidden = width <= 1 || height <= 1 || position === 'absolute' || position === 'fixed';
    const looks = [color, fill, fontSize, fontWeight, textShadow, ground(one)].join();
    const key = field || hidden || one.closest('[aria-disabled], [aria-hidden]') ? one : looks;
    if (!firsts.has(key)) firsts.set(key, one);
  }
  return [...firsts.values()];
};
"""
"""What axe has to look at for contrast: of texts in one colour, size and weight on one ground the first. What
a rule makes exceptions of, fields and what lies over others, is each a case of its own."""
_CLIPPED = """() => {
  const cut = (one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1;
  const boxes = [...document.querySelectorAll('.table-box')].filter(cut);
  const cells = [...document.querySelectorAll('table.data :is(td, th)')].filter((one) =>
    cut(one) && getComputedStyle(one).overflowX === 'hidden' && !one.title && !one.querySelector('[title]'));
  return [...boxes.map((one) => `the table ${one.id || one.innerText.slice(0, 40)} is wider than its place`),
          ...cells.map((one) => `the cell “${one.innerText.slice(0, 40)}” is cut off`)];
}"""
_MEASURE = """
window.shifted = 0;
window.painted = 0;
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifted += one.value;
}).observe({type: 'layout-shift', buffered: true});
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.painted = one.startTime;
}).observe({type: 'largest-contentful-paint', buffered: true});
"""
_MEASURED = """() => {
  const loads = ['navigation', 'resource'].flatMap((kind) => performance.getEntriesByType(kind));
  const isPlotly = (one) => one.name.includes('plotly.min');
  const [plotly, others] = [loads.filter(isPlotly), loads.filter((one) => !isPlotly(one))];
  const sizes = others.map((one) => [one.name, one.encodedBodySize]);
  return [shifted, sizes, plotly.length > 0, document.querySelectorAll('[data-chart]').length];
}"""
LARGEST_PAINT_MS, MOST_SHIFT = 1000, 0.05
LOOKS_AGAIN = 3
"""At a page that was painted late: something else of the machine ran, and a slow page stays slow."""
MOST_BYTES = 300_000
"""As the service sends it, style sheets and scripts packed by WhiteNoise; here they come as they are."""
THEMES = ("dark", "light")
HALVES = 2
"""Parts of the pages, which two processes can look at."""


@pytest.fixture
def filled(admin: Any) -> None:
    factory = full_catalogue(hours=30)
    gallery(factory)
    alerts_of(factory)


def axe_source() -> str:
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


@dataclass(frozen=True)
class Page:
    name: str
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.name} ({self.path})"


def shown(half: int, without: Container[str] = ()) -> Iterator[Page]:
    """Every other address that answers with a page, the sign-in page aside."""
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get(username="admin"))
    for name, path in list(page_paths().items())[half::HALVES]:
        if name in without:
            continue
        answer = client.get(path)
        kind = answer.headers.get("content-type", "")
        if answer.status_code >= 500:
            yield Page(name, path, "")  # it is looked at, and fails there
        if answer.status_code == 200 and kind.startswith("text/html"):
            text = b"".join(answer).decode()  # type: ignore[arg-type]
            if "<head>" in text:  # else it is a live part of another page
                yield Page(name, path, text)


def settle(page: Any) -> None:
    """Until charts are drawn."""
    until(page, "!document.querySelector('.chart.waiting')")


WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 780}


@pytest.mark.parametrize(
    "half", [pytest.param(half, marks=pytest.mark.group(f"pages {half}")) for half in range(HALVES)]
)
@pytest.mark.parametrize(
    "themes", [1, pytest.param(2, marks=pytest.mark.nightly)], ids=["in turns", "in both themes"]
)
def test_every_page(
    filled: None, window: Callable[..., Watched], half: int, themes: int, request: pytest.FixtureRequest
) -> None:
    """As a telephone has it at night, then wide, in each theme or in turns; and without scripts."""
    watched = window("admin", color_scheme="dark", viewport=NARROW)
    watched.page.context.add_init_script(_MEASURE)
    pages = list(shown(half))
    assert len(pages) >= 25 // HALVES
    painted = dict[str, float]()
    found = list(looked_at(watched, pages, painted, themes))
    if noted := noted_in_this_run(request, half):
        noted.write_text(json.dumps(painted))
    plain = window("admin", java_script_enabled=False)
    answered = [one for one in pages if one.text]
    found += [f"without scripts: {line}" for line in told_without_scripts(plain, answered)]
    assert not found, "\n".join(found)


def noted_in_this_run(request: pytest.FixtureRequest, half: int) -> Path | None:
    """Where one process of a forked run tells those of its later parts when pages were painted."""
    if not hasattr(request.config, "workerinput"):
        return None
    folders: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    return folders.getbasetemp().parent / f"painted-{half}.json"


def looked_at(
    watched: Watched, pages: Iterable[Page], painted: dict[str, float], themes: int
) -> Iterator[str]:
    """What is wrong with each; ``painted`` gets when its largest part was there, by its name."""
    page, axe = watched.page, axe_source()
    for number, one in enumerate(pages):
        page.set_viewport_size(NARROW)
        answer = page.goto(one.path)
        settle(page)
        painted[one.name] = page.evaluate("painted")
        yield from (f"{one} {line}" for line in heavy(page))
        yield from (f"{one} {line}" for line in out_of_bounds(watched, answer))
        in_turns = THEMES if themes == len(THEMES) else (THEMES[number % len(THEMES)],)
        yield from (f"{one}: {line}" for line in inaccessible(page, axe, in_turns))
        yield from (f"{one} {line}" for line in undrawn_or_too_wide(page))
        yield from (f"{one} {line}" for line in clipped(page))
    page.context.clear_cookies()
    page.goto("/login/")
    yield from (f"login: {line}" for line in inaccessible(page, axe))


@pytest.mark.timing
@pytest.mark.django_db(transaction=True)
def test_every_page_is_soon_there(request: pytest.FixtureRequest) -> None:
    """What Lighthouse would say of when the largest part was painted; on a telephone at night. A page that
    was soon there beside other tests of this run is so without them: here are those that were late."""
    noted = [noted_in_this_run(request, half) for half in range(HALVES)]
    painted = [json.loads(path.read_text()) for path in noted if path and path.exists()]
    seen = {name: ms for half in painted if len(painted) == HALVES for name, ms in half.items()}
    soon = {name for name, ms in seen.items() if ms <= LARGEST_PAINT_MS}
    if seen and len(soon) == len(seen):
        assert len(soon) >= 25
        return
    request.getfixturevalue("filled")
    page = request.getfixturevalue("window")("admin", color_scheme="dark", viewport=NARROW).page
    page.context.add_init_script(_MEASURE)
    pages = [one for half in range(HALVES) for one in shown(half, without=soon)]
    late = [f"{one}: {ms} ms" for one in pages if (ms := painted_ms(page, one.path)) > LARGEST_PAINT_MS]
    assert len(pages) + len(soon) >= 25 and not late


def painted_ms(page: Any, path: str) -> float:
    """Milliseconds until the largest part of a page is there, at its best look."""
    best = math.inf
    for _ in range(1 + LOOKS_AGAIN):
        page.goto(path)
        settle(page)
        best = min(best, page.evaluate("painted"))
        if best <= LARGEST_PAINT_MS:
            break
    return best


def test_what_axe_calls_serious_is_found_in_both_themes(chromium: Any) -> None:
    page = chromium.new_page(color_scheme="dark")
    style = "p { color: black; background: white } @media (prefers-color-scheme: light) { p { color: #ddd } }"
    page.set_content(f"""<html lang="en"><title>A page</title><style>{style}</style>
        <main><h1>A page</h1><p>Words</p><button></button></main>""")
    found = [line.split(" (")[0] for line in inaccessible(page, axe_source())]
    page.close()
    assert found == ["dark: button-name", "light: color-contrast"]


def test_what_axe_is_shown_is_one_of_each_text_that_looks_alike(chromium: Any) -> None:
    """All of them must be told apart, and whichever comes first be in sight."""
    page = chromium.new_page()
    page.set_content("""<html lang="en"><title>A page</title><style>.pale { color: #999 }</style>
        <main><h1>A page</h1><p hidden class="pale">Hidden</p><p>One</p><p>Two</p><p class="pale">Pale</p>
        <div style="background: #444"><p>On another ground</p></div>
        <div style="opacity: .4"><p>Faint</p></div></main>""")
    page.evaluate(axe_source() + _DIFFERING)
    shown = page.evaluate("differing().map((one) => one.innerText)")
    lines = "\n".join(inaccessible(page, axe_source()))
    page.close()
    assert shown == ["A page", "One", "Pale", "On another ground", "Faint"]
    assert all(f">{text}</p>" in lines for text in ("Pale", "On another ground", "Faint")), lines
    assert ">One<" not in lines and ">Two<" not in lines


@cache
def packed(address: str) -> int:
    """Bytes of a style sheet or script when it is packed; 0 of anything else."""
    name = urlsplit(address).path.removeprefix("/" + settings.STATIC_URL.lstrip("/"))
    found = finders.find(name) if name.endswith((".css", ".js", ".svg")) else None
    return len(gzip.compress(Path(found).read_bytes())) if found else 0


def heavy(page: Any) -> Iterator[str]:
    """What Lighthouse would say of what moved after it was painted, and of how many bytes it takes."""
    shifted, sizes, has_plotly, charts = page.evaluate(_MEASURED)
    size = sum(packed(name) or given for name, given in sizes)
    if shifted > MOST_SHIFT:
        yield f"moved by {shifted:.3f} after it was painted"
    if size > MOST_BYTES:
        yield f"takes {size / 1e3:.0f} kB without Plotly"
    if has_plotly and not charts:
        yield "fetches Plotly and shows no chart"


def inaccessible(page: Any, axe: str, themes: Sequence[str] = THEMES) -> Iterator[str]:
    """What axe finds serious on a wide screen: in one theme, and of what depends on it in the other."""
    page.set_viewport_size(WIDE)
    page.evaluate(axe + _DIFFERING)
    for theme in themes:
        if theme != "dark":
            page.emulate_media(color_scheme=theme)
            settle(page)
        rules = None if theme == themes[0] else COLOURS
        yield from (f"{theme}: {line}" for line in page.evaluate(_RUN, [SERIOUS, rules]))
    page.emulate_media(color_scheme="dark")


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
    yield from undrawn_or_too_wide(watched.page)


def undrawn_or_too_wide(page: Any) -> Iterator[str]:
    charts, drawn = page.locator("[data-chart]").count(), page.locator(".chart svg.main-svg").count()
    if drawn < charts:
        yield f"has drawn {drawn} of {charts} charts"
    sideways, width = page.evaluate("[document.documentElement.scrollWidth - innerWidth, innerWidth]")
    if sideways > 0:
        yield f"scrolls sideways by {sideways} px at {width}"


def clipped(page: Any) -> Iterator[str]:
    """Tables that are cut off, and cells whose text is and nowhere else said, at the widths of
    telephones, tablets and laptops."""
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    for width in (400, 768, 1100, 1280, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        yield from (f"at {width}: {line}" for line in page.evaluate(_CLIPPED))


def told_without_scripts(watched: Watched, pages: Iterable[Page]) -> Iterator[str]:
    """By what the server has said already, at the address of one of its pages."""
    page = watched.page
    page.goto("/definitions/")
    for one in pages:
        page.set_content(one.text)
        if not page.locator("h1").first.is_visible():
            yield f"{one} has no heading"
        words = len(page.locator("main").inner_text().split())
        if words < 10:
            yield f"{one} says {words} words"
        # No empty frame where a chart would be drawn: the table under it tells the same.
        if page.locator(".chart:visible").count():
            yield f"{one} has an empty frame"
