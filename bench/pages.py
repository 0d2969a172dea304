"""How long the server takes for every page, on a large service, with PostgreSQL and with SQLite.

An invented service (``python -m bench.seed service``) of 1M implementations, 10M usage rows and
100k explorations is kept below var/bench/pages/ (``FRESH=1`` seeds again; OPATLAS_BENCH_IMPLEMENTATIONS,
_USAGE and _EXPLORATIONS make it smaller). The real web server answers; a page's time is what it says itself
(``Server-Timing``), from the first middleware to the last, and so is its number of queries. Pages are asked
for one after the other, by somebody of the host who sees every tenant, and by a viewer of the busiest tenant.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from http.cookiejar import CookieJar
from typing import Any

from bench.conf import conf
from bench.lookup import manage
from bench.record import FOLDER, BenchRecord
from bench.servers import KeptPostgres
from dashboard.run.stack import ROOT, Stack

ENGINES = ("postgres", "sqlite")
AIM_MS = {"postgres": 200.0, "sqlite": 500.0}
HOME = FOLDER / "pages"


@dataclass(frozen=True)
class PagesSize:
    implementations: int
    usage: int
    explorations: int

    @classmethod
    def wanted(cls) -> PagesSize:
        return cls(conf().bench_implementations, conf().bench_usage, conf().bench_explorations)


def main() -> None:
    record, size = BenchRecord("pages"), PagesSize.wanted()
    result: dict[str, Any] = {}
    for engine in ENGINES:
        result[engine] = record.part(
            f"{engine}, {size.usage:,} usage rows", lambda e=engine: measure(e, size)
        )
        print(table(engine, result[engine]), flush=True)
    record.finish(result | {"size": asdict(size), "aim_ms": AIM_MS}, shown=["size", "aim_ms"])
    for engine in ENGINES:
        over = missed(engine, result[engine])
        print(f"{engine}: {len(over)} of {len(result[engine])} above {AIM_MS[engine]:.0f} ms{listed(over)}")


def measure(engine: str, size: PagesSize) -> dict[str, dict[str, Any]]:
    """Page (and who looks) → its median time and its queries."""
    with seeded(engine, size) as (environment, people), ExitStack() as stack:
        web = Stack(
            environment | {"OPATLAS_SERVER_TIMING": "1", "OPATLAS_LOG": "WARNING"},
            workers=0,
            courier=False,
            logs=HOME / engine / "logs",
        )
        stack.enter_context(web)
        paths = examples(environment)
        found: dict[str, dict[str, Any]] = {}
        for who, account in people.items():
            browser = Browser(web.url)
            browser.log_in(**account)
            for name, path in sorted(paths.items()):
                timed = time_page(browser, path)
                if timed is not None:
                    found[name if who == "admin" else f"{name} ({who})"] = timed
    return found


def time_page(browser: Browser, path: str) -> dict[str, Any] | None:
    """Median over rounds, the first left out (it fills caches); None where it is no page for who looks."""
    times, queries, sizes = [], 0, 0
    for number in range(conf().bench_rounds + 1):
        status, said_of_time, body = browser.get(path)
        if status != 200:
            if status >= 500:
                print(f"{path} answered {status}", flush=True)
            return None
        said = re.search(r'total;dur=([\d.]+).*desc="(\d+) queries', said_of_time)
        assert said, f"{path}: no Server-Timing"
        queries, sizes = int(said[2]), len(body)
        if number:
            times.append(float(said[1]))
        elif float(said[1]) > 20_000:
            return {"median_ms": float(said[1]), "queries": queries, "kib": sizes >> 10, "path": path}
    return {
        "median_ms": round(statistics.median(times), 1),
        "queries": queries,
        "most_ms": round(max(times), 1),
        "kib": sizes >> 10,
        "path": path,
    }


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **more: Any) -> None:
        return None


class Browser:
    """Asks for pages with a session's cookies, and follows no redirect."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = CookieJar()
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(self.cookies), _NoRedirects
        )

    def get(self, path: str, form: dict[str, str] | None = None) -> tuple[int, str, bytes]:
        """Status, the ``Server-Timing`` header and the body; a POST where there is a form."""
        data = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(self.url + path, data, {"Referer": self.url + path})
        try:
            with self._opener.open(request, timeout=120) as answer:
                return answer.status, answer.headers.get("Server-Timing", ""), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, "", error.read()

    def log_in(self, user: str, password: str) -> None:
        _, _, page = self.get("/login/")
        token = re.search(rb'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token, "The login page has no form."
        status, _, _ = self.get(
            "/login/", {"username": user, "password": password, "csrfmiddlewaretoken": token[1].decode()}
        )
        assert status == 302, f"Logging in as {user} answered {status}."


def examples(environment: dict[str, str]) -> dict[str, str]:
    """Name → address of every page with its heavy forms, from the database that is measured."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.dashboard.examples"],
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "dashboard.settings", **environment},
    )
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


@contextmanager
def seeded(engine: str, size: PagesSize) -> Iterator[tuple[dict[str, str], dict[str, dict[str, str]]]]:
    """The environment of the large service, and its accounts; made once and kept."""
    home = (HOME / engine).resolve()
    stamp = home / "seeded.json"
    kept = json.loads(stamp.read_text()) if stamp.exists() else {}
    current = kept.get("size") == asdict(size) and not conf().fresh
    if not current:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
    environment = {"OPATLAS_HOME": str(home), "OPATLAS_LOG": "WARNING"}
    with ExitStack() as stack:
        if engine == "postgres":
            server = stack.enter_context(KeptPostgres(home / "postgres"))
            environment["DATABASE_URL"] = server.url
        manage(environment, "migrate", "--verbosity", "0")
        if not current:
            said = manage(
                environment, "-m", "bench.seed", "service", "--implementations", str(size.implementations),
                "--usage", str(size.usage), "--explorations", str(size.explorations),
            )  # fmt: skip
            kept = {"size": asdict(size), "people": json.loads(said.strip().splitlines()[-1])["people"]}
            stamp.write_text(json.dumps(kept))
        yield environment, kept["people"]


def missed(engine: str, pages: dict[str, dict[str, Any]]) -> list[str]:
    return [name for name, page in pages.items() if page["median_ms"] > AIM_MS[engine]]


def listed(names: list[str]) -> str:
    return f": {', '.join(names)}" if names else ""


def table(engine: str, pages: dict[str, dict[str, Any]]) -> str:
    """As people read it, the slowest first."""
    lines = [f"\n{engine}: {len(pages)} pages, aim {AIM_MS[engine]:.0f} ms"]
    lines.append(f"{'page':<44}{'median ms':>10}{'most':>9}{'queries':>9}{'KiB':>7}")
    for name, page in sorted(pages.items(), key=lambda item: -item[1]["median_ms"]):
        mark = "  over" if page["median_ms"] > AIM_MS[engine] else ""
        lines.append(
            f"{name:<44}{page['median_ms']:>10.1f}{page.get('most_ms', 0):>9.1f}{page['queries']:>9}"
            f"{page['kib']:>7}{mark}"
        )
    return "\n".join(lines)
