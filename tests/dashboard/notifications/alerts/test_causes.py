"""Each rule fires for its cause, and no longer once that is gone."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from django.utils import timezone

from catalog.models import BestChange, Membership, StepFailure, TrafficSlot
from catalog.steps import LASTS, step
from catalog.viewing import viewer_of
from dashboard.billing.models import Account, LedgerDay
from dashboard.notifications.alerts import causes, watching
from dashboard.notifications.alerts.selectors import alarms
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Alert, Notification
from dashboard.notifications.write import subjects
from tests.dashboard.notifications.test_gathering import tried
from tuning.failures.grouping import note_failure
from tuning.models import Exploration, Pause, Race, Stage, Trial

pytestmark = pytest.mark.django_db


def firing() -> list[str]:
    watch()
    return list(Alert.objects.filter(gone_at=None).exclude(rule="new_failure").values_list("rule", flat=True))


def test_a_failing_route_is_read_from_its_alert_by_pages(world):
    tried(world, "build_failed", 8)
    assert firing() == ["failing"]
    (found,) = alarms(timezone.now()).failing
    assert (found.route, found.trials, found.operators) == ("tvm", 8, 4)
    tried(world, "ok", 1)
    assert firing() == [] and alarms(timezone.now()).failing == ()


def test_the_share_of_noisy_trials(world):
    tried(world, "ok", 10)
    tried(world, "noisy", 10)
    assert firing() == ["disturbed"]
    assert alarms(timezone.now()).disturbed[0].noisy == 10
    tried(world, "ok", 30)
    assert firing() == []


def test_first_results_that_wait_too_long_unless_somebody_paused_them(world, silent):
    long_ago = timezone.now() - timedelta(hours=1)
    row = Exploration.objects.create(
        operator=world.operator, **world.factory.where, asked_at=long_ago, capability="cpu.zen3"
    )
    assert firing() == ["silent"]  # that is why they wait: one cause, one alert
    silent.delete()
    assert firing() == ["queue_old"]
    assert "1 first result waits, the oldest since 1 hour" in Alert.objects.get(rule="queue_old").text
    pause = Pause.objects.create(capability="cpu.zen3", reason="maintenance")
    assert firing() == []
    pause.delete()
    assert firing() == ["queue_old"]
    Exploration.objects.filter(pk=row.pk).update(stage=1)
    assert firing() == []


def test_a_hit_rate_that_falls(world):
    this_hour = timezone.now().replace(minute=0, second=0, microsecond=0)

    def slot(hours_ago: int, hits: int, misses: int) -> None:
        start = this_hour - timedelta(hours=hours_ago)
        TrafficSlot.objects.update_or_create(
            tenant="all", grain="hour", start=start, defaults={"hits": hits, "misses": misses}
        )

    slot(30, 950, 50)
    slot(0, 60, 39)
    assert firing() == []  # 99 lookups say nothing
    slot(0, 60, 40)
    assert firing() == ["hits_falling"]
    assert "60 per cent of the last 100 lookups hit, 95 per cent" in Alert.objects.get().text
    slot(0, 900, 40)
    assert firing() == []


def test_a_best_that_became_slower_until_it_is_no_longer(world):
    first, *_ = world.factory.implement(world.operator)
    fast, slow = world.implementation("halide", 3.0), world.implementation("tvm", 1.2)
    type(first).objects.filter(pk=first.pk).update(implementation=slow, ratio_to_default=1.2)
    BestChange.objects.create(
        operator=world.operator, **world.factory.where, before=fast, after=slow, reason="withdrawn"
    )
    assert firing() == ["regressed"]
    alert = Alert.objects.get(rule="regressed")
    assert alert.organisation is None
    # The factory's best rests on old evidence, whose default was not noted.
    slow_route = first.route
    whose = "1.2 times the default (PyTorch eager, else ONNX Runtime), halide was 3.0 times."
    assert alert.text.endswith(f": slower than before, {slow_route} is {whose}")
    type(first).objects.filter(pk=first.pk).update(ratio_to_default=2.9)
    assert firing() == []


def slower_than_before(world) -> tuple[Exploration, BestChange]:
    """What serves is slower than what it replaced; its exploration's first result is served since before."""
    best, *_ = world.factory.implement(world.operator)
    fast, slow = world.implementation("halide", 3.0), world.implementation("tvm", 1.2)
    type(best).objects.filter(pk=best.pk).update(implementation=slow, ratio_to_default=1.2)
    row = Exploration.objects.create(
        operator=world.operator, **world.factory.where, asked_at=timezone.now(), capability="cpu.zen3"
    )
    Race.objects.create(exploration=row, stage=Stage.FIRST, winner=fast)
    change = BestChange.objects.create(
        operator=world.operator, **world.factory.where, before=fast, after=slow, reason="tvm won"
    )
    return row, change


