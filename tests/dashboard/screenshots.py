"""Every page as PNGs: ``python -m tests.dashboard.screenshots [FOLDER] [--url URL --user NAME …]``.

Light and dark, wide (1440) and narrow (390). Without ``--url`` the pages show the tests' made-up catalogue.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dashboard.serving import CHROMIUM_FLAGS, find_chromium, serving

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")


@contextmanager
def made_up(fill: bool) -> Iterator[str]:
    """A service of its own in a folder that goes when the process ends."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings_test")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"  # Playwright's synchronous interface runs an event loop
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

    from tests.dashboard.factory import full_catalogue
    from tests.dashboard.kernels import gallery

    call_command("migrate", verbosity=0)
    call_command("flush", verbosity=0, interactive=False)
    User.objects.create_superuser("admin", password="admin")
    if fill:
        gallery(full_catalogue())
    with serving(get_wsgi_application()) as url:
        yield url


def paths_of(page: Any, url: str) -> dict[str, str]:
    """Name → path of every page; those of one row are found by following a list's first link."""
    paths = {
        "overview": "/",
        "operators": "/operators/",
        "explorations": "/explorations/",
        "models": "/models/",
        "environments": "/environments/",
        "kernels": "/kernels/",
        "kernel-submit": "/kernels/submit/",
    }
    # Of several listings the first that has a row counts: a young catalogue lacks some.
    firsts = {
        "operator": ("/operators/?sort=-jobs&method=compiler", "/operators/?status=hit&sort=-speedup"),
        "operator-missed": ("/operators/?status=waiting",),
        "exploration": ("/explorations/?state=running&stage=2", "/explorations/?state=running&stage=1"),
        "exploration-new": ("/explorations/?state=running&stage=0",),
        "exploration-done": ("/explorations/?state=done",),
        "exploration-dead": ("/explorations/?state=dead",),
        "model": ("/models/",),
    }
    for name, listings in firsts.items():
        for listing in listings:
            page.goto(url + listing)
            link = page.locator("main .row-link").first
            if link.count():
                paths[name] = link.get_attribute("href")
                break
    page.goto(f"{url}/kernels/")
    for name, kernel in (
        ("kernel", "softmax-rows"),
        ("kernel-approved", "softmax-avx2"),
        ("kernel-failed", "gelu-tanh"),
    ):
        link = page.locator("main .row-link", has_text=kernel).first
        if link.count():
            paths[name] = link.get_attribute("href")
    if "kernel" in paths:
        paths["kernel-edit"] = paths["kernel"] + "edit/"
    return paths | {"operators-none": "/operators/?q=nothing-like-this", "password": "/password/"}


def shoot(page: Any, url: str, paths: dict[str, str], folder: Path, only: set[str]) -> None:
    """Every page in every size and theme; says so where a page scrolls sideways."""
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            for name, path in paths.items():
                if only and name not in only:
                    continue
                page.goto(url + path)
                page.wait_for_timeout(250)
                if page.locator("[data-chart]").count():
                    page.wait_for_function("!document.querySelector('.chart.waiting')", timeout=20_000)
                sideways = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                if sideways > 0:
                    print(f"{name} {size}: scrolls sideways by {sideways} px", file=sys.stderr)
                page.screenshot(path=str(folder / f"{name}-{size}-{theme}.png"), full_page=True)


def main() -> int:
    """Take them all; the exit status says whether there was a browser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("var/screenshots"))
    parser.add_argument("--url", help="a running service instead of the made-up catalogue")
    parser.add_argument("--user", default="admin")
    parser.add_argument("--password", default="admin")
    parser.add_argument("--empty", action="store_true", help="an empty catalogue: how to begin")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages")
    options = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(
            "No Chromium is installed (apt install chromium), so there are no screenshots.", file=sys.stderr
        )
        return 1
    from playwright.sync_api import sync_playwright

    options.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM_FLAGS))
        page = browser.new_page()
        page.on("console", lambda message: print(f"console: {message.text}", file=sys.stderr))
        page.on("pageerror", lambda error: print(f"page error: {error}", file=sys.stderr))
        if options.url:
            visit(page, options.url, options)
        else:
            with made_up(fill=not options.empty) as url:
                visit(page, url, options)
        browser.close()
    return 0


def visit(page: Any, url: str, options: argparse.Namespace) -> None:
    """Log in and look at everything."""
    if not options.only:
        shoot(page, url, {"login": "/login/"}, options.folder, set())
    page.goto(f"{url}/login/")
    page.fill("[name=username]", options.user)
    page.fill("[name=password]", options.password)
    page.click("button[type=submit]")
    if options.empty:
        shoot(page, url, {"begin": "/", "models-empty": "/models/"}, options.folder, set())
    else:
        shoot(page, url, paths_of(page, url), options.folder, set(options.only))


if __name__ == "__main__":
    raise SystemExit(main())
