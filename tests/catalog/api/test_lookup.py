import json
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog import models
from catalog.conf import conf
from catalog.models import Miss
from catalog.registry import register_target
from catalog.usage.draining import drain_journal
from tests.catalog import making


def test_from_a_miss_to_a_hit(api, body, put):
    answer = api.post("lookup", body(64, job="run")).json()
    assert answer["results"] == [
        {"key": making.relu(64).key, "status": "miss", "state": "waiting", "reason": ""}
    ]
    assert answer["served"] is False
    assert "cpu.zen5" in answer["note"]
    published = put(64, "onednn", 1.6)
    (result,) = api.post("lookup", body(64, job="run")).json()["results"]
    best = result["best"]
    assert result["status"] == "hit"
    assert best["implementation"] == published.implementation.pk
    assert best["url"] == f"/api/v1/artifacts/{best['artifact']}"
    assert best["ratio_to_default"] == 1.6
    assert api.get(best["url"].removeprefix("/api/v1/")).json()["manifest"]["route"] == "onednn"


def test_a_hit_says_how_far_exploring_has_come_and_expires_soon_while_it_goes_on(api, body, put, target):
    put(64, "eager", 1.0, purpose="default", final=False)
    put(65, "onednn", 1.6)
    first, final = api.post("lookup", body(64, 65)).json()["results"]
    told = ("stage", "final", "expires_s")
    assert [first[name] for name in told] == ["first", False, conf().open_entry_s] == ["first", False, 10]
    assert [final[name] for name in told] == ["first", True, 300]
    assert (first["best"]["is_default"], final["best"]["is_default"]) == (True, False)
    alone = api.get(f"operators/{making.relu(64).key}/best", target=target.key).json()
    assert [alone[name] for name in told] == ["first", False, 10]


def test_what_cannot_be_waited_for_is_told_in_one_sentence(api, body):
    answer = api.post("lookup", body(64, wait_s=1, wait_for="best"))
    assert (answer.status_code, answer.json()["where"]) == (400, "wait_for")
    assert answer.json()["error"] == "wait_for is one of first, contest, tuned."
    assert not Miss.objects.exists()


def test_keys_alone_first_then_the_graphs_that_are_needed(api, body):
    keys = [making.relu(1).key, making.relu(2).key]
    request = body() | {"operators": [{"key": key} for key in keys]}
    assert [r["status"] for r in api.post("lookup", request).json()["results"]] == ["need_graph"] * 2
    api.post("lookup", body(1))
    assert [r["status"] for r in api.post("lookup", request).json()["results"]] == ["miss", "need_graph"]


def test_target_and_setting_by_json_are_registered_and_default_to_all_cores(api, db):
    request = {"target": making.TARGET.to_json(), "operators": [{"graph": making.relu_json(8)}]}
    answer = api.post("lookup", request).json()
    assert answer["target"] == making.TARGET.key
    assert answer["setting"] == making.SETTING.key
    again = api.post("lookup", request | {"target": answer["target"], "setting": answer["setting"]})
    assert again.status_code == 200
    assert models.Target.objects.count() == models.Setting.objects.count() == 1


def test_a_gpu_is_a_target_like_any_other(api, db):
    request = {"target": making.GPU.to_json(), "operators": [{"graph": making.relu_json(8)}]}
    answer = api.post("lookup", request).json()
    assert (answer["target"], answer["results"][0]["status"]) == (making.GPU.key, "miss")
    assert "No live worker serves cuda.sm_90" in answer["note"]
    assert models.Setting.objects.get().description["threads"] == 1
    refused = api.post("lookup", request | {"setting": {"threads": 4}})
    assert (refused.status_code, refused.json()["where"]) == (400, "setting.threads")
    assert "no threads to choose" in refused.json()["error"]
    (row,) = api.get("targets/").json()["results"]
    assert (row["kind"], row["description"]["product"]) == ("cuda", "NVIDIA H100 80GB HBM3")


def test_here_is_the_target_of_the_worker_seen_last(api, target, put):
    request = {"target": "here", "operators": [{"graph": making.relu_json(8)}]}
    assert api.post("lookup", request).status_code == 404
    models.Target.objects.update(served_until=timezone.now() + timedelta(seconds=9))
    assert api.post("lookup", request).json()["target"] == target.key
    put(8, "eager", 1.0)
    assert api.get(f"operators/{making.relu(8).key}/best", target="here").json()["status"] == "hit"


def test_here_hits_while_no_worker_lives(api, target, put):
    """The one that is away longest is not it."""
    register_target(making.GPU)
    long_ago = timezone.now() - timedelta(days=9)
    models.Target.objects.filter(kind="cuda").update(served_until=long_ago - timedelta(days=1))
    models.Target.objects.filter(pk=target.pk).update(served_until=long_ago)
    put(8, "eager", 1.0)
    answer = api.post("lookup", {"target": "here", "operators": [{"graph": making.relu_json(8)}]}).json()
    assert (answer["target"], answer["served"]) == (target.key, False)
    assert answer["results"][0]["status"] == "hit"


