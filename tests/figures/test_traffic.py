"""Every figure of traffic, counted once more by brute force from the raw rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from catalog import models as c
from catalog.figures.traffic import TRAFFIC
from catalog.models import MissState
from catalog.rollups.rollups import refresh_rollups
from catalog.selectors import predicted, statistics, statistics_operators
from catalog.timerange import TimeRange
from catalog.usage.journal_line import JournalLine
from catalog.usage.succession import add_successions
from catalog.viewing import Viewer
from tests.dashboard.factory import workers_live_on
from tests.dashboard.keeping import kept
from tests.figures.traffic_rows import NOW, messy_traffic
from tuning import models as t
from tuning.statistics import paid_back, waiting
from tuning.statistics.queues import WorkNow

HOURS = TimeRange(NOW - timedelta(days=6), NOW)
DAYS = TimeRange(NOW - timedelta(days=37), NOW - timedelta(days=1))
HOST = Viewer("host", everywhere=frozenset())


@pytest.fixture
def messy(db: None) -> None:
    kept("messy traffic", _messy, workers_live_on)


def _messy() -> None:
    messy_traffic()
    _explorations()
    refresh_rollups()
    paid_back.refresh()


def viewers() -> Iterator[Viewer]:
    yield HOST
    for organisation in c.Organisation.objects.exclude(name="default"):
        yield Viewer(organisation.name, roles={organisation.pk: frozenset()}, focus=organisation.pk)


def _explorations() -> None:
    """Some operators explored twice, privately or for nobody; one that was never asked for."""
    place = {"target": c.Target.objects.get(), "setting": c.Setting.objects.get(), "capability": "cpu.zen3"}
    north = c.Organisation.objects.get(name="north")
    states = [t.State.QUEUED, t.State.DONE, t.State.RUNNING, t.State.PAUSED, t.State.QUEUED]
    for number, operator in enumerate(c.Operator.objects.order_by("pk")):
        for scope in {"shared", f"org:{north.pk}"} if number % 3 == 0 else {"shared"}:
            t.Exploration.objects.create(
                operator=operator, **place, scope=scope, state=states[number % 5],
                spent_s=0.0 if number == 4 else 0.0007 * 4**number / 3,
                asked_at=NOW - timedelta(hours=5 * number + 1),
            )  # fmt: skip


def mine(row: Any, viewer: Viewer) -> bool:
    return viewer.focus is None or row.organisation_id == viewer.focus


def within(moment: datetime, span: TimeRange) -> bool:
    start = span.since.replace(minute=0, second=0, microsecond=0)
    return (start.replace(hour=0) if span.grain == "day" else start) <= moment < span.until


def floor(moment: datetime, span: TimeRange) -> datetime:
    hour = moment.replace(minute=0, second=0, microsecond=0)
    return hour.replace(hour=0) if span.grain == "day" else hour


def usage(viewer: Viewer, span: TimeRange | None = None) -> list[c.Usage]:
    """Hits. What a tally has is judged by its hour; the range's last slot is whole."""
    return [
        row
        for row in c.Usage.objects.select_related("operator", "job")
        if mine(row, viewer) and (span is None or within(floor(row.served_at, span), span))
    ]


def tallies(viewer: Viewer, span: TimeRange | None = None) -> list[c.LookupTally]:
    return [
        row
        for row in c.LookupTally.objects.all()
        if mine(row, viewer) and (span is None or within(floor(row.hour, span), span))
    ]


def lookups(rows: list[c.Usage]) -> int:
    return sum(row.lookups for row in rows)


def saved_us(rows: list[c.Usage]) -> float:
    return sum(row.calls * (row.default_us - row.median_us) for row in rows)


def share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


@pytest.mark.parametrize("span", [HOURS, DAYS], ids=["by hour", "by day"])
def test_lookups_hits_and_misses_and_the_hit_rate(messy: None, span: TimeRange) -> None:
    for viewer in viewers():
        total = statistics.total(statistics.slots(viewer, span))
        hits = lookups(usage(viewer, span))
        misses = sum(row.misses for row in tallies(viewer, span))
        assert (total.hits, total.misses, total.lookups) == (hits, misses, hits + misses)
        assert total.hit_rate == share(hits, hits + misses)


