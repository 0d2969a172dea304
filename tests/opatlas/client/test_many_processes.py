"""One cache beneath many processes: every answer is the service's, and nothing breaks."""

from __future__ import annotations

import os
import sqlite3

import pytest

from bench.contest.sample import NAMED
from bench.shared_cache import ask_by_many, differing, truth
from opatlas.client import Client
from opatlas.client.cache import cachefile
from opatlas.identity import Setting
from tests import by_day
from tests.databases import ROOT
from tests.opatlas.client.forking import fork
from tests.opatlas.load.kernels import add_operator
from tuning.graph.operator_list import extract_list

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the file is another's on this host, nobody goes on without it."""
    monkeypatch.setattr(cachefile, "BUSY_S", 60.0)


LISTS = [*NAMED.values(), *(ROOT / f"tests/data/{name}_calls.json" for name in ("aten", "benchmark"))]
"""What lies here of the open logs."""


@pytest.mark.parametrize("every", by_day.only([5], [1, 5]))
def test_logs_by_eight_processes_at_once_are_what_the_service_says(
    live_server, make_key, tmp_path, publish_all, every
):
    """All of them, or one operator of some."""
    found = [one.operator for path in LISTS for one in extract_list(path.read_bytes()).operators]
    operators = list({operator.key: operator for operator in found}.values())[::every]
    publish_all(operators[::2])
    place = (live_server.url, make_key("lookup", max_queued_misses=1000), operators)
    asked = ask_by_many(*place, tmp_path, Setting(threads=1))
    told = truth(*place, Setting(threads=1))
    assert list(differing([answers for answers, _ in asked], told)) == []
    hits = sum(one["status"] == "hit" for one in told.values())
    assert hits == len(operators[::2]) and len(told) == len(operators) > 400 // every
    counts = [counted for _, counted in asked]
    assert sum(one["cache"] for one in counts) > 0, "they learnt from each other"
    assert sum(one["service"] for one in counts) < 8 * hits // 2
    with sqlite3.connect(tmp_path / "cache" / "entries-1.sqlite") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_sixty_four_processes_on_one_cache(live_server, make_key, tmp_path, publish_add):
    publish_add()
    key = make_key("lookup")
    options = {"cache": tmp_path / "cache", "setting": Setting(threads=1), "timeout_s": 60.0}
    with Client(live_server.url, key, **options) as first:
        truth = first.lookup(add_operator()).best
    children = []
    for number in range(64):
        child = fork()
        if not child:
            status = 1
            try:
                with Client(live_server.url, key, **options, offline=True) as client:
                    found = [client.lookup(add_operator()).best for _ in range(20)]
                    same = all(best == truth for best in found)
                    place = number.to_bytes(16, "big")
                    client.store.keep(place, {add_operator().key: ({"number": number}, 60.0)})
                    kept = client.store.entry(place, add_operator().key)
                    status = 0 if same and kept and kept.body == {"number": number} else 1
            finally:
                os._exit(status)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(ended) == {0}, ended
    with Client(live_server.url, key, **options, offline=True) as last:
        assert last.store.counts()["entries"] >= 1 + 64
        assert last.lookup(add_operator()).best == truth
