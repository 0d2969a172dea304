"""Hits of a target that differs in sizes alone: only for who asks, marked, and never for what costs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.best.publishing import publish
from catalog.models import Artifact, JobOperator, JobPlace, LookupTally, Miss, Organisation, Target, Usage
from catalog.registry import register_setting, register_target
from catalog.usage.draining import drain_journal
from opatlas.identity import Setting
from tests.catalog import making

MORE_CORES = replace(making.TARGET, cores=8)


@pytest.fixture
def put_at(place_of):
    """``put_at(target, 2.0)`` publishes a result for a Relu of 64 on another target."""

    def put(target, ratio=2.0, route="torch", **changes):
        place = place_of(64) | {"target": register_target(target)} | changes.pop("place", {})
        return publish(making.new_result(place, route, ratio, **changes))

    return put


@pytest.fixture
def look_up(api, target, setting):
    """``look_up()`` → the answer about a Relu of 64 on a target that nobody serves, neighbours wanted."""

    def post(**more):
        asked = [{"key": making.relu(64).key, "graph": making.relu_json(64)}]
        body = {"target": target.key, "setting": setting.key, "operators": asked, "include": ["neighbours"]}
        answer = api.post("lookup", body | more)
        assert answer.status_code == 200, answer.json()
        return answer.json()

    return post


def test_the_nearest_is_answered_marked_for_seconds_and_the_miss_is_kept(put_at, look_up):
    put_at(replace(making.TARGET, cores=32), 9.0)
    put_at(MORE_CORES, 2.0)
    (item,) = look_up()["results"]
    assert item["status"] == "hit" and item["best"]["ratio_to_default"] == 2.0
    assert item["from_neighbour"] == {
        "target": MORE_CORES.key,
        "differs": {"cores": {"asked": 4, "neighbour": 8}},
    }
    assert item["final"] is False and item["expires_s"] == 10.0 and "stage" not in item
    miss = Miss.objects.get()
    assert (miss.target.key, miss.state, miss.count) == (making.TARGET.key, "waiting", 1)


def test_who_does_not_ask_for_them_sees_nothing_of_them(put_at, look_up):
    put_at(MORE_CORES)
    for include in ([], ["related", "manifest"]):
        answer = look_up(include=include)
        assert answer["results"][0]["status"] == "miss" and "from_neighbour" not in str(answer)


@pytest.mark.parametrize("change", [{"features": ("avx2",)}, {"arch": "zen4"}, {"vendor": "GenuineIntel"}])
def test_what_differs_in_more_is_no_neighbour(put_at, look_up, change):
    put_at(replace(MORE_CORES, **change))
    assert look_up()["results"][0]["status"] == "miss"


def test_another_setting_is_no_neighbour(put_at, look_up):
    put_at(MORE_CORES, place={"setting": register_setting(Setting(threads=8))})
    assert look_up()["results"][0]["status"] == "miss"


ALL_CORES = {"include": ["neighbours", "neighbour_defaults"]}


def of_threads(count):
    return {"place": {"setting": register_setting(Setting(threads=count))}}


def test_all_cores_here_are_answered_by_all_cores_there_and_it_says_so(put_at, look_up):
    put_at(replace(MORE_CORES, cores=16), 9.0, **of_threads(16))
    put_at(MORE_CORES, 2.0, **of_threads(8))
    (item,) = look_up(**ALL_CORES)["results"]
    assert item["best"]["ratio_to_default"] == 2.0 and item["final"] is False
    assert item["from_neighbour"]["differs"] == {
        "cores": {"asked": 4, "neighbour": 8},
        "setting.threads": {"asked": 4, "neighbour": 8},
    }
    put_at(MORE_CORES, 1.5)
    (item,) = look_up(**ALL_CORES)["results"]
    assert item["best"]["ratio_to_default"] == 1.5, "the very same setting first"
    assert "setting.threads" not in item["from_neighbour"]["differs"]


@pytest.mark.parametrize(("asked", "there"), [(2, 8), (4, 6), (4, 2)])
def test_no_other_setting_is_a_default(put_at, look_up, asked, there):
    put_at(MORE_CORES, **of_threads(there))
    setting = register_setting(Setting(threads=asked)).key
    assert look_up(setting=setting, **ALL_CORES)["results"][0]["status"] == "miss"


def test_nor_is_one_that_differs_in_more_than_threads(put_at, look_up):
    put_at(MORE_CORES, place={"setting": register_setting(Setting(threads=8, cache="cold"))})
    assert look_up(**ALL_CORES)["results"][0]["status"] == "miss"


def say_for(target):
    """Every artifact says that it was made for this one."""
    for row in Artifact.objects.all():
        row.manifest["provenance"] = {"target": target.to_json()}
        row.save()


def test_what_has_its_threads_built_in_is_not_given_to_fewer_cores(put_at, look_up):
    put_at(MORE_CORES, 3.0, route="inductor", kind="package", **of_threads(8))
    say_for(MORE_CORES)
    assert look_up(**ALL_CORES)["results"][0]["status"] == "miss"
    put_at(MORE_CORES, 2.0, **of_threads(8))
    say_for(MORE_CORES)
    for accepts in (None, {"kinds": ["recipe", "package"], "versions": {"torch": "2.13.0"}}):
        more = {"accepts": accepts} if accepts else {}
        assert look_up(**ALL_CORES, **more)["results"][0]["best"]["route"] == "torch"
    assert look_up(accepts={"kinds": ["package"]}, **ALL_CORES)["results"][0]["status"] == "miss"


@pytest.mark.parametrize(("kind", "ratio", "status"), [
    ("c-abi", 2.1, "hit"), ("c-abi", 1.9, "miss"), ("recipe", 1.1, "hit"),
])  # fmt: skip
def test_compiled_code_of_fewer_threads_must_gain_more_than_further_cores_could(
    put_at, look_up, kind, ratio, status
):
    """On half of the cores it is no loss only where it is twice as fast; a library's call takes all."""
    small = replace(making.TARGET, cores=2)
    put_at(small, ratio, kind=kind, **of_threads(2))
    say_for(small)
    assert look_up(**ALL_CORES)["results"][0]["status"] == status