def test_the_same_operator_written_otherwise_has_the_same_key(api, body):
    canonical = making.relu(64).to_json()
    request = body(64) | {"operators": [{"graph": canonical}, {"graph": making.relu_json(64)}]}
    first, second = api.post("lookup", request).json()["results"]
    assert first["key"] == second["key"]
    assert Miss.objects.get().calls == 2


def test_calls_and_related_are_recorded(api, body):
    request = body(related=[{"graph": making.relu_json(65), "calls": 2}])
    request["operators"] = [{"graph": making.relu_json(64), "calls": 2.5}]
    assert api.post("lookup", request).status_code == 200
    assert Miss.objects.get(related=False).calls == 2.5
    assert Miss.objects.get(related=True).operator.key == making.relu(65).key


def test_accepts_narrows(api, body, put):
    put(64, "eager", 1.0)
    put(64, "tvm", 2.0, kind="c-abi", needs={})
    for accepts, route in (({}, "tvm"), ({"kinds": ["recipe"]}, "eager"), ({"versions": {}}, "tvm")):
        (result,) = api.post("lookup", body(64, accepts=accepts)).json()["results"]
        assert result["best"]["route"] == route


def test_the_largest_batch(api, body):
    request = body(*range(1, 1025))
    answer = api.post("lookup", request).json()
    assert len(answer["results"]) == 1024
    assert Miss.objects.count() == 1024


def test_a_batch_of_hits_takes_four_statements(api, body, put, django_assert_max_num_queries):
    for length in range(1, 58):
        put(length, "eager", 1.0)
    request = body(*range(1, 58))
    api.post("lookup", request)
    # The fifth and sixth, of revocations and of price rules, once a second for all requests.
    with django_assert_max_num_queries(6):
        results = api.post("lookup", request).json()["results"]
    assert all(result["status"] == "hit" for result in results)


def test_refused_ones_do_not_lose_the_batch(api_with, make_key, body, put):
    put(9, "eager", 1.0)
    api = api_with(make_key("lookup", max_queued_misses=1))
    response = api.post("lookup", body(9, 1, 2))
    assert response.status_code == 200
    results = response.json()["results"]
    assert [result.get("state", "hit") for result in results] == ["hit", "waiting", "refused"]


def test_a_full_journal_disk_is_a_clear_503(api, body, put):
    put(9, "eager", 1.0)
    conf().home.mkdir(parents=True)
    (conf().home / "journal").write_text("")
    response = api.post("lookup", body(9))
    assert response.status_code == 503
    assert "journal" in response.json()["error"]


class TestByKey:
    def best(self, api, length, **query):
        return api.get(f"operators/{making.relu(length).key}/best", **query)

    def test_a_hit_and_its_journal(self, api, put, target, setting):
        put(64, "eager", 1.0)
        answer = self.best(api, 64, target=target.key, setting=setting.key, job="run").json()
        assert (answer["status"], answer["best"]["route"]) == ("hit", "eager")
        assert answer["target"] == target.key
        drain_journal()
        assert models.Usage.objects.get().job.name == "run"

    def test_a_miss_is_recorded(self, api, place_of, target):
        place_of(64)
        answer = self.best(api, 64, target=target.key).json()
        assert (answer["status"], answer["state"]) == ("miss", "waiting")
        assert Miss.objects.get().count == 1

    def test_kinds_and_versions(self, api, put, target):
        put(64, "eager", 1.0)
        put(64, "tvm", 2.0, kind="c-abi", needs={})
        asked = {"target": target.key, "kinds": "recipe,package", "versions": "torch==2.13.0"}
        assert self.best(api, 64, **asked).json()["best"]["route"] == "eager"
        assert self.best(api, 64, **asked | {"versions": "torch==1"}).json()["state"] == "explored"

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({}, 400),
            ({"target": "t1:x"}, 400),
            ({"target": "t1:" + "0" * 64}, 404),
            ({"kinds": "so"}, 400),
            ({"versions": "torch"}, 400),
            ({"setting": "s1:x"}, 400),
            ({"setting": "s1:" + "0" * 64}, 404),
            ({"job": "x" * 201}, 400),
            ({"job": "a\0b"}, 400),
        ],
    )
    def test_bad_queries(self, api, place_of, target, query, status):
        place_of(64)
        asked = query if not query or "target" in query else {"target": target.key, **query}
        response = self.best(api, 64, **asked)
        assert response.status_code == status
        assert response.json()["error"].endswith(".") or "==" in response.json()["error"]
        assert not Miss.objects.exists()

    def test_an_unknown_operator_is_a_404(self, api, target):
        response = self.best(api, 99, target=target.key)
        assert response.status_code == 404
        assert "graph" in response.json()["error"]


def test_journal_lines_are_json_with_ids_only(api, body, put):
    """What is on disk names rows; no key, secret or graph is in it."""
    from catalog.usage import journal

    put(64, "eager", 1.0)
    api.post("lookup", body(64, job="run"))
    (path,) = journal.segments()
    entry = json.loads(path.read_bytes())
    assert set(entry) == {"at", "org", "job", "hits", "misses"}
