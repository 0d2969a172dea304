"""Every page as PNGs: ``python -m tests.dashboard.screenshots [FOLDER] [--home FOLDER | --url URL …]``.

Light and dark, wide (1440) and narrow (390); with ``--docs FOLDER`` small pictures instead. The pages show
the tests' made-up catalogue; with ``--url`` a running service's; with ``--home`` what lies in an
OPATLAS_HOME (``tests.dashboard.lived_in`` says what is done there first), and the made-up one's where that
has no such row (prices, webhooks, submitted kernels).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.dashboard.kept_home import KeptService, served_again
from tests.dashboard.pictured import ASKED, FOUND, PLAIN, before_login, paths_of
from tests.dashboard.pictures import shoot_docs
from tests.dashboard.serving import find_chromium, headless, log_in, serving, until
from tests.services import MissingProgram

SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")


@contextmanager
def made_up(fill: bool) -> Iterator[str]:
    """A service of its own in a folder that goes when the process ends."""
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
    parser.add_argument("--home", type=Path, help="an OPATLAS_HOME: a service is started on a copy of it")
    parser.add_argument("--give", nargs="*", default=[], help="with --home: models to give it first")
    parser.add_argument(
        "--explore-s", type=float, default=0.0, help="with --home: wait so long at most for contests to end"
    )
    parser.add_argument("--empty", action="store_true", help="an empty catalogue: how to begin")
    parser.add_argument("--docs", type=Path, help="a folder for small pictures: 1280 wide, WebP")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages")
    options = parser.parse_args()
    try:
        path = find_chromium()
    except MissingProgram as missing:
        print(f"No screenshots: {missing}.", file=sys.stderr)
        return 1
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings_test")
    import django

    django.setup()
    options.folder.mkdir(parents=True, exist_ok=True)
    with headless(path) as browser:
        if options.url:
            visit(browser, KeptService(options.url, options.password, options.user), options)
        elif options.home:
            shown = of_home(browser, options)
            options.only = sorted((set(options.only) or {*PLAIN, *FOUND, *ASKED}) - shown)
            print(f"Made up, since that home has no such rows: {', '.join(options.only) or 'nothing'}.")
        if not options.url and (options.only or not options.home):
            with made_up(fill=not options.empty) as url:
                visit(browser, KeptService(url, "admin", "admin"), options)
    return 0


def of_home(browser: Any, options: argparse.Namespace) -> set[str]:
    """Pictures of what a home has, once its worker is there; their names."""
    with served_again(options.home, options.give, options.explore_s) as kept:
        page = browser.new_page()
        log_in(page, kept.name, kept.password, kept.url)
        for _ in range(90):  # until then the overview says that nobody explores
            page.goto(f"{kept.url}/queues/")
            if "Nobody explores" not in page.content():
                break
            page.wait_for_timeout(1000)
        page.context.close()
        return visit(browser, kept, options)


def visit(browser: Any, where: KeptService, options: argparse.Namespace) -> set[str]:
    """Look at what needs no account, log in, and look at everything; names of what there was."""
    page = browser.new_page()
    page.on("console", lambda message: print(f"console: {message.text}", file=sys.stderr))
    page.on("pageerror", lambda error: print(f"page error: {error}", file=sys.stderr))
    only, url = set(options.only), where.url

    def look(paths: dict[str, str]) -> None:
        if options.docs:
            shoot_docs(page, url, paths, options.docs, only)
        else:
            shoot(page, url, paths, options.folder, only)

    before = {} if options.empty else before_login()
    look(before)
    log_in(page, where.name, where.password, url)
    paths = {"begin": "/", "models-empty": "/models/"} if options.empty else paths_of(page, url)
    look(paths)
    page.close()
    return {*before, *paths}


if __name__ == "__main__":
    raise SystemExit(main())