@pytest.mark.parametrize("span", [HOURS, DAYS], ids=["by hour", "by day"])
def test_the_hit_rate_by_calls(messy: None, span: TimeRange) -> None:
    for viewer in viewers():
        hit = sum(row.calls for row in usage(viewer, span))
        missed = sum(row.miss_calls for row in tallies(viewer, span))
        rate = statistics.total(statistics.slots(viewer, span)).hit_rate_by_calls
        assert rate == pytest.approx(share(hit, hit + missed))


@pytest.mark.parametrize("span", [HOURS, DAYS], ids=["by hour", "by day"])
def test_the_hit_rate_by_distinct_operators(messy: None, span: TimeRange) -> None:
    for viewer in viewers():
        asked, hit = defaultdict(set), defaultdict(set)
        for row in tallies(viewer, span):
            asked[floor(row.hour, span)].add(row.operator_id)
            if row.hits:
                hit[floor(row.hour, span)].add(row.operator_id)
        slots = {slot.start: slot for slot in statistics.slots(viewer, span)}
        for start, operators in asked.items():
            assert slots[start].operators_asked == len(operators)
            assert slots[start].operators_hit == len(hit[start])
        total = statistics.total(list(slots.values()))
        n_hit, n_asked = (sum(map(len, sets.values())) for sets in (hit, asked))
        assert total.hit_rate_by_operators == share(n_hit, n_asked)


def test_every_slot_is_there_once_and_jobs_are_distinct_in_it(messy: None) -> None:
    for span, step in ((HOURS, timedelta(hours=1)), (DAYS, timedelta(days=1))):
        for viewer in viewers():
            slots = statistics.slots(viewer, span)
            starts = [slot.start for slot in slots]
            assert starts == [starts[0] + step * n for n in range(len(starts))]
            assert starts[0] <= span.since < starts[0] + step and starts[-1] < span.until <= starts[-1] + step
            jobs = defaultdict(set)
            for row in usage(viewer, span):
                if row.job_id:
                    jobs[floor(row.served_at, span)].add(row.job_id)
            assert {slot.start: slot.jobs for slot in slots if slot.jobs} == {
                start: len(names) for start, names in jobs.items()
            }


@pytest.mark.parametrize("span", [HOURS, DAYS], ids=["by hour", "by day"])
def test_time_saved(messy: None, span: TimeRange) -> None:
    for viewer in viewers():
        total = statistics.total(statistics.slots(viewer, span))
        assert total.saved_s == pytest.approx(saved_us(usage(viewer, span)) / 1e6)


def test_time_saved_by_route(messy: None) -> None:
    for viewer in viewers():
        by_route: dict[str, list[c.Usage]] = defaultdict(list)
        for row in usage(viewer, DAYS):
            by_route[row.route].append(row)
        found = statistics.routes(viewer, DAYS)
        assert {row.route for row in found} == set(by_route)
        for row in found:
            rows = by_route[row.route]
            assert row.hits == lookups(rows)
            assert row.calls == pytest.approx(sum(one.calls for one in rows))
            assert row.saved_s == pytest.approx(saved_us(rows) / 1e6)
        assert [row.saved_us for row in found] == sorted((row.saved_us for row in found), reverse=True)


@pytest.mark.parametrize("span", [HOURS, DAYS], ids=["by hour", "by day"])
def test_hits_that_reuse_what_was_explored_for_another_job(messy: None, span: TimeRange) -> None:
    first: dict[int, c.Miss] = {}
    for miss in c.Miss.objects.order_by("first_asked_at", "pk"):
        first.setdefault(miss.operator_id, miss)
    assert statistics.total(statistics.slots(HOST, span)).reused_hits > 0
    for viewer in viewers():
        rows = usage(viewer, span)
        reused = [
            row
            for row in rows
            if row.job_id and row.operator_id in first and first[row.operator_id].job_id != row.job_id
        ]
        rate = statistics.total(statistics.slots(viewer, span)).reuse_rate
        assert rate == share(lookups(reused), lookups(rows))


