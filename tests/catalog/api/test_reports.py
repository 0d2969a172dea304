"""Hits that clients' own caches answered are counted once."""

from __future__ import annotations

import pytest

from catalog.models import (
    Job,
    JobCacheDay,
    JobDay,
    JobOperator,
    LookupTally,
    OperatorTotal,
    Organisation,
    RouteSlot,
    Usage,
)
from catalog.people.keys import create_api_key
from catalog.registry import register_operator
from catalog.rollups.rollups import refresh_rollups
from tests.catalog import making
from tests.conftest import Api

CLIENT = "c" * 32


@pytest.fixture
def other_organisation(db):
    return Organisation.objects.create(name="theirs")


@pytest.fixture
def report(api):
    """``report(implementation, sequence=1)`` → the answer."""

    def post(*implementations, status=200, sequence=1, client=CLIENT, **more):
        used = [{"implementation": one.pk, "calls": 3.0} for one in implementations]
        body = {"client": client, "sequence": sequence, "job": "run", "used": used} | more
        answer = api.post("usage", body)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return post


def test_a_report_is_a_hit_of_the_job_with_its_calls(put, report):
    one, other = (put(length, "torch", 2.0).implementation for length in (64, 65))
    assert report(one, other, one) == {"counted": 2, "repeated": False}
    used = {row.implementation_id: row for row in Usage.objects.all()}
    assert used[one.pk].calls == 6.0 and used[other.pk].calls == 3.0
    assert used[one.pk].job == Job.objects.get(name="run")
    measured = one.measurements.get()
    assert (used[one.pk].median_us, used[one.pk].default_us) == (measured.median_us, measured.default_us)
    assert {row.operator_id: row.hits for row in LookupTally.objects.all()} == {
        one.operator_id: 6,
        other.operator_id: 3,
    }
    assert JobDay.objects.get().hits == 9, "every lookup is one"


def test_a_report_that_arrives_twice_counts_once(put, report):
    one = put(64, "torch", 2.0).implementation
    assert report(one)["counted"] == 1
    assert report(one) == {"counted": 0, "repeated": True}
    assert report(one, sequence=2)["counted"] == 1
    assert report(one, client="d" * 32)["counted"] == 1
    assert sum(row.hits for row in LookupTally.objects.all()) == 9 and Usage.objects.count() == 3


def test_another_organisations_numbers_take_nobodys_place(put, report, other_organisation):
    one = put(64, "torch", 2.0).implementation
    stranger = Api(create_api_key(other_organisation, "theirs", ["lookup"])[1])
    body = {"client": CLIENT, "sequence": 1, "used": [{"implementation": one.pk}]}
    assert stranger.post("usage", body).json()["counted"] == 1
    assert report(one) == {"counted": 1, "repeated": False}


def test_what_is_private_to_others_or_gone_is_not_counted(put, report, other_organisation):
    theirs = put(
        64, "torch", 2.0, scope=f"org:{other_organisation.pk}", owner=other_organisation
    ).implementation
    ours = put(65, "torch", 2.0).implementation
    assert report(theirs, ours)["counted"] == 1
    body = {"used": [{"implementation": 2**62}]}
    assert report(sequence=2, **body) == {"counted": 0, "repeated": False}


def test_what_a_client_says_of_its_caches_is_counted_once(put, report, api):
    one = put(64, "torch", 2.0).implementation
    more = {
        "lookups": {"cache": 2, "missed": 4},
        "prefetched": {"brought": 10, "used": 6, "bytes": 5000, "used_bytes": 3000, "requests": 1},
    }
    for sequence in (1, 1, 2, 2):
        report(one, sequence=sequence, **more)
    report(one, sequence=3)  # of a client from before
    assert not report(sequence=4, lookups={"missed": 1})["repeated"], "though nothing was used"
    assert report(sequence=4, lookups={"missed": 1})["repeated"]
    day = JobCacheDay.objects.get()
    assert (day.memory_hits, day.machine_hits, day.unasked_misses) == (1 + 1 + 3, 4, 9)
    assert (day.prefetched, day.prefetched_used, day.prefetch_requests) == (20, 12, 2)
    assert (day.prefetched_bytes, day.prefetched_used_bytes) == (10_000, 6_000)
    (row,) = api.get("statistics/jobs").json()["results"]
    assert (row["hits"], row["misses"], row["hit_rate"], row["cached_share"]) == (9, 9, 0.5, 0.5)
    assert row["prefetched"]["wasted"] == 8 and row["prefetched"]["requests_saved"] == 10
    assert sum(row.hits for row in LookupTally.objects.all()) == 9, "each lookup is its operator's"


