import hashlib
from dataclasses import asdict, replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from catalog import models
from catalog.best.publishing import publish, publish_race
from catalog.errors import StoreError
from catalog.models import Best, BestChange, Implementation, Measurement
from opatlas.evidence import Evidence
from tests.catalog import making


def winner():
    return Best.objects.get(rank=0)


def ranks():
    return dict(Best.objects.order_by("rank").values_list("route", "rank"))


def test_the_first_result_leads_and_explores_the_miss(ask, put):
    ask(64)
    published = put(64, "eager", 1.0, spread=0)
    assert published.is_route_best
    assert published.is_winner
    assert models.Miss.objects.get().state == "explored"
    change = BestChange.objects.get()
    assert (change.before, change.after) == (None, published.implementation)


def test_a_faster_route_becomes_the_winner_and_history_says_so(put):
    first = put(64, "eager", 1.0)
    second = put(64, "onednn", 1.6)
    assert second.is_winner
    assert ranks() == {"onednn": 0, "eager": 1}
    change = BestChange.objects.latest("pk")
    assert (change.before, change.after) == (first.implementation, second.implementation)
    assert "ahead of eager" in change.reason


def test_a_difference_within_noise_keeps_the_incumbent(put):
    put(64, "onednn", 1.6, spread=0.1)
    again = put(64, "mkl", 1.65, spread=0.1)
    assert again.is_route_best
    assert not again.is_winner
    assert winner().route == "onednn"
    assert BestChange.objects.count() == 1


@pytest.fixture
def raced(place_of):
    """``raced([("tvm", 1.5), …], "tvm", equal=["mkl"])``: results of one race, and whom it decided for."""

    def publish_it(made, winner, equal=(), **changes):
        results = [making.new_result(place_of(64), route, ratio, **changes) for route, ratio in made]
        by_route = {one.route: one for one in results}
        return publish_race(results, by_route[winner], [by_route[name] for name in equal])

    return publish_it


def test_a_race_decides_whatever_other_races_found(put, raced):
    put(64, "eager", 1.0, spread=0)
    put(64, "onednn", 2.0, spread=0.001)  # in a minute in which the default was slow
    found = raced([("mkl", 1.6), ("onednn", 1.5)], "mkl")
    assert [one.is_winner for one in found] == [True, False]
    assert list(ranks()) == ["mkl", "onednn", "eager"]
    assert Best.objects.get(route="onednn").ratio_to_default == 1.5, "as the race saw it"


def test_who_was_not_told_apart_from_the_winner_is_marked_until_its_next_evidence(put, raced):
    put(64, "onednn", 1.5)
    raced([("mkl", 1.52), ("onednn", 1.5)], "onednn", equal=["mkl"])
    assert winner().route == "onednn"
    assert Best.objects.get(route="mkl").equal and not winner().equal
    put(64, "mkl", 1.4)
    assert not Best.objects.get(route="mkl").equal


def test_who_was_in_no_race_keeps_its_seat_unless_it_is_beaten(put, raced):
    put(64, "tvm", 1.9, spread=0.01, candidate={"n": 1})
    raced([("mkl", 2.5), ("tvm", 1.5)], "mkl", candidate={"n": 2})
    assert Best.objects.get(route="tvm").ratio_to_default == 1.9
    raced([("mkl", 2.5), ("tvm", 2.4)], "mkl", candidate={"n": 3})
    assert Best.objects.get(route="tvm").ratio_to_default == 2.4


def test_what_may_not_win_leaves_who_is_served_alone(put):
    put(64, "tvm", 1.5, candidate={"n": 1})
    other = put(64, "mkl", 9.0, may_win=False)
    assert (other.is_route_best, other.is_winner) == (True, False)
    same_route = put(64, "tvm", 9.0, candidate={"n": 2}, may_win=False)
    assert not same_route.is_route_best
    assert winner().ratio_to_default == 1.5


def test_within_a_route_a_better_candidate_replaces_and_a_worse_one_is_kept_as_evidence(put):
    put(64, "tvm", 1.5, candidate={"schedule": 1})
    worse = put(64, "tvm", 1.2, candidate={"schedule": 2})
    assert not worse.is_route_best
    better = put(64, "tvm", 1.9, candidate={"schedule": 3})
    assert better.is_route_best
    assert Best.objects.get().implementation == better.implementation
    assert Implementation.objects.count() == Measurement.objects.count() == 3


def test_the_same_candidate_measured_again_refreshes_its_evidence(put):
    put(64, "tvm", 1.5)
    put(64, "eager", 1.0)
    again = put(64, "tvm", 1.4)
    assert again.is_route_best
    assert Implementation.objects.filter(route="tvm").count() == 1
    assert winner().ratio_to_default == 1.4
    assert winner().measurement == again.measurement


def test_a_winner_whose_new_evidence_is_slower_than_the_default_steps_back(put):
    put(64, "eager", 1.0, spread=0)
    put(64, "tvm", 1.5)
    put(64, "tvm", 0.7)
    assert ranks() == {"eager": 0, "tvm": 1}


def test_the_same_candidate_in_a_new_environment_takes_its_place(put):
    put(64, "tvm", 1.5, versions={"apache-tvm": "0.27"}, needs={"torch": "2.13.0"})
    put(64, "tvm", 1.49, versions={"apache-tvm": "0.28"}, needs={"torch": "2.14.0"})
    assert Implementation.objects.count() == 2
    assert Best.objects.get().needs == "torch==2.14.0"


def test_what_may_not_lead_is_kept_and_moves_nothing(ask, put):
    ask(64)
    published = put(64, "tvm", 9.0, may_lead=False)
    assert not published.is_winner
    assert Measurement.objects.count() == 1
    assert not Best.objects.exists()
    assert models.Miss.objects.get().state == "waiting"