def test_what_was_asked_next_and_in_how_many_jobs(messy: None) -> None:
    for job in c.Job.objects.all():
        asked = list(c.JobOperator.objects.filter(job=job).values_list("operator", flat=True))
        line = JournalLine(0, NOW, job.organisation_id, job.name, [], [], asked[job.pk % 3 :] + asked[:2])
        add_successions([(job.pk, line)])
    seen = 0
    for viewer in viewers():
        orders = [
            [row.operator.key for row in job.operators.exclude(number=None).order_by("number")]
            for job in c.Job.objects.all()
            if mine(job, viewer)
        ]
        for operator in c.Operator.objects.all():
            after = Counter(
                later
                for order in orders
                if operator.key in order
                for later in order[order.index(operator.key) + 1 :][:32]
            )
            assert {row.key: row.jobs for row in predicted.related_to(operator, viewer, 1000)} == dict(after)
            seen += len(after)
    assert seen


def test_reuse_in_jobs_and_shared_operators(messy: None) -> None:
    for viewer in viewers():
        jobs = defaultdict(set)
        for row in c.JobOperator.objects.select_related("job"):
            if mine(row.job, viewer):
                jobs[row.operator_id].add(row.job_id)
        reuse = statistics.reuse(viewer)
        assert reuse.jobs_per_operator == share(sum(map(len, jobs.values())), len(jobs))
        assert reuse.shared_operators == share(sum(len(names) > 1 for names in jobs.values()), len(jobs))
        assert statistics.jobs_served(viewer) == sum(mine(job, viewer) for job in c.Job.objects.all())


def test_an_operators_jobs_hit_rate_and_time_saved(messy: None) -> None:
    for viewer in viewers():
        rows = [statistics_operators.described(row) for row in statistics_operators.totals(viewer)]
        assert {row.operator.pk for row in rows} == {row.operator_id for row in tallies(viewer)}
        for row in rows:
            its = [one for one in usage(viewer) if one.operator_id == row.operator.pk]
            misses = sum(one.misses for one in tallies(viewer) if one.operator_id == row.operator.pk)
            asked = c.JobOperator.objects.filter(operator=row.operator).select_related("job")
            assert row.jobs == sum(mine(one.job, viewer) for one in asked)
            assert (row.hits, row.misses) == (lookups(its), misses)
            assert row.hit_rate == share(lookups(its), lookups(its) + misses)
            assert row.saved_s == pytest.approx(saved_us(its) / 1e6)


def test_lists_of_operators_are_in_order(messy: None) -> None:
    for sort, value in (("-jobs", "jobs"), ("saved", "saved_us"), ("-lookups", "lookups")):
        values = [getattr(row, value) for row in statistics_operators.top(HOST, sort, 100)]
        assert values == sorted(values, reverse=sort.startswith("-"))


def test_what_the_catalogue_knows(messy: None) -> None:
    for viewer in viewers():
        own = {f"org:{number}" for number in viewer.roles}
        seen = [
            best
            for best in c.Best.objects.all()
            if viewer.sees_all or best.scope == "shared" or best.scope in own
        ]
        winners = [best for best in seen if best.rank == 0]
        known = statistics.catalogue(viewer)
        assert known.operators == len(c.Operator.objects.all())
        assert known.known == len({best.operator_id for best in winners})
        assert known.geomean_speedup == pytest.approx(
            math.exp(sum(math.log(best.ratio_to_default) for best in winners) / len(winners))
        )
        wins: dict[str, int] = defaultdict(int)
        for best in winners:
            wins[best.method] += 1
        assert known.wins == wins
        assert known.implementations == sum(
            row.revoked_at is None and (viewer.sees_all or row.scope == "shared" or row.scope in own)
            for row in c.Implementation.objects.all()
        )