def test_a_first_result_that_the_contest_revised_is_no_regression(world):
    row, _ = slower_than_before(world)
    Race.objects.create(exploration=row, stage=Stage.CONTEST)  # the one that revised it
    assert firing() == []


def test_who_led_before_the_race_decided_is_revised_too(world):
    row, change = slower_than_before(world)
    sitting = Race.objects.create(exploration=row, stage=Stage.CONTEST, report={"decides": False})
    Race.objects.filter(pk=sitting.pk).update(created_at=change.created_at - timedelta(minutes=1))
    assert firing() == []


def test_a_best_that_fell_after_a_race_had_decided_is_a_regression(world):
    row, change = slower_than_before(world)
    decided = Race.objects.create(exploration=row, stage=Stage.CONTEST, report={"decides": True})
    Race.objects.filter(pk=decided.pk).update(created_at=change.created_at - timedelta(minutes=1))
    assert firing() == ["regressed"]


def test_a_first_result_that_was_revoked_was_not_revised(world):
    _, change = slower_than_before(world)
    type(change.before).objects.filter(pk=change.before_id).update(revoked_at=timezone.now())
    assert firing() == ["regressed"]


def charged(world, micros: int, balance: int) -> Account:
    LedgerDay.objects.create(
        organisation=world.home, day=date.today(), kind="charge", entries=3, amount_micros=-micros
    )
    return Account.objects.create(organisation=world.home, currency="EUR", balance_micros=balance)


def test_credit_that_ends_soon_is_the_organisations_own_alert(world, host):
    payer = world.member("payer", world.home)
    Membership.objects.filter(user=payer).update(role="billing")
    world.watch(payer, subjects.account(viewer_of(payer)), events=("spend",))
    world.watch(host, subjects.service(viewer_of(host)), events=("failing",))
    account = charged(world, 6_000_000, 4_000_000)
    assert firing() == ["spend"]
    gather()
    assert Alert.objects.get().organisation == world.home
    (told,) = Notification.objects.all()
    assert told.user == payer
    assert told.text == "4.00 EUR of credit are left, 6.00 EUR were spent within 3 days."
    Account.objects.filter(pk=account.pk).update(balance_micros=90_000_000)
    assert firing() == []


def test_who_may_no_longer_see_the_bills_hears_no_more_of_them(world):
    payer = world.member("payer", world.home)
    Membership.objects.filter(user=payer).update(role="billing")
    world.watch(payer, subjects.account(viewer_of(payer)), events=("spend",))
    Membership.objects.filter(user=payer).update(role="viewer")
    charged(world, 6_000_000, 0)
    watch()
    gather()
    assert not Notification.objects.exists()


def test_a_new_cause_of_failure_opens_an_alert_and_more_of_it_none(world):
    tried(world, "build_failed", 2)
    for trial in Trial.objects.order_by("pk"):
        note_failure(trial)
        watch()
    alert = Alert.objects.get(rule="new_failure")
    assert alert.text == "tvm failed for a new cause: no such intrinsic #."
    assert alert.path.startswith("/failures/") and alert.severity == "info"


def test_the_latest_trials_are_read_once_for_both_rules(world, monkeypatch):
    asked = []
    monkeypatch.setattr(causes.alarms, "alarms", lambda trials: asked.append(1) or causes.alarms.Alarms())
    watch()
    assert asked == [1]


def test_a_cause_that_cannot_be_told_of_leaves_the_others_told(world, monkeypatch):
    for number in range(3):
        with step(f"chore {number}"):
            raise KeyError("x")
    StepFailure.objects.update(failures=LASTS)
    real = watching._fire

    def breaks(rule, name, cause, now):
        if cause.key == "chore 1":
            raise KeyError("x")
        real(rule, name, cause, now)

    monkeypatch.setattr(watching, "_fire", breaks)
    watch()
    assert {one.facts["step"] for one in Alert.objects.all()} == {"chore 0", "chore 2"}


def test_a_rule_that_cannot_be_judged_is_an_alert_itself(world, monkeypatch):
    monkeypatch.setattr(causes, "queue_old", lambda: 1 / 0)
    for _ in range(LASTS + 1):
        watch()
    (alert,) = Alert.objects.all()
    assert alert.text.startswith("Judging the alert rule queue old fails since ")
    assert alert.rule == "step_failing" and alert.severity == "error"