def test_a_slower_route_never_leads_whatever_the_order(put):
    put(64, "tvm", 0.6)
    assert winner().route == "tvm"  # nothing else is known yet
    put(64, "eager", 1.0, spread=0)
    assert winner().route == "eager"
    put(64, "xla", 0.99, spread=0.001)
    assert winner().route == "eager"


def test_scopes_do_not_compete(put, organisation):
    put(64, "eager", 1.0)
    put(64, "secret", 3.0, scope=f"org:{organisation.pk}", owner=organisation)
    assert Best.objects.filter(rank=0).count() == 2


def test_long_labels_are_cut_to_what_the_database_takes(put):
    put(64, "tvm", 1.5, label="ü" * 500)
    assert Best.objects.get().label == "ü" * 200


def test_a_failed_store_leaves_no_row(put, tmp_path):
    before = making.row_counts()
    with pytest.raises(StoreError):
        put(64, "tvm", 1.5, files={"k.so": "0" * 64}, folder=tmp_path)
    after = making.row_counts()
    # The operator, target and setting that the test itself registers aside.
    assert {name for name in after if after[name] != before[name]} <= {"Operator", "Target", "Setting"}


def test_a_failure_in_the_middle_rolls_all_of_it_back(put, monkeypatch):
    put(64, "eager", 1.0)
    before = making.row_counts()
    monkeypatch.setattr(
        "catalog.best.publishing.rank_again", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("no"))
    )
    with pytest.raises(RuntimeError):
        put(64, "onednn", 1.6)
    after = making.row_counts()
    assert {name for name in after if after[name] != before[name]} <= {"Artifact"}


def test_everything_that_was_found_is_kept(place_of, organisation):
    result = making.new_result(
        place_of(64), "tvm", 2.0, method="compiler", label="tiles", candidate={"tile": 8},
        schedule="# schedule", source="// source", build_s=3.5, purpose="recheck",
        scope=f"org:{organisation.pk}", owner=organisation,
        default_route="eager", default_versions={"torch": "2.13.0"}, versions={"apache-tvm": "0.27"},
        signing_key=Ed25519PrivateKey.generate(),
    )  # fmt: skip
    evidence = replace(result.evidence, prepare_us=7.0, prepare_bytes=4096, samples_us=(49.0, 51.0))
    made = publish(replace(result, evidence=evidence))
    row = Implementation.objects.get()
    assert row == made.implementation
    assert (row.operator, row.target, row.setting) == tuple(place_of(64).values())
    assert (row.route, row.method, row.label, row.candidate) == ("tvm", "compiler", "tiles", {"tile": 8})
    assert (row.schedule, row.source, row.build_s) == ("# schedule", "// source", 3.5)
    assert (row.scope, row.owner) == (f"org:{organisation.pk}", organisation)
    assert row.candidate_sha256 == hashlib.sha256(b'{"tile":8}').hexdigest()
    assert row.environment.versions == {"apache-tvm": "0.27"}
    assert (row.artifact.kind, row.failed_at, row.failed_reason) == ("recipe", None, "")
    assert row.artifact.signature
    measured = Measurement.objects.get()
    assert measured == made.measurement and measured.implementation == row
    kept = {name: getattr(measured, name) for name in Evidence.__dataclass_fields__}
    assert kept == {**asdict(evidence), "samples_us": [49.0, 51.0]}
    assert (measured.purpose, measured.default_route) == ("recheck", "eager")
    assert measured.default_environment.versions == {"torch": "2.13.0"}


def test_a_default_that_was_not_noted_is_none(put):
    measured = put(64, "tvm", 2.0, default_versions={"torch": "2.13.0"}).measurement
    assert (measured.default_route, measured.default_environment) == ("", None)


def test_the_same_candidate_again_is_the_same_row_with_what_is_new(put):
    first = put(64, "tvm", 1.5, label="old", source="old", candidate={"tile": 8}).implementation
    Implementation.objects.update(failed_at=timezone.now(), failed_reason="it crashed")
    again = put(64, "tvm", 1.5, label="new", source="new", candidate={"tile": 8}).implementation
    assert (again.pk, again.label, again.source) == (first.pk, "new", "new")
    again.refresh_from_db()
    assert (again.failed_at, again.failed_reason) == (None, "")


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *((name, bad) for name in ("median_us", "default_us", "ratio_to_default", "ratio_low", "ratio_high")
          for bad in (0.0, -1.0, float("inf"), float("nan"))),
        *((name, bad) for name in ("spread_us", "max_error", "tolerance", "prepare_us")
          for bad in (float("inf"), float("nan"))),
        ("samples_us", (1.0, float("nan"))),
    ],
)  # fmt: skip
def test_evidence_holds_numbers_alone(place_of, name, bad):
    sound = {"median_us": 1.0, "spread_us": 0.1, "default_us": 2.0, "ratio_to_default": 2.0, "ratio_low": 1.9}
    sound["ratio_high"] = 2.1
    result = replace(making.new_result(place_of(64), "tvm", 2.0), evidence=Evidence(**sound, max_error=None))
    with pytest.raises(ValueError, match="finite"):
        replace(result, evidence=Evidence(**{**sound, name: bad}))


def test_a_lost_contest_says_so(put):
    put(64, "onednn", 1.6)
    lost = put(64, "eager", 1.0)
    assert (lost.is_route_best, lost.is_winner) == (True, False)
    kept = put(64, "onednn", 9.0, candidate={"n": 2}, may_lead=False)
    assert (kept.is_route_best, kept.is_winner) == (False, False)
