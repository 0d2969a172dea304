"""What a candidate's chances are, learnt from trials; and who won nearby."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tuning.explore.odds import (
    BOUND,
    LEAST_DEVIATION,
    DoneTry,
    Odds,
    TryTraits,
    family_of_try,
    plain_label,
    summed,
)
from tuning.explore.worth import HONEST_SHARE, against_the_odds


def about(op: str = "Conv", route: str = "tvm", label: str = "tiles", flops: float = 1e6) -> TryTraits:
    return TryTraits(route, label, op, family_of_try(op, flops, 1e4), "float32")


def tried(ratio: float | None, seconds: float = 1.0, times: int = 1, **traits: Any) -> Iterator[DoneTry]:
    """None: it failed."""
    log_ratio = None if ratio is None else math.log(ratio)
    return iter([DoneTry(about(**traits), log_ratio, seconds)] * times)


def test_without_a_history_everything_has_a_chance() -> None:
    for route in ("eager", "inductor"):
        for to_beat in (1.0, 3.0, 10.0):
            assert Odds([]).chance(about(route=route), to_beat) > BOUND
    assert Odds([]).expect(about()).tries == 0


def test_what_always_lost_is_hopeless_and_what_often_won_is_not() -> None:
    odds = Odds([*tried(0.3, times=40, label="slow"), *tried(1.6, times=40, label="quick")])
    assert odds.chance(about(label="slow"), 1.0) < BOUND
    assert odds.chance(about(label="quick"), 1.0) > 0.9
    assert odds.chance(about(label="quick"), 4.0) < BOUND
    assert odds.expect(about(label="quick")).mean == pytest.approx(math.log(1.6), abs=0.1)
    assert odds.expect(about(label="quick")).tries == 40


def test_what_came_with_the_service_counts_until_its_own_tries_say_otherwise() -> None:
    given = summed([*tried(4.0, times=50), *tried(None, times=50, label="broken")])
    assert [(one.count, one.worked) for one in given] == [(50, 0), (50, 50)]
    new = Odds([], given)
    few, many = (Odds(tried(0.5, times=times), given) for times in (12, 100))
    assert new.has_met("tvm") and not new.has_met("halide")
    assert new.chance(about(), 1.5) > 0.6 > 0.3 > few.chance(about(), 1.5) > BOUND > many.chance(about(), 1.5)
    assert new.expect(about(label="broken")).fails > 0.4


def test_what_nobody_has_tried_promises_nothing_for_sure() -> None:
    odds = Odds(tried(2.0, times=9))
    assert odds.sure_promise(about(), 1.0) > 0.3 * odds.promise(about(), 1.0) > 0
    assert odds.sure_promise(about(label="another"), 1.0) == 0 < odds.promise(about(label="another"), 1.0)


def test_few_tries_lean_on_the_general_many_rule() -> None:
    rest = list(tried(0.5, times=40, op="Relu"))
    few = Odds([*rest, *tried(2.0, times=2)]).expect(about()).mean
    many = Odds([*rest, *tried(2.0, times=60)]).expect(about()).mean
    relu = Odds(rest).expect(about("Relu")).mean
    assert relu < few < many == pytest.approx(math.log(2), abs=0.1)


def test_sizes_and_op_types_are_told_apart() -> None:
    odds = Odds([
        *tried(3.0, times=12, flops=1e4), *tried(0.4, times=12, flops=1e9),
        *tried(0.4, times=12, op="Softmax", flops=1e4),
    ])  # fmt: skip
    means = [odds.expect(one).mean for one in (about(flops=1e4), about(flops=1e9), about("Softmax"))]
    assert means[0] > 0.6 > 0 > means[1] and means[2] < 0


def test_a_kind_of_operator_it_was_never_tried_on_is_not_written_off() -> None:
    odds = Odds(tried(0.3, times=200, op="Relu"))
    assert odds.chance(about("Relu"), 1.5) < BOUND < odds.chance(about("Conv"), 1.5)


def test_a_share_that_fails_counts_against_it_and_failures_tell_no_speed() -> None:
    sound, broken = Odds(tried(2.0, times=20)), Odds([*tried(2.0, times=20), *tried(None, times=60)])
    assert broken.expect(about()).fails == pytest.approx(0.75, abs=0.08)
    assert broken.expect(about()).mean == sound.expect(about()).mean
    assert broken.chance(about(), 1.0) < 0.4 < sound.chance(about(), 1.0)
    never = Odds(tried(None, times=150))
    assert never.chance(about(), 1.0) < BOUND


def test_however_alike_tries_were_the_next_may_differ() -> None:
    outlook = Odds(tried(1.0, times=500)).expect(about())
    assert outlook.deviation == pytest.approx(LEAST_DEVIATION, abs=0.05)


def test_chances_hold() -> None:
    """Of what is called likely by a fifth, about a fifth wins."""
    chance = random.Random(7)
    drawn = [chance.gauss(0.2, 0.5) for _ in range(600)]
    odds = Odds(DoneTry(about(), value, 1.0) for value in drawn[:300])
    said = odds.chance(about(), 1.8)
    won = sum(value > math.log(1.8 * 1.02) for value in drawn[300:]) / 300
    assert said == pytest.approx(won, abs=0.06)


def test_what_gains_most_in_a_second_comes_first() -> None:
    odds = Odds([
        *tried(1.5, 0.5, times=20, label="soon"), *tried(1.6, 10, times=20, label="late"),
        *tried(0.5, 0.5, times=20, label="slow"),
    ])  # fmt: skip
    order = sorted(("late", "slow", "soon"), key=lambda label: -odds.promise(about(label=label), 1.0))
    assert order[0] == "soon"
    assert odds.promise(about(label="soon"), 1.0) > odds.promise(about(label="soon"), 2.0) > 0
    assert odds.expect(about(label="late")).seconds == pytest.approx(10, abs=1.5)


def test_a_few_are_tried_against_the_odds_and_always_the_same() -> None:
    pairs = [(f"o1:{key:064x}", f"{digest:064x}") for key in range(40) for digest in range(40)]
    chosen = [pair for pair in pairs if against_the_odds(*pair)]
    assert len(chosen) == len(pairs) // HONEST_SHARE
    assert {key for key, _ in chosen} == {key for key, _ in pairs}
    assert chosen == [pair for pair in pairs if against_the_odds(*pair)]


def test_labels_lose_what_differs_from_operator_to_operator() -> None:
    assert plain_label("tuned, from scratch, best of 64 trials") == "tuned, from scratch, best of # trials"
    assert plain_label("tuned for a neighbour (1×64×56×56, 64×64×3×3)") == "tuned for a neighbour (#)"
    assert plain_label("Li2018") == "Li2018" and plain_label("softmax-avx512 v1") == "softmax-avx512 v1"


@pytest.mark.django_db
def test_trials_of_contests_teach(make_exploration: Callable[..., Any]) -> None:
    from tuning.explore.trial_history import about_try, odds_for
    from tuning.models import Stage, Trial

    row, theirs = make_exploration("Conv"), make_exploration("Relu", scope="org:7")

    def trial(
        label: str, status: str, ratio: float | None = None, of: Any = row, stage: int = Stage.CONTEST
    ) -> Any:
        return Trial.objects.create(
            exploration=of, route="tvm", method="compiler", label=label, stage=stage, status=status,
            ratio_to_default=ratio, took_s=4.0,
        )  # fmt: skip

    for _ in range(20):
        trial("tiles", "ok", 2.0)
        trial("rows", "build_failed")
        trial("lanes", "slower")
        trial("tiles", "noisy", 9.0)
        trial("", "unsupported")
        trial("tiles", "ok", 50.0, stage=Stage.TUNE)
        trial("theirs", "ok", 50.0, of=theirs)
    tiles, rows, lanes = (about_try(row.operator, "tvm", label) for label in ("tiles", "rows", "lanes"))
    odds = odds_for(row.target_id)
    assert odds.expect(tiles).mean == pytest.approx(math.log(2), abs=0.1)
    assert odds.expect(tiles).tries == 20 and odds.expect(tiles).seconds == pytest.approx(4, abs=0.3)
    assert odds.expect(rows).fails > 0.9
    assert odds.expect(lanes).mean == pytest.approx(math.log(1 / 3), abs=0.1)
    assert odds.expect(about_try(theirs.operator, "tvm", "theirs")).tries == 60
    trial("tiles", "ok", 60.0)
    assert odds_for(row.target_id) is odds, "remembered for some seconds"
    assert odds_for(row.target_id + 1).expect(tiles).tries == 0


@pytest.mark.django_db
def test_who_won_for_the_nearest_is_named_first(
    make_exploration: Callable[..., Any], django_assert_max_num_queries: Any
) -> None:
    from catalog.best.publishing import publish
    from tests.catalog.making import new_result
    from tuning.explore.trial_history import winners_nearby

    for size, route, more in (
        (1 << 10, "xla", {}), (1 << 14, "tvm", {}), (1 << 15, "halide", {}), (1 << 16, "tvm", {}),
    ):  # fmt: skip
        place = make_exploration("Relu", size=size)
        for name, ratio in ((route, 3.0), ("eager", 1.0)):
            publish(new_result(_place(place), name, ratio, label=f"{name} at its best", **more))
    publish(new_result(_place(make_exploration("Sigmoid", size=1 << 15)), "numpy", 9.0))
    asked = make_exploration("Relu", size=(1 << 15) + 64)
    with django_assert_max_num_queries(2):
        found = winners_nearby(asked)
    assert found == [("halide", "halide at its best"), ("tvm", "tvm at its best")]
    own = make_exploration("Relu", size=1 << 15)
    assert ("halide", "halide at its best") not in winners_nearby(own)


def _place(row: Any) -> dict[str, Any]:
    return {"operator": row.operator, "target": row.target, "setting": row.setting}


@pytest.fixture
def make_exploration(make_miss: Callable[..., Any]) -> Callable[..., Any]:
    def make(op: str, size: int = 1024, scope: str = "shared") -> Any:
        from django.utils import timezone

        from tuning.models import Exploration

        miss = make_miss(op, size=size)
        miss.delete()
        key = {"operator": miss.operator, "target": miss.target, "setting": miss.setting, "scope": scope}
        defaults = {"capability": miss.target.capability, "asked_at": timezone.now()}
        return Exploration.objects.get_or_create(**key, defaults=defaults)[0]

    return make


def test_what_came_with_the_service_is_for_processors_alone(
    make_exploration: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.models import Target
    from tuning.explore import trial_history

    target = make_exploration("Conv").target
    monkeypatch.setattr(trial_history, "given_odds", lambda: tuple(summed(tried(2.0))))
    assert trial_history.odds_for(target.pk).has_met("tvm")
    Target.objects.filter(pk=target.pk).update(kind="cuda")
    monkeypatch.setattr(trial_history, "_known", {})
    assert not trial_history.odds_for(target.pk).has_met("tvm")