def test_a_target_that_is_served_waits_for_its_own(put_at, look_up, target):
    put_at(MORE_CORES)
    Target.objects.filter(pk=target.pk).update(served_until=timezone.now() + timedelta(minutes=1))
    assert look_up()["results"][0]["status"] == "miss"


@pytest.mark.parametrize("state", ["failed", "unsupported", "discarded"])
def test_what_was_tried_or_decided_here_is_not_contradicted(put_at, look_up, state):
    look_up()
    Miss.objects.update(state=state)
    put_at(MORE_CORES)
    assert look_up()["results"][0]["status"] == "miss"


def test_its_own_entry_comes_first_even_where_it_cannot_be_loaded(put_at, put, look_up):
    put_at(MORE_CORES, 9.0)
    put(64, "torch", 2.0, kind="package", needs={})
    (item,) = look_up()["results"]
    assert "from_neighbour" not in item and item["best"]["ratio_to_default"] == 2.0
    (item,) = look_up(accepts={"kinds": ["recipe"]})["results"]
    assert item["status"] == "miss", "it has one, which the caller cannot load"


def test_what_the_caller_cannot_load_is_none(put_at, look_up):
    put_at(MORE_CORES, needs={"torch": "1.0"})
    assert look_up(accepts={"versions": {"torch": "2.13.0"}})["results"][0]["status"] == "miss"


def test_what_was_compiled_must_say_for_which_target(put_at, look_up):
    put_at(MORE_CORES, kind="c-abi")
    assert look_up()["results"][0]["status"] == "miss"


def test_private_entries_are_their_organisations_own(put_at, look_up, organisation, tenant):
    put_at(MORE_CORES, scope=f"org:{tenant.pk}", owner=tenant)
    assert look_up()["results"][0]["status"] == "miss"
    put_at(MORE_CORES, 3.0, scope=f"org:{organisation.pk}", owner=organisation)
    assert look_up()["results"][0]["best"]["ratio_to_default"] == 3.0
    assert Organisation.objects.count() == 2


def test_what_costs_something_is_left_out(put_at, look_up, monkeypatch):
    from catalog.charging import Charging

    put_at(MORE_CORES)
    asked = []

    class Dear(Charging):
        def concerns(self, organisation_id, hits):
            asked.extend(hits)
            return bool(hits)

    monkeypatch.setattr("catalog.lookup.lookups.charging", Dear)
    assert look_up()["results"][0]["status"] == "miss" and asked


def test_related_ones_have_neighbours_too(put_at, look_up):
    put_at(MORE_CORES)
    related = [{"key": making.relu(64).key, "graph": making.relu_json(64)}]
    answer = look_up(operators=[], related=related, include=["related", "neighbours", "manifest"])
    assert answer["related"][0]["from_neighbour"]["target"] == MORE_CORES.key and answer["manifests"]
    assert Miss.objects.get().related


def test_a_whole_model_is_a_handful_of_statements(put_at, place_of, look_up, django_assert_max_num_queries):
    for length in range(64, 84):
        put_at(MORE_CORES, place=place_of(length) | {"target": register_target(MORE_CORES)})
    asked = [{"key": making.relu(n).key, "graph": making.relu_json(n)} for n in range(64, 84)]
    look_up(operators=asked)
    with django_assert_max_num_queries(22):
        answer = look_up(operators=asked)
    assert all("from_neighbour" in item for item in answer["results"])


def test_its_hits_are_counted_marked_and_gain_nothing(put_at, put, look_up, api):
    """Of a lookup, and of what a client's cache answered; the job is not where the neighbour is."""
    made = put_at(MORE_CORES, 4.0)
    put(65, "torch", 2.0)
    asked = [{"key": making.relu(n).key, "calls": 10} for n in (64, 65)]
    look_up(operators=asked, job="ours")
    drain_journal()
    used = [{"implementation": made.implementation.pk, "calls": 3, "from_neighbour": True}]
    told = api.post("usage", {"client": "c" * 32, "sequence": 1, "job": "ours", "used": used})
    assert told.json() == {"counted": 1, "repeated": False}
    rows = {row.operator.key: row for row in JobOperator.objects.all()}
    near, own = (rows[making.relu(n).key] for n in (64, 65))
    assert (near.hits, near.neighbour_hits, near.saved_us, near.misses) == (4, 4, 0, 0)
    assert (own.hits, own.neighbour_hits, own.saved_us) == (1, 0, 500)
    assert [place.target.key for place in JobPlace.objects.all()] == [making.TARGET.key]
    assert sorted(Usage.objects.values_list("from_neighbour", "median_us")) == [
        (False, 50.0), (True, 100.0), (True, 100.0)
    ]  # fmt: skip
    tallies = LookupTally.objects.filter(operator=near.operator)
    assert sum(row.neighbour_hits for row in tallies) == sum(row.hits for row in tallies) == 4