def test_what_was_missed_without_asking_is_its_operators_miss_once(put, report, api):
    one = put(64, "torch", 2.0).implementation
    miss = register_operator(making.relu(65))
    stranger = making.relu(66).key  # never seen here: the job's alone
    missed = [{"operator": miss.key, "lookups": 3}, {"operator": stranger, "lookups": 2}]
    for _ in range(2):
        report(one, missed=missed, lookups={"missed": 5})
    report(sequence=2, missed=missed[:1])
    report(sequence=3, lookups={"missed": 4})  # of a client from before
    tallies = {row.operator_id: (row.hits, row.misses) for row in LookupTally.objects.all()}
    assert tallies == {one.operator_id: (3, 0), miss.pk: (0, 6)}
    mine = JobOperator.objects.get(operator=miss)
    assert (mine.misses, mine.miss_calls, mine.number) == (6, 6.0, None), "which says nothing of an order"
    (row,) = api.get("statistics/jobs").json()["results"]
    assert (row["hits"], row["misses"], row["unasked_misses"]) == (3, 5 + 3 + 4, 5 + 3 + 4)
    refresh_rollups()
    assert OperatorTotal.objects.get(tenant="all", operator=miss).misses == 6


def test_a_client_from_later_may_say_more(put, report):
    assert report(put(64, "torch", 2.0).implementation, foreseen={"one": 1})["counted"] == 1


def test_a_client_can_claim_no_more_from_its_machine_than_it_used(put, report):
    report(put(64, "torch", 2.0).implementation, lookups={"cache": 1000})
    day = JobCacheDay.objects.get()
    assert (day.memory_hits, day.machine_hits) == (0, 3)


def test_sums_that_no_client_can_have_overflow_nothing(put, report):
    one = put(64, "torch", 2.0).implementation
    for sequence in range(3):
        most = {"used": [{"implementation": one.pk, "calls": 1e15}], "prefetched": {"bytes": 2**40}}
        most["missed"] = [{"operator": one.operator.key, "lookups": 2**40}] * 2
        report(sequence=sequence, **most)
    assert JobDay.objects.get().hits == JobCacheDay.objects.get().prefetched_bytes == 3 * 2**40
    assert LookupTally.objects.get().hits == LookupTally.objects.get().misses == 3 * 2**40
    assert JobOperator.objects.get().misses == 3 * 2**40


def test_an_operators_hit_rate_and_reuse_have_every_lookup_of_a_report(put, report):
    one, other = (put(length, "torch", 2.0).implementation for length in (64, 65))
    used = [
        {"implementation": one.pk, "calls": 10.0, "lookups": 4},
        {"implementation": other.pk, "calls": 2.0},
    ]
    report(used=used)
    assert dict(Usage.objects.values_list("implementation", "lookups")) == {one.pk: 4, other.pk: 2}
    refresh_rollups()
    totals = OperatorTotal.objects.filter(tenant="all")
    assert dict(totals.values_list("operator", "hits")) == {one.operator_id: 4, other.operator_id: 2}
    assert [row.hits for row in RouteSlot.objects.filter(tenant="all")] == [6]


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"client": "me"}, "client"),
        ({"sequence": -1}, "sequence"),
        ({"used": []}, "used"),
        ({"used": [{"implementation": 1, "calls": -1}]}, "used"),
        ({"used": [{"implementation": 1}] * 1025}, "used"),
        ({"used": [{"implementation": 2**64}]}, "used"),
        ({"job": "a\nb"}, "job"),
        ({"lookups": {"missed": -1}}, "lookups"),
        ({"lookups": [1]}, "lookups"),
        ({"prefetched": {"bytes": 2**41}}, "prefetched"),
        ({"prefetched": {"used": 0.5}}, "prefetched"),
    ],
)
def test_wrong_reports_are_refused(put, report, changes, where):
    answer = report(status=400, **({"used": [{"implementation": 1}]} | changes))
    assert answer["where"].startswith(where), answer
    assert not Usage.objects.exists()
