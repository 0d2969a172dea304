"""One alert for one cause: it goes on, ends by itself, and does not flap."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.viewing import viewer_of
from dashboard.notifications.alerts import steering, watching
from dashboard.notifications.alerts.causes import AlertRule
from dashboard.notifications.alerts.steering import AlertOrder, NotInState
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Alert, AlertDeed, Happening, Notification, Severity
from dashboard.notifications.write import subjects
from tests.dashboard.notifications.alerts.conftest import comes_back, falls_silent, time_passes

pytestmark = pytest.mark.django_db


def deeds() -> list[str]:
    return list(AlertDeed.objects.order_by("pk").values_list("what", flat=True))


def test_a_cause_is_one_alert_however_often_it_is_seen(world, silent):
    for _ in range(3):
        watch()
    alert = Alert.objects.get()
    assert (alert.state, alert.severity, alert.rule) == ("firing", "critical", "silent")
    assert "w0@far fell silent" in alert.text and deeds() == ["fired"]


def test_it_resolves_itself_once_its_cause_was_gone_for_a_while(world, silent):
    watch()
    comes_back(silent)
    assert Alert.objects.get().state == "firing"  # it may come back
    time_passes(60)
    alert = Alert.objects.get()
    assert alert.state == "resolved" and alert.ended_at is not None
    assert deeds() == ["fired", "resolved"]


def test_what_comes_and_goes_is_one_alert_and_is_given_longer_each_time(world, silent):
    watch()
    comes_back(silent)
    falls_silent(silent)  # within its quiet time: the same alert
    assert Alert.objects.count() == 1 and Alert.objects.get().gone_at is None
    comes_back(silent)
    time_passes(31)
    falls_silent(silent)
    assert Alert.objects.count() == 2
    comes_back(silent)
    time_passes(31)  # what was enough the first time
    assert Alert.objects.latest("pk").state == "firing"
    time_passes(31)
    assert Alert.objects.latest("pk").state == "resolved"


def test_resolved_by_hand_it_fires_again_only_after_its_cause_was_gone(world, silent, host):
    watch()
    steering.act(viewer_of(host), Alert.objects.get().pk, AlertOrder("resolve", "host", "known"))
    watch()
    assert Alert.objects.get().state == "resolved" and Alert.objects.get().ended_at is None
    comes_back(silent)
    time_passes(31)
    falls_silent(silent)
    assert [one.state for one in Alert.objects.order_by("pk")] == ["resolved", "firing"]
    assert deeds() == ["fired", "resolved", "fired"]


def test_nobody_is_told_of_what_is_muted_also_when_it_fires_anew(world, silent, host):
    world.watch(host, subjects.service(viewer_of(host)), events=("silent",))
    watch()
    gather()
    steering.act(viewer_of(host), Alert.objects.get().pk, AlertOrder("mute", "host", for_s=3600))
    comes_back(silent)
    time_passes(31)
    gather()  # who was told that it fired is told that it is over
    falls_silent(silent)
    gather()
    assert [one.text.startswith("Resolved") for one in Notification.objects.order_by("pk")] == [False, True]
    muted = Alert.objects.latest("pk")
    assert muted.standing == "muted" and not muted.told
    Alert.objects.update(muted_until=timezone.now() - timedelta(seconds=1))
    watch()
    gather()
    assert Notification.objects.count() == 3  # it still fires, and is muted no longer


def test_acknowledged_once_and_named(world, silent, host):
    watch()
    alert = steering.act(viewer_of(host), Alert.objects.get().pk, AlertOrder("acknowledge", "host", "mine"))
    assert (alert.state, alert.acknowledged_by) == ("acknowledged", "host")
    with pytest.raises(NotInState):
        steering.act(viewer_of(host), alert.pk, AlertOrder("acknowledge", "host"))
    deed = AlertDeed.objects.latest("pk")
    assert (deed.what, deed.by, deed.detail) == ("acknowledged", "host", "mine")
    comes_back(silent)
    time_passes(31)
    assert Alert.objects.get().state == "resolved"


def test_a_rule_that_fails_leaves_its_alerts_and_the_other_rules_alone(world, silent, monkeypatch):
    def broken():
        raise RuntimeError("a fault")

    known = Alert.objects.create(
        rule="failing", cause="failing:1:tvm", severity="error", text="x", path="/", fired_at=timezone.now(),
        seen_at=timezone.now(),
    )  # fmt: skip
    fault = AlertRule(Happening.FAILING, Severity.ERROR, 1, broken)
    others = [rule for rule in watching.rules() if rule.name != "failing"]
    monkeypatch.setattr(watching, "rules", lambda: (fault, *others))
    watch()
    known.refresh_from_db()
    assert known.state == "firing" and known.gone_at is None
    assert Alert.objects.filter(rule="silent").exists()


def test_a_rule_that_is_switched_off_is_not_judged(world, silent, configure):
    configure(alerts_off=("silent",))
    watch()
    assert not Alert.objects.exists()
