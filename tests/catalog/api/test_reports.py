"""Hits that clients' own caches answered are counted once."""

from __future__ import annotations

import pytest

from catalog.models import Job, JobDay, LookupTally, Organisation, Usage
from catalog.people.keys import create_api_key
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
    assert sum(row.hits for row in LookupTally.objects.all()) == 2
    assert JobDay.objects.get().hits == 2


def test_a_report_that_arrives_twice_counts_once(put, report):
    one = put(64, "torch", 2.0).implementation
    assert report(one)["counted"] == 1
    assert report(one) == {"counted": 0, "repeated": True}
    assert report(one, sequence=2)["counted"] == 1
    assert report(one, client="d" * 32)["counted"] == 1
    assert sum(row.hits for row in LookupTally.objects.all()) == Usage.objects.count() == 3


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
    ],
)
def test_wrong_reports_are_refused(put, report, changes, where):
    answer = report(status=400, **({"used": [{"implementation": 1}]} | changes))
    assert answer["where"].startswith(where), answer
    assert not Usage.objects.exists()
