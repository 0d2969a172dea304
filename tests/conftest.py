"""Fixtures that all tests share, and a loud summary of what could not be tested here."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import opatlas.conf
from tests.assertions import rewritten_meanwhile
from tests.configuring import configured
from tests.databases import empty, new_sqlite
from tests.forked import GROUP
from tests.services import NOT_TESTED, PrivatePostgres, PrivateRedis, or_skip
from tests.times import Times

SLOW_S = 10
TAKE_S = {
    "dashboard/browser/test_charts.py": 90,  # with all others that share its browser
    "dashboard/browser/test_every_page.py": 50,
    "hostile/cheats/test_cheats.py": 60,
    "docs/test_blocks.py": 50,
    "compatibility/test_upgrade.py": 40,
    "dashboard/run/test_whole_service.py": 30,
    "dashboard/browser/test_first_minutes.py": 25,
    "tuning/worker/test_device_worker.py": 25,
}
"""Seconds, about, of a file's slow tests that one process runs in a row, where they are many more than others
take."""


def pytest_configure(config: pytest.Config) -> None:
    os.umask(0o077)  # as the service's own processes run
    draws = 25 if "not nightly" in (config.getoption("markexpr") or "") else 100  # by day fewer, as of all
    # How long an example takes is the host's business.
    settings.register_profile("opatlas", deadline=None, max_examples=draws)
    settings.load_profile("opatlas")
    os.environ.setdefault("OPATLAS_FRAMEWORKS", "none")  # a test that tries frameworks names them …
    opatlas.conf._process.pop(opatlas.conf.OpatlasConf, None)  # … and pytest-django has read it already
    config.pluginmanager.register(Times(os.environ.get("OPATLAS_TEST_TIMES") != "none"), "times")
    os.environ["OPATLAS_TEST_TIMES"] = "none"  # a test's own pytest writes no times


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is made while ten thousand tests are read stays: looking for garbage was a fifth of it."""
    gc.disable()
    try:
        with rewritten_meanwhile(session.config):
            return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What was collected stays until the end: looking for garbage in it would be a quarter of a run."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what is set up once, a laboratory, a browser, compiled kernels, form a group: one
    process has them all. Slow ones begin, the slowest first, so that no process has a long one alone at the
    end of a part."""
    groups = {item: group for item in items if (group := _group(item))}
    for item, group in groups.items():
        item.stash[GROUP] = group
    takes_s = dict[object, int]()
    for item in items:
        if item.get_closest_marker("slow"):
            unit = groups.get(item, item)
            file = item.nodeid.partition("::")[0].removeprefix("tests/")
            takes_s[unit] = max(takes_s.get(unit, SLOW_S), TAKE_S.get(file, SLOW_S))
    items.sort(key=lambda item: -takes_s.get(groups.get(item, item), 0))


def _group(item: pytest.Item) -> str:
    """Its own mark's name; else where the widest fixture comes from that it shares with others of its folder.

    The servers, which tests of all kinds ask for, take a second to start: they make no group.
    """
    if mark := item.get_closest_marker("group"):
        return str(mark.args[0])
    places = []
    for name, definitions in item._fixtureinfo.name2fixturedefs.items():  # type: ignore[attr-defined]
        scope, place = definitions[-1].scope, definitions[-1].baseid
        alone = name == "chromium" and item.get_closest_marker("alone")  # which takes longer than the start
        if scope != "function" and place.startswith("tests/") and name != "own_lock" and not alone:
            places.append(item.nodeid.partition("::")[0] if scope == "module" else place)
    return min(places, key=len, default="")


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """The database as ``django_db_modify_db_settings`` left it: it lies in this process's own folder."""
    from django.db import connection

    return django_db_keepdb or connection.vendor == "sqlite"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None) -> None:
    """On SQLite a copy of what this tree's migrations make, where every process would run them for itself."""
    from django.db import connection

    if connection.vendor == "sqlite":
        new_sqlite(Path(connection.settings_dict["TEST"]["NAME"]))


