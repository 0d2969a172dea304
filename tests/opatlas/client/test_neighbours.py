"""A client on a machine like one that is known: marked hits, loaded only where its own check agrees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.best.publishing import publish
from catalog.models import Artifact, Miss, Target, Usage
from catalog.registry import register_operator, register_setting, register_target
from opatlas.client import Refused, Snapshot, export_snapshot
from opatlas.identity import Setting, default_setting, detect_target, parse_operator
from opatlas.load.signing import new_key, public_bytes
from tests.catalog.making import new_result
from tests.opatlas.load.kernels import HEADER, add_operator

HERE = detect_target()
THERE = replace(HERE, cores=HERE.cores + 6)
X, A = np.ones(1000, np.float32), np.ones((8, 8), np.float32)


@pytest.fixture
def publish_there(publish_add):
    """An addition that was compiled and measured on a machine with more cores."""

    def make(made_for=THERE, at=THERE, **options):
        publish_add(provenance={"target": made_for.to_json()}, **options)
        Target.objects.update(key=at.key, description=at.to_json())

    return make


def test_it_is_marked_loads_and_is_a_snapshots_with_its_mark(publish_there, job, tmp_path):
    publish_there()
    client = job()
    answer = client.lookup(add_operator())
    assert answer and not answer.final and answer.target == HERE.key
    assert answer.from_neighbour["target"] == THERE.key
    assert answer.differences == f"cores {THERE.cores}, here {HERE.cores}"
    assert (answer.load()(X, X) == 2).all()
    assert client.lookup(add_operator()).from_neighbour, "from memory"
    assert job().lookup(add_operator()).from_neighbour, "and from the machine's cache"
    assert Miss.objects.get().target.key == HERE.key
    ours = new_key(tmp_path / "ours.pem")
    export_snapshot(client, [add_operator()], tmp_path / "job.opatlas", ours)
    pinned = Snapshot.open(tmp_path / "job.opatlas", [public_bytes(ours)])
    answer = job(snapshot=pinned, cache=tmp_path / "elsewhere").lookup(add_operator())
    assert answer.from_neighbour["target"] == THERE.key and (answer.load()(X, X) == 2).all()


def test_who_does_not_want_them_has_none_of_them_in_the_shared_cache_either(publish_there, job):
    publish_there()
    assert job().lookup(add_operator())
    assert not job(neighbours=False).lookup(add_operator())


@pytest.mark.parametrize(
    "other",
    [
        replace(THERE, features=(*HERE.features, "zz_unheard_of")),
        replace(THERE, arch="other"),
        replace(THERE, cores=HERE.cores + 7),
        HERE,
    ],
)
def test_a_lying_service_cannot_hand_out_what_was_made_for_another(publish_there, job, other, monkeypatch):
    publish_there(made_for=other)
    monkeypatch.setattr("catalog.lookup.neighbours._made_for", lambda target, hits: set(hits))
    answer = job().lookup(add_operator())
    assert answer.from_neighbour
    with pytest.raises(Refused, match="no neighbour of") as refused:
        answer.load()
    assert refused.value.why == "target"


def test_nor_what_does_not_say_what_it_was_made_for(publish_there, publish_add, job, monkeypatch):
    publish_there()
    monkeypatch.setattr("catalog.lookup.neighbours._made_for", lambda target, hits: set(hits))
    answer = job().lookup(add_operator())
    publish_add()  # the same without a word of it
    bare = Artifact.objects.order_by("-pk").first()
    assert "provenance" not in bare.manifest
    stolen = replace(answer, best={**answer.best, "artifact": bare.sha256})
    with pytest.raises(Refused, match="does not say which"):
        stolen.load()


COUNTS = (
    HEADER
    + """
