"""Every page as PNGs: ``python -m tests.dashboard.screenshots [FOLDER] [--url URL --user NAME …]``.

Light and dark, wide (1440) and narrow (390); with ``--docs FOLDER`` small pictures instead. Without
``--url`` the pages show the tests' made-up catalogue.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dashboard.pictures import shoot_docs
from tests.dashboard.serving import find_chromium, headless, log_in, serving, until
from tests.services import MissingProgram

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")


@contextmanager
def made_up(fill: bool) -> Iterator[str]:
    """A service of its own in a folder that goes when the process ends."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings_test")
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.core.wsgi import get_wsgi_application

    from catalog.models import Operator
    from tests.dashboard.billing.making import bills
    from tests.dashboard.factory import full_catalogue, on_a_gpu
    from tests.dashboard.kernels import gallery
    from tests.dashboard.notifications.making import alerts_of, told
    from tests.dashboard.webhooks.making import webhooks_of

    call_command("migrate", verbosity=0)
    call_command("flush", verbosity=0, interactive=False)
    User.objects.create_superuser("admin", password="admin")
    if fill:
        factory = full_catalogue()
        on_a_gpu(factory, Operator.objects.filter(best_set__rank=0).distinct())
        gallery(factory)
        bills(factory)
        webhooks_of(factory.organisation)
        told(factory)
        alerts_of(factory)
    with serving(get_wsgi_application()) as url:
        yield url


def paths_of(page: Any, url: str) -> dict[str, str]:
    """Name → path of every page; those of one row are found by following a list's first link."""
    paths = {
        "overview": "/",
        "operators": "/operators/",
        "definitions": "/definitions/",
        "explorations": "/explorations/",
        "models": "/models/",
        "alerts": "/alerts/",
        "failures": "/failures/",
        "queues": "/queues/",
        "collect": "/queues/collect/",
        "jobs": "/jobs/",
        "methods": "/methods/",
        "environments": "/environments/",
        "compare": "/compare/",
        "kernels": "/kernels/",
        "kernel-submit": "/kernels/submit/",
        "billing": "/billing/",
        "ledger": "/billing/ledger/",
        "prices": "/billing/prices/",
        "price-new": "/billing/prices/new/",
        "webhooks": "/webhooks/",
        "notifications": "/notifications/",
        "subscriptions": "/notifications/subscriptions/",
        "people": "/people/",
        "keys": "/keys/",
        "audit": "/audit/",
        "growth": "/growth/",
        "account": "/account/",
        "own-keys": "/account/keys/",
        "begin": "/begin/",
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
        "webhook": ("/webhooks/",),
        "alert": ("/alerts/",),
        "failure": ("/failures/?sort=-trials",),
    }
    for name, listings in firsts.items():
        for listing in listings:
            page.goto(url + listing)
            link = page.locator("main .row-link").first
            if link.count():
                paths[name] = link.get_attribute("href")
                break
    for name, words in (("billing-of", "Tenant Works"), ("price", "Hand-written")):
        listing = "/billing/" if name == "billing-of" else "/billing/prices/"
        page.goto(url + listing)
        named = page.locator("main td a", has_text=words)
        # A service of its own has other names.
        first = "main td a[href*='/billing/organisations/']" if name == "billing-of" else "main td a"
        link = named.first if named.count() else page.locator(first).first
        if link.count():
            paths[name] = link.get_attribute("href")
    page.goto(f"{url}/jobs/")
    link = page.locator("main table a").last
    if link.count():
        paths["job"] = link.get_attribute("href")
    page.goto(f"{url}/models/")
    for name, upload in (("upload", "resnet50-int8"), ("upload-refused", "everything-merged")):
        link = page.locator("main .list a", has_text=upload).first
        if link.count():
            paths[name] = link.get_attribute("href")
    page.goto(f"{url}/kernels/")
    for name, kernel in (
        ("kernel", "softmax-rows"),
        ("kernel-approved", "softmax-avx2"),
        ("kernel-failed", "gelu-tanh"),
    ):
        link = page.locator("main .row-link", has_text=kernel).first
        if link.count():
            paths[name] = link.get_attribute("href")
    if "kernel" not in paths and page.locator("main .row-link").count():
        paths["kernel"] = page.locator("main .row-link").first.get_attribute("href")
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
                    until(page, "!document.querySelector('.chart.waiting')")
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
    parser.add_argument("--docs", type=Path, help="a folder for small pictures: 1280 wide, WebP")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages")
    options = parser.parse_args()
    try:
        path = find_chromium()
    except MissingProgram as missing:
        print(f"No screenshots: {missing}.", file=sys.stderr)
        return 1
    options.folder.mkdir(parents=True, exist_ok=True)
    with headless(path) as browser:
        page = browser.new_page()
        page.on("console", lambda message: print(f"console: {message.text}", file=sys.stderr))
        page.on("pageerror", lambda error: print(f"page error: {error}", file=sys.stderr))
        if options.url:
            visit(page, options.url, options)
        else:
            with made_up(fill=not options.empty) as url:
                visit(page, url, options)
    return 0


def visit(page: Any, url: str, options: argparse.Namespace) -> None:
    """Log in and look at everything."""
    if not options.only and not options.docs:
        shoot(page, url, {"login": "/login/"}, options.folder, set())
    log_in(page, options.user, options.password, url)
    if options.docs:
        paths = {"overview": "/"} if options.empty else paths_of(page, url)
        shoot_docs(page, url, paths, options.docs, set(options.only))
    elif options.empty:
        shoot(page, url, {"begin": "/", "models-empty": "/models/"}, options.folder, set())
    else:
        shoot(page, url, paths_of(page, url), options.folder, set(options.only))


if __name__ == "__main__":
    raise SystemExit(main())
