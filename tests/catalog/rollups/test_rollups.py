"""Rollups say what the rows say, whatever happens meanwhile."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog import models
from catalog.rollups import rollups, traffic_rollups
from catalog.usage.draining import drain_journal
from catalog.usage.stale import mark_stale
from tests.figures.traffic_rows import messy_traffic

ROLLUPS = (models.TrafficSlot, models.RouteSlot, models.OperatorTotal, models.Standing)


def everything() -> dict[str, list[tuple[Any, ...]]]:
    """All rollup rows but for their ids, floats rounded: sums are added in another order."""
    found = {}
    for model in ROLLUPS:
        names = [field.attname for field in model._meta.fields if field.name != "id"]
        rows = model._default_manager.values_list(*names)
        found[model.__name__] = sorted(
            tuple(round(value, 3) if isinstance(value, float) else value for value in row) for row in rows
        )
    return found


def test_a_drained_lookup_is_rolled_up(ask: Any, put: Any, organisation: Any) -> None:
    put(64, "eager", 1.0)
    put(64, "onednn", 2.0)
    ask(64, job="run 1", calls=4.0)
    ask(128, job="run 1")
    drain_journal()
    assert rollups.refresh_rollups()
    slots = {(slot.grain, slot.tenant): slot for slot in models.TrafficSlot.objects.all()}
    assert set(slots) == {
        (grain, tenant) for grain in ("hour", "day") for tenant in ("all", f"org:{organisation.pk}")
    }
    for slot in slots.values():
        assert (slot.hits, slot.misses, slot.hit_calls, slot.miss_calls) == (1, 1, 4.0, 1.0)
        assert (slot.operators_asked, slot.operators_hit, slot.jobs) == (2, 1, 1)
        assert slot.saved_us == pytest.approx(4 * 50.0)
    route = models.RouteSlot.objects.get(tenant="all")
    assert (route.route, route.hits, route.calls) == ("onednn", 1, 4.0)
    total = models.OperatorTotal.objects.get(tenant="all", hits=1)
    assert (total.misses, total.jobs, total.calls) == (0, 1, 4.0)
    assert not models.StaleHour.objects.exists()


def test_making_it_again_changes_nothing(db: None) -> None:
    messy_traffic()
    rollups.refresh_rollups()
    before = everything()
    assert all(before.values())
    mark_stale(models.LookupTally.objects.values_list("hour", flat=True).distinct())
    rollups.refresh_rollups()
    assert everything() == before


def test_hour_by_hour_and_all_at_once_give_the_same(db: None) -> None:
    messy_traffic()
    hours = list(models.StaleHour.objects.order_by("-hour").values_list("hour", flat=True))
    models.StaleHour.objects.all().delete()
    for hour in hours:
        mark_stale([hour])
        rollups.refresh_rollups()
    by_hour = everything()
    for model in ROLLUPS:
        model._default_manager.all().delete()
    rollups.rebuild_rollups()
    assert everything() == by_hour


def test_a_drain_in_the_middle_of_a_refresh_is_not_lost(
    ask: Any, put: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(64, "eager", 1.0)
    ask(64, job="early")
    drain_journal()
    made = traffic_rollups._make_totals

    def drained_meanwhile(operators: set[int]) -> None:
        made(operators)
        ask(64, job="late")
        drain_journal()

    with monkeypatch.context() as patched:
        patched.setattr(traffic_rollups, "_make_totals", drained_meanwhile)
        rollups.refresh_rollups()
    assert models.TrafficSlot.objects.get(grain="hour", tenant="all").hits == 1
    assert models.StaleHour.objects.exists()
    rollups.refresh_rollups()
    assert models.TrafficSlot.objects.get(grain="hour", tenant="all").hits == 2
    assert models.OperatorTotal.objects.get(tenant="all").jobs == 2
    assert not models.StaleHour.objects.exists()


@pytest.mark.parametrize("step", ["_make_hours", "_make_day", "_make_totals"])
def test_ended_in_the_middle_the_next_one_finishes(
    db: None, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    messy_traffic()
    with monkeypatch.context() as patched, suppress(RuntimeError):
        patched.setattr(traffic_rollups, step, lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        rollups.refresh_rollups()
    assert models.StaleHour.objects.exists()
    models.StepFailure.objects.update(due_at=timezone.now())
    rollups.refresh_rollups()
    resumed = everything()
    rollups.rebuild_rollups()
    assert everything() == resumed


def test_a_day_that_cannot_be_rolled_up_leaves_the_others_made(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    messy_traffic()
    days = sorted({mark.hour.replace(hour=0) for mark in models.StaleHour.objects.all()})
    bad, made = days[len(days) // 2], traffic_rollups._make_day

    def breaks(day: datetime) -> None:
        if day == bad:
            raise OverflowError("a sum")
        made(day)

    monkeypatch.setattr(traffic_rollups, "_make_day", breaks)
    rollups.keep_rollups_fresh()
    assert {mark.hour.replace(hour=0) for mark in models.StaleHour.objects.all()} == {bad}
    there = set(models.TrafficSlot.objects.filter(grain="day").values_list("start", flat=True))
    assert there == set(days) - {bad} and len(days) > 2
    assert models.StepFailure.objects.get().said == "OverflowError: a sum"


def test_what_was_deleted_leaves_the_rollups_when_they_are_rebuilt(db: None) -> None:
    messy_traffic()
    rollups.refresh_rollups()
    models.LookupTally.objects.all().delete()
    models.Usage.objects.all().delete()
    rollups.rebuild_rollups()
    assert not models.TrafficSlot.objects.exists()
    assert not models.RouteSlot.objects.exists()
    assert not models.OperatorTotal.objects.exists()


def test_standings_are_made_again_only_when_bests_changed(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(64, "eager", 1.0)
    rollups.refresh_rollups()
    first = models.Rollup.objects.get(name="standings")
    rollups.refresh_rollups()
    assert models.Rollup.objects.get(name="standings").made_at == first.made_at
    put(64, "onednn", 3.0)
    rollups.refresh_rollups()
    assert models.Rollup.objects.get(name="standings").made_at > first.made_at
    winner = models.Standing.objects.get(route="onednn")
    assert (winner.found, winner.won, winner.contested, winner.size_class) == (1, 1, 1, 0)


def test_the_courier_leaves_what_was_costly_alone_for_a_while(ask: Any, put: Any) -> None:
    put(64, "eager", 1.0)
    rollups.keep_rollups_fresh()
    now = timezone.now()
    models.Rollup.objects.update_or_create(name="traffic", defaults={"made_at": now, "took_s": 60})
    ask(64)
    drain_journal()
    rollups.keep_rollups_fresh()
    assert not models.TrafficSlot.objects.exists()
    models.Rollup.objects.filter(name="traffic").update(made_at=now - timedelta(seconds=1201))
    rollups.keep_rollups_fresh()
    assert models.TrafficSlot.objects.exists()
