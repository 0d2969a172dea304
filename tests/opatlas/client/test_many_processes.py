"""One cache beneath many processes: every answer is the service's, and nothing breaks."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence

import pytest

from bench.contest.sample import NAMED, read_sample
from catalog.best.publishing import publish
from catalog.registry import register_operator, register_setting, register_target
from opatlas.client import Client, RestClient
from opatlas.identity import Operator, Setting, detect_target
from tests.catalog import making
from tests.opatlas.load.kernels import add_operator

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

READER = """
import json, sys
from pathlib import Path
from opatlas.client import Client
from opatlas.identity import Operator, Setting
folder, url, key, number = sys.argv[1:]
documents = json.loads((Path(folder) / "operators.json").read_text())
turned = documents[int(number) * 25 :] + documents[: int(number) * 25]
found = {}
options = {"setting": Setting(threads=1), "accepts": {}, "timeout_s": 60}
with Client(url, key, cache=Path(folder) / "cache", **options) as client:
    for begin in range(0, len(turned), 10):
        for answer in client.lookup_all([Operator.from_json(one) for one in turned[begin : begin + 10]]):
            found[answer.key] = [answer.status, dict(answer.best) if answer.best else None]
print(json.dumps([found, client.counts]))
"""


def published(operators: Sequence[Operator]) -> None:
    target, setting = register_target(detect_target()), register_setting(Setting(threads=1))
    for operator in operators:
        place = {"operator": register_operator(operator), "target": target, "setting": setting}
        publish(making.new_result(place, "torch", 2.0, needs={}))


def test_a_whole_list_by_eight_processes_at_once_is_what_the_service_says(
    live_server, make_key, tmp_path, publish_add
):
    operators = [entrant.operator for entrant in read_sample(NAMED["open"])]
    published(operators[::2])
    (tmp_path / "operators.json").write_text(json.dumps([one.to_json() for one in operators]))
    key = make_key("lookup", max_queued_misses=1000)
    command = [sys.executable, "-c", READER, str(tmp_path), live_server.url, key]
    running = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(8)
    ]
    found = [json.loads(process.communicate()[0]) for process in running]
    assert all(process.returncode == 0 for process in running)
    with RestClient(live_server.url, key, setting=Setting(threads=1)) as rest:
        truth = {answer.key: answer for answer in rest.lookup([one.key for one in operators])}
    for answers, _ in found:
        assert answers.keys() == truth.keys()
        for name, (status, best) in answers.items():
            assert (status, best) == (truth[name].status, truth[name].best)
    counts = [counted for _, counted in found]
    assert sum(one["cache"] for one in counts) > 0, "they learnt from each other"
    assert sum(one["service"] for one in counts) < 8 * len(operators) // 2
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
        child = os.fork()
        if not child:
            status = 1
            try:
                with Client(live_server.url, key, **options, offline=True) as client:
                    found = [client.lookup(add_operator()).best for _ in range(20)]
                    same = all(best in (truth, None) for best in found)  # empty: it waited too long
                    place = number.to_bytes(16, "big")
                    client.store.keep(place, {add_operator().key: ({"number": number}, 60.0)})
                    kept = client.store.entry(place, add_operator().key)
                    right = same and (kept is None or kept.body == {"number": number})
                    status = (0 if truth in found else 2) if right else 1
            finally:
                os._exit(status)
        children.append(child)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(ended) <= {0, 2} and ended.count(0) >= 48, ended
    with Client(live_server.url, key, **options, offline=True) as last:
        assert last.store.counts()["entries"] > 16, "who waited too long for the file went on without"
        assert last.lookup(add_operator()).best == truth