def test_exploring_against_what_it_saved(messy: None) -> None:
    for viewer in viewers():
        asked_for = {row.operator_id for row in tallies(viewer)}
        spent: dict[int, float] = defaultdict(float)
        for row in t.Exploration.objects.all():
            seen = viewer.sees_all or row.scope in ("shared", f"org:{viewer.focus}")
            if seen and (viewer.sees_all or row.operator_id in asked_for):
                spent[row.operator_id] += row.spent_s
        its_saving = {
            number: saved_us([row for row in usage(viewer) if row.operator_id == number]) / 1e6
            for number in spent
        }
        found = paid_back.paid_back(viewer)
        assert found.explored == len(spent)
        assert found.spent_s == pytest.approx(sum(spent.values()))
        assert found.saved_s == pytest.approx(sum(its_saving.values()))
        assert found.paid_back == sum(its_saving[number] > spent[number] for number in spent)
        assert found.share == share(found.paid_back, len(spent))
        assert found.net_s == pytest.approx(sum(its_saving.values()) - sum(spent.values()))
        assert found.return_on_tuning == pytest.approx(share(sum(its_saving.values()), sum(spent.values())))
    assert 0 < paid_back.paid_back(HOST).paid_back < paid_back.paid_back(HOST).explored


def test_exploring_over_time(messy: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuning.statistics.paid_back.timezone.now", lambda: NOW)
    paid_back.refresh()
    for span in (HOURS, DAYS):
        sums: dict[datetime, float] = defaultdict(float)
        for row in t.Exploration.objects.all():
            if within(floor(row.asked_at, span), span):
                sums[floor(row.asked_at, span)] += row.spent_s
        assert paid_back.spent(HOST, span) == pytest.approx(dict(sums))
    assert not any(paid_back.spent(viewer, HOURS) for viewer in viewers() if viewer.focus is not None)


def test_what_was_noted_is_what_is_counted_on_the_spot(messy: None) -> None:
    noted = [paid_back.paid_back(viewer) for viewer in viewers()]
    c.Rollup.objects.filter(name="paid_back").delete()
    assert [paid_back.paid_back(viewer) for viewer in viewers()] == noted


def test_what_waits_and_who_works(messy: None) -> None:
    from django.utils import timezone

    now = timezone.now()
    target = c.Target.objects.get()
    for name, seen_s, stopped in (("a", 1, None), ("b", 1, now), ("c", 9999, None)):
        t.Worker.objects.create(
            target=target, name=name, host="h", pid=1, routes={}, stopped_at=stopped,
            last_seen_at=now - timedelta(seconds=seen_s),
        )  # fmt: skip
    c.Miss.objects.filter(pk__in=list(c.Miss.objects.values_list("pk", flat=True)[:3])).update(
        state=MissState.PROMOTED
    )
    for viewer in viewers():
        own = {"shared", *(f"org:{number}" for number in viewer.roles)}
        seen = [row for row in t.Exploration.objects.all() if viewer.sees_all or row.scope in own]
        queued = [row for row in seen if row.state == "queued"]
        found = waiting.waiting(WorkNow(viewer.shown(), now))
        assert found.queued == len(queued)
        assert found.running == sum(row.state == "running" for row in seen)
        assert found.paused == sum(row.state == "paused" for row in seen)
        assert found.oldest_s(now) == (now - min(row.asked_at for row in queued)).total_seconds()
        misses = [row for row in c.Miss.objects.all() if viewer.sees_all or row.scope in own]
        assert found.collecting == sum(row.state == "waiting" for row in misses)
        assert found.workers == 1


def test_nobody_sees_nothing(messy: None) -> None:
    nobody = Viewer()
    assert not any(slot.lookups for slot in statistics.slots(nobody, HOURS))
    assert not statistics.routes(nobody, DAYS)
    assert statistics.jobs_served(nobody) == 0
    assert paid_back.paid_back(nobody).explored == 0
    assert statistics.reuse(nobody).jobs_per_operator is None


def test_ranges_begin_and_end_in_utc(messy: None) -> None:
    span = TimeRange(datetime(2026, 11, 19, 23, 59, tzinfo=UTC), datetime(2026, 11, 20, 0, 1, tzinfo=UTC))
    assert [slot.start.hour for slot in statistics.slots(HOST, span)] == [23, 0]


def test_definitions_name_no_figure_twice_and_say_all() -> None:
    names = [figure.name for figure in TRAFFIC]
    assert len(set(names)) == len(names)
    for figure in TRAFFIC:
        assert all((figure.title, figure.unit, figure.meaning, figure.formula, figure.source))
        assert figure.meaning.endswith(".") and not figure.formula.endswith(".")