/* Of how many threads it was told, in what it was made for; each task has a place of its own there. */
static int body(int32_t task, int32_t tasks, void* arg) {
  const opatlas_tensor* t = arg;
  ((float*)t[2].data)[task] = tasks;
  return 0;
}
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  return threads->parallel_for(threads->pool, body, (void*)t, threads->count);
}
"""
)
ALL_HERE = default_setting(HERE)


def test_all_cores_here_take_what_was_made_for_all_cores_there(publish_there, job, pools):
    """Under the default setting: it is told the threads that it was made for, and has those of here."""
    publish_there(threads=THERE.cores, source=COUNTS)
    client = job(setting=None)
    answer = client.lookup(add_operator())
    assert answer.setting == ALL_HERE.key and answer.target == HERE.key and not answer.final
    assert answer.differences == (
        f"cores {THERE.cores}, here {HERE.cores}; setting.threads {THERE.cores}, here {HERE.cores}"
    )
    told = client.explain(add_operator())
    assert told["state"] == "queued" and "Until a worker serves this target" in told["sentence"]
    assert answer.differences in told["sentence"]
    function = answer.load()
    made = function(X, X)
    assert (made[: THERE.cores] == THERE.cores).all() and pools == [HERE.cores]
    assert function.manifest.setting["threads"] == HERE.cores, "which its default takes, where it fails"
    assert job(setting=None).lookup(add_operator()).from_neighbour, "from the machine's cache"
    assert not job(setting=ALL_HERE, neighbours=False).lookup(add_operator())
    assert Miss.objects.get().setting.key == ALL_HERE.key, "it is explored here all the same"


def matmul():
    return parse_operator({"op": "MatMul", "inputs": [{"shape": [8, 8], "dtype": "float32"}] * 2})


@pytest.fixture
def publish_recipe_there(transactional_db, signing_key):
    """``publish_recipe_there(8, {"threads": 1})``: a product by NumPy, measured on more cores."""

    def make(threads, parameters):
        recipe = {"library": "numpy", "call": "matmul", **parameters}
        place = {
            "operator": register_operator(matmul()),
            "target": register_target(THERE),
            "setting": register_setting(Setting(threads=threads)),
        }
        made = new_result(place, "numpy", 2.0, candidate=recipe, needs={}, signing_key=signing_key)
        publish(replace(made, manifest=replace(made.manifest, recipe=recipe)))

    return make


@pytest.fixture
def pools(monkeypatch):
    """With how many threads pools are opened."""
    from opatlas.load import pool

    opened, library = [], pool.pool_library()
    open_pool = library.opatlas_pool_open
    monkeypatch.setattr(library, "opatlas_pool_open", lambda count: opened.append(count) or open_pool(count))
    return opened


def test_a_librarys_call_runs_on_all_cores_of_here(publish_recipe_there, job):
    publish_recipe_there(THERE.cores, {"threads": THERE.cores})
    function = job(setting=None).lookup(matmul()).load()
    assert function.kernel.recipe["threads"] == HERE.cores
    assert (function(A, A) == 8).all()


def test_and_on_one_thread_where_it_was_found_best_so(publish_recipe_there, job):
    publish_recipe_there(THERE.cores, {"threads": 1})
    assert job(setting=None).lookup(matmul()).load().kernel.recipe["threads"] == 1


def test_a_service_that_says_nothing_of_the_threads_is_refused(publish_there, job):
    publish_there(threads=THERE.cores)
    answer = job(setting=None).lookup(add_operator())
    mark = answer.from_neighbour
    cores = {"cores": mark["differs"]["cores"]}
    wrong = cores | {"setting.threads": {"asked": HERE.cores, "neighbour": THERE.cores + 1}}
    for differs in (cores, wrong):
        with pytest.raises(Refused, match="for the setting") as refused:
            replace(answer, from_neighbour={**mark, "differs": differs}).load()
        assert refused.value.why == "setting"
    with pytest.raises(Refused, match="for the setting"):
        replace(answer, from_neighbour=None).load()
    with pytest.raises(Refused, match="for the setting"):
        replace(answer, setting=Setting(threads=HERE.cores, cache="cold").key).load()


def test_a_client_from_before_is_not_given_what_it_would_refuse(publish_there, job, monkeypatch):
    """Asked for, or found in a cache that it shares with a newer one."""
    publish_there(threads=THERE.cores)
    assert job(setting=None).lookup(add_operator())
    monkeypatch.setattr("opatlas.client.base.NEIGHBOURS", ("neighbours",))
    assert not job(setting=None).lookup(add_operator())


def test_a_service_from_before_is_asked_without_them(publish_there, job, requests, monkeypatch):
    from catalog.api import lookup_json

    publish_there()
    monkeypatch.setattr(lookup_json, "INCLUDABLE", ("manifest", "related"))
    client = job()
    assert not client.lookup(add_operator()) and len(requests) == 2
    client.lookup(add_operator(5))
    assert len(requests) == 3, "it was told once"


def test_a_mark_that_is_none_is_refused():
    from opatlas.client.answer import Answer

    best = {
        "artifact": "a" * 64, "implementation": 1, "median_us": 1.0, "spread_us": 1.0, "default_us": 1.0,
        "ratio_to_default": 1.0, "ratio_low": 1.0, "ratio_high": 1.0,
    }  # fmt: skip
    good = {"target": THERE.key, "differs": {"cores": {"asked": 2, "neighbour": None}}}
    item = {"key": add_operator().key, "status": "hit", "best": best, "from_neighbour": good}
    assert Answer.from_json(item, HERE.key, "").to_json()["from_neighbour"] == good
    for mark in (5, "near", {}, good | {"target": "zen"}, good | {"differs": {"cores": {"asked": "many"}}}):
        with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
            Answer.from_json(item | {"from_neighbour": mark}, HERE.key, "")


def test_the_command_says_it_in_words(publish_there, live_server, make_key, configure, tmp_path):
    from typer.testing import CliRunner

    from opatlas.cli import app
    from opatlas.identity import default_setting

    configure(
        cache=tmp_path / "cache", config=tmp_path / "config", url=live_server.url, key=make_key("lookup")
    )
    publish_there()
    from catalog.models import Setting

    setting = default_setting(HERE)
    Setting.objects.update(key=setting.key, description=setting.to_json())
    told = CliRunner().invoke(app, ["lookup", add_operator().key])
    assert told.exit_code == 0, told.output
    assert "a neighbour, not on this target" in told.output.replace("\n", " ")


def test_what_its_cache_answered_is_reported_with_the_mark(publish_there, job):
    publish_there()
    client = job(job="ours")
    for _ in range(3):
        assert client.lookup(add_operator())
    client._write_uses()
    client._reporter.send_all(client.rest, 5.0)
    row = Usage.objects.get()
    assert row.from_neighbour and (row.calls, row.median_us) == (2, row.default_us)