@pytest.fixture(scope="session")
def private_postgres() -> Iterator[PrivatePostgres]:
    """A PostgreSQL server of this test run: ``.new_database()`` gives a DATABASE_URL."""
    server = or_skip(PrivatePostgres)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def private_redis() -> Iterator[PrivateRedis]:
    """A Redis server of this test run: ``.new_url()`` gives a BROKER_URL."""
    server = or_skip(PrivateRedis)
    try:
        yield server
    finally:
        server.stop()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if without_gpu := [report for report in skipped if report.nodeid.startswith("tests/gpu/")]:
        terminalreporter.line(
            f"{len(without_gpu)} tests need a GPU and were skipped: `make test-gpu` runs them."
        )
        for reason, count in Counter(report.longrepr[-1] for report in without_gpu).most_common():
            terminalreporter.line(f"  {count}: {reason.removeprefix('Skipped: ')}")
    untested = [report for report in skipped if NOT_TESTED in str(report.longrepr)]
    if not untested:
        return
    terminalreporter.section("NOT TESTED: PROGRAMS ARE MISSING", sep="!", red=True, bold=True)
    for report in untested:
        terminalreporter.line(f"{report.nodeid}: {report.longrepr[-1]}", red=True)
    terminalreporter.line(
        f"{len(untested)} tests did NOT run. Install what they name; .ci/run does.", red=True
    )


@pytest.fixture
def configure() -> Iterator[Callable[..., None]]:
    """``configure(lease_s=2.0, home=folder)``: what this process is configured as until the test's end."""
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(configured(**values))


@pytest.fixture
def organisation(db: None) -> Any:
    from catalog.registry import default_organisation

    return default_organisation()


@pytest.fixture
def tenant(db: None) -> Any:
    from catalog.models import Organisation

    return Organisation.objects.create(name="Tenant")


@pytest.fixture
def make_key(organisation: Any) -> Callable[..., str]:
    """``make_key("lookup", "operate", max_queued_misses=5)`` → the text of a new API key."""
    from catalog.people.keys import create_api_key

    def make(*scopes: str, **options: Any) -> str:
        return create_api_key(organisation, "test", scopes or ("lookup",), **options)[1]

    return make


@pytest.fixture
def api_key(make_key: Callable[..., str]) -> str:
    """The text of an API key with every scope."""
    return make_key("lookup", "models", "operate", "admin")


class Api:
    """Django's test client, speaking JSON with an API key: ``status, answer = api.post("lookup", {...})``."""

    def __init__(self, key: str | None) -> None:
        from django.test import Client

        self.client = Client(raise_request_exception=False)
        self.headers = {"Authorization": f"Bearer {key}"} if key else {}

    def get(self, path: str, **query: Any) -> Any:
        """The response to a GET below /api/v1/; ``.json()`` has its answer."""
        return self.client.get(f"/api/v1/{path}", query, headers=self.headers)

    def post(self, path: str, document: Any = None, **options: Any) -> Any:
        return self.client.post(
            f"/api/v1/{path}", document, content_type="application/json", headers=self.headers, **options
        )


@pytest.fixture
def api(api_key: str) -> Api:
    """A client of the REST API with every scope."""
    return Api(api_key)


@pytest.fixture
def api_with(db: None) -> type[Api]:
    """``api_with(key)``: a client with another key, or none."""
    return Api


@pytest.fixture(scope="session", autouse=True)
def _what_tests_with_transactions_left_is_deleted() -> Iterator[None]:
    """After each, in ``empty``'s way: Django's is refused by the ledger's and the price rules' triggers."""
    from django.db import connection
    from django.test import TransactionTestCase

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty(connection))
        yield


@pytest.fixture(scope="session", autouse=True)
def _static_files_are_found_once() -> Iterator[None]:
    """Each client of a test makes the middleware anew, and with it WhiteNoise's list of what lies there."""
    from whitenoise.middleware import WhiteNoiseMiddleware

    find, found = WhiteNoiseMiddleware.add_files_from_finders, dict[str, Any]()

    def add(middleware: Any) -> None:
        if not found:
            find(middleware)
            found.update(middleware.files)
        middleware.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", add)
        yield


@pytest.fixture
def uploads_at_once(monkeypatch: pytest.MonkeyPatch, configure: Any, tmp_path: Path) -> None:
    """A worker that takes uploads apart while they are given."""
    from tests.uploading import at_once

    configure(store=tmp_path / "store")
    at_once(monkeypatch, tmp_path)


@pytest.fixture(autouse=True)
def fresh_paces() -> None:
    """What a process keeps of past slices between pages, forgotten between tests: their rows are others."""
    if rates := sys.modules.get("tuning.queue.rates"):  # tests without Django load nothing of it
        rates.forget()
