"""Old and new together: clients of before with today's service, today's with a service of before."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pysqlite3
import pytest

from catalog.models import Miss
from opatlas.client import Client, usage
from opatlas.client.loading import fetching
from opatlas.errors import OpatlasError
from opatlas.identity import Target, parse_operator
from tests.compatibility import old_home
from tests.opatlas.client import versions
from tests.opatlas.client.test_client import until, used
from tests.opatlas.load.kernels import add_operator

ADAS_KEY = "opk_gewsd2a22dtu_HdGhiXGBQz3CyN7kX0eufyzmEsovSGbVF77hreGVD9M"
SOFTMAX = parse_operator({"op": "Softmax", "inputs": [{"dtype": "float32", "shape": [32, 64]}]})


@pytest.fixture(scope="module")
def of_before(tmp_path_factory):
    return versions.unpack(tmp_path_factory.mktemp("versions"))


# ---- clients of before, today's service -----------------------------------------------------------------

REST_ALONE = """
import json, sys
from pathlib import Path
import numpy as np
from opatlas.client import Client, fetch_and_load
from opatlas.identity import Operator, Setting
url, key, folder, *documents = sys.argv[1:]
operators = [Operator.from_json(json.loads(one)) for one in documents]
with Client(url, key, setting=Setting(threads=1), job="old") as client:
    hit, miss = client.lookup(operators)
    related = client.lookup(operators[:1], related=operators[1:], wait_s=0.1)
    kernel = fetch_and_load(client, hit, Path(folder))
    run = kernel.bind({number: np.ones(1000, np.float32) for number in (0, 1)})
    run()
    print(json.dumps([hit.status, miss.state, related[0].best == hit.best, float(run.outputs()[0].sum())]))
"""

CACHED = """
import json, sys
import numpy as np
from opatlas.client import Client, RestOfModel, usage
from opatlas.identity import Operator, Setting
url, key, folder, *documents = sys.argv[1:]
operators = [Operator.from_json(json.loads(one)) for one in documents]
usage.REPORT_S = -1.0
x = np.ones(1000, np.float32)
with Client(url, key, setting=Setting(threads=1), job="old", cache=folder) as client:
    client.predictor = RestOfModel([client.asked(one) for one in operators])
    first = client.lookup("Add", x, x)
    again, miss = client.lookup("Add", x, x), client.lookup(operators[1])
    made = first.load()(x, x)
    why = client.explain(operators[1])
    print(json.dumps([first.source, again.source, miss.state, float(made.sum()), why["state"]]))
"""


@pytest.fixture
def documents():
    return [json.dumps(one.to_json()) for one in (add_operator(), add_operator(7))]


def test_a_client_of_rest_calls_alone(of_before, publish_add, live_server, make_key, tmp_path, documents):
    publish_add()
    place = (live_server.url, make_key("lookup"), str(tmp_path / "kernel"))
    said = versions.run(of_before / "7fa76a5", REST_ALONE, *place, *documents)
    assert json.loads(said) == ["hit", "waiting", True, 2000.0]
    assert Miss.objects.get().state == "waiting" and used() == {add_operator().key: 2}


def test_the_first_client_with_a_cache_and_todays_on_one_cache(
    of_before, publish_add, live_server, make_key, job, tmp_path, documents, monkeypatch
):
    publish_add()
    monkeypatch.setattr(usage, "REPORT_S", -1.0)
    place = (live_server.url, job()._address["key"], str(tmp_path / "cache"))
    x = np.ones(1000, np.float32)
    for turn in range(1, 3):
        said = json.loads(versions.run(of_before / "b73e047", CACHED, *place, *documents))
        assert said == [("service", "cache")[turn - 1], "memory", "waiting", 2000.0, "queued"]
        today = job()
        assert (today.lookup(add_operator()).load()(x, x) == 2).all()
        assert not today.lookup(add_operator(7))
        today.close()
    assert not list((tmp_path / "cache").glob("*.damaged-*"))
    assert used() == {add_operator().key: 2 + 1 + 2 + 1}


# ---- today's client, a service of before ----------------------------------------------------------------


@pytest.fixture(scope="module")
def old_service(of_before, tmp_path_factory):
    """A real one, over what a real one left, where nothing costs anything; its address."""
    home = old_home.unpack(tmp_path_factory.mktemp("old"))
    with contextlib.closing(pysqlite3.connect(home / "opatlas.sqlite3")) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f'DROP TRIGGER "{name}"')
        database.execute("DELETE FROM billing_pricerule")
        (target,) = database.execute("SELECT description FROM catalog_target").fetchone()
        database.commit()
    process = versions.start(
        of_before / "7fa76a5",
        versions.SERVE,
        OPATLAS_HOME=str(home),
        DJANGO_SETTINGS_MODULE="dashboard.settings",
    )
    try:
        port = process.stdout.readline().strip()
        assert port, process.stderr.read()[-3000:]
        yield f"http://127.0.0.1:{port}", Target.from_json(json.loads(target))
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def old_job(old_service, tmp_path, monkeypatch):
    """``old_job()``: today's client of it, all of one cache."""
    url, machine = old_service
    monkeypatch.setattr(fetching, "detect_target", lambda: machine)  # of whatever machine tests run on
    monkeypatch.setattr(usage, "REPORT_S", -1.0)
    made = []

    def make(**options):
        made.append(Client(url, ADAS_KEY, target=machine, cache=tmp_path / "cache", **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_todays_client_looks_up_keeps_and_loads(old_job):
    client = old_job()
    answer = client.lookup(SOFTMAX)
    assert answer.source == "service" and answer.best["label"] == "softmax-avx2 v1"
    assert answer.expires_s == 300.0, "it says so of all of its answers"
    x = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float32)
    np.testing.assert_allclose(answer.load()(x).sum(-1), np.ones(32), rtol=1e-5)
    assert client.lookup(SOFTMAX).source == "memory"
    second = old_job()
    assert second.lookup(SOFTMAX).source == "cache" and second.counts["requests"] == 0
    second.close()
    assert second.store.counts()["reports"] == 0, "it cannot be told of uses, and is not told again and again"


def test_todays_client_misses_waits_and_is_told_why_not(old_job, monkeypatch, caplog):
    monkeypatch.setattr("opatlas.client.watching.FIRST_POLL_S", 0.05)
    client, told = old_job(), []
    empty = client.lookup("Relu", (77,), wait_s=0.1, wait_for="contest")
    assert not empty and empty.state == "waiting" and empty.source == "service"
    client.when_known(told.append, SOFTMAX)
    until(lambda: told)
    assert told[0].best["label"] == "softmax-avx2 v1"
    with pytest.raises(OpatlasError):
        client.explain("Relu", (77,))
    assert not caplog.records, "nothing of it is a fault"
