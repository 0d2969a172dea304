"""Every figure of exploring, jobs and models, counted again from the raw rows in plain Python."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from datetime import timedelta
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
from django.db.models import Q

from catalog import models as c
from catalog.figures.work import WORK
from catalog.lookup.reporting import CacheReport, record_report
from catalog.registry import default_organisation
from catalog.selectors import jobs
from catalog.timerange import TimeRange
from catalog.viewing import MAY, Viewer
from dashboard.pages.work import current_work
from dashboard.pages.work.tables import explorations_table
from tests.dashboard.factory import workers_live_on
from tests.dashboard.keeping import kept
from tests.figures.work_rows import OP_TYPES, Mess
from tuning import ingest
from tuning import models as t
from tuning.conf import conf
from tuning.queue.decide import BYTES_PER_US, CALL_US, FLOPS_PER_US, GAIN, RELATED_SHARE
from tuning.queue.rates import Rates, rates
from tuning.queue.shares import charge, set_weight
from tuning.queue.waits import held_now
from tuning.statistics import collecting, eta, queues
from tuning.statistics import models as model_figures
from tuning.statistics.queues import WorkNow
from tuning.statistics.shares import organisations_shares
from tuning.statistics.workers import fleet, workers

pytestmark = pytest.mark.django_db


def figure(*names: str) -> None:
    """Says of which figures a test is: the last test of the file reads it."""
    assert {one.name for one in WORK} >= set(names)


@pytest.fixture
def mess(db: None) -> Mess:
    return kept("mess", Mess, workers_live_on)


@pytest.fixture(params=["host", "tenant"])
def viewer(request: pytest.FixtureRequest, mess: Mess) -> Viewer:
    """Somebody of the host, who sees all, and somebody of one tenant."""
    if request.param == "host":
        return Viewer("host", {}, MAY[c.Role.ADMIN])
    own = mess.organisations[1]
    return Viewer("tenant", {own.pk: frozenset()}, None, own.pk)


def seen(viewer: Viewer, rows: Any) -> list[Any]:
    own = {f"org:{number}" for number in viewer.roles} | {"shared"}
    return [row for row in rows if viewer.sees_all or row.scope in own]


def explorations(viewer: Viewer) -> list[t.Exploration]:
    return seen(viewer, t.Exploration.objects.select_related("operator"))


def test_depth_age_and_worth_of_every_queue(mess: Mess, viewer: Viewer) -> None:
    figure("queue_depth", "queue_oldest", "queue_worth")
    wanted: dict[tuple[str, int, int], dict[str, list[t.Exploration]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in explorations(viewer):
        if row.state in ("queued", "running", "paused"):
            wanted[row.capability, row.stage, row.priority][row.state].append(row)
    found = queues.lanes(viewer.shown())
    assert [lane.key for lane in found] == sorted(wanted)
    for lane in found:
        by_state = wanted[lane.key]
        counts = tuple(len(by_state[state]) for state in ("queued", "running", "paused"))
        assert (lane.queued, lane.running, lane.paused) == counts
        waiting = by_state["queued"]
        assert lane.oldest_at == min((row.asked_at for row in waiting), default=None)
        assert lane.worth_us == pytest.approx(sum(row.worth for row in waiting))
    totals = current_work.queues(found)
    assert sum(one.queued for one in totals) == sum(lane.queued for lane in found)


def test_what_each_organisation_had_and_is_due(mess: Mess, tenant: Any) -> None:
    figure("share_portion", "share_due")
    host = default_organisation()
    waiting = list(t.Exploration.objects.filter(state="queued").order_by("pk"))
    for row in waiting[::2]:
        row.asked_by = tenant
        row.save()
    set_weight(tenant, 3.0)
    charge(tenant.pk, 30.0)
    charge(host.pk, 90.0)
    recent = {row.organisation_id: row.recent_s for row in t.WorkerShare.objects.all()}
    waits = {row.asked_by_id or host.pk for row in waiting}
    weights = {number: 3.0 if number == tenant.pk else 1.0 for number in waits}
    assert len(waits) == 2
    for one in organisations_shares():
        had = recent[one.organisation] / sum(recent.values())
        assert one.portion == pytest.approx(had, abs=0.01)
        assert one.due == pytest.approx(weights[one.organisation] / sum(weights.values()))
        assert one.explorations == sum((row.asked_by_id or host.pk) == one.organisation for row in waiting)


def test_what_ended_and_what_began_hour_by_hour(mess: Mess, viewer: Viewer) -> None:
    figure("queue_ended", "queue_first_results")
    slots = queues.throughput(WorkNow(viewer.shown(), mess.now))
    assert len(slots) == 24
    for slot in slots:
        end = slot.start + timedelta(hours=1)
        ended = [
            row.state
            for row in explorations(viewer)
            if row.finished_at and slot.start <= row.finished_at < end and row.finished_at <= mess.now
        ]
        for state in ("done", "unsupported", "discarded", "dead"):
            assert getattr(slot, state) == ended.count(state)
        first = [row.first_result_at for row in explorations(viewer) if row.first_result_at]
        assert slot.first_results == sum(slot.start <= at < end and at <= mess.now for at in first)
    assert sum(slot.ended for slot in slots) > 0
    for line in queues.capability_queues(WorkNow(viewer.shown(), mess.now), rates()):
        ages = [
            mess.now - row.finished_at
            for row in explorations(viewer)
            if row.finished_at and row.capability == line.capability
        ]
        assert line.ended_last_hour == sum(age <= timedelta(hours=1) for age in ages)
        assert line.ended_last_day == sum(age <= timedelta(days=1) for age in ages)


def slices_by_hand() -> list[dict[str, Any]]:
    """One entry per (exploration, fence, stage, round) that has ended."""
    groups: dict[tuple[int, int, int, int], list[t.Trial]] = defaultdict(list)
    for trial in t.Trial.objects.select_related("exploration__operator").order_by("pk"):
        groups[trial.exploration_id, trial.fence, trial.stage, trial.round].append(trial)
    made = []
    for (pk, fence, stage, round_), trials in groups.items():
        row = trials[0].exploration
        if row.state == "running" and row.fence == fence:
            continue
        began = min(one.started_at or one.created_at - timedelta(seconds=one.took_s) for one in trials)
        ended = max(one.created_at for one in trials)
        seconds = (ended - began).total_seconds()
        if stage == 2:
            after = t.TuningSlice.objects.filter(exploration=pk, created_at__gte=ended)
            first = after.order_by("created_at").first()
            seconds = first.seconds if first else seconds
        over = row.round > round_ or row.stage > stage or row.state in ("done", "unsupported")
        made.append(
            {
                "exploration": pk, "round": round_, "stage": stage, "op_type": row.operator.op_type,
                "worker": trials[-1].worker.split("/")[0], "seconds": seconds, "ended": ended, "over": over,
            }
        )  # fmt: skip
    return made


def paces_by_hand(stage: int, op_type: str) -> float:
    """The median of past stages of this kind, of any kind where there are fewer than three."""
    if stage == 2:
        found = [(one.exploration.operator.op_type, one.seconds) for one in t.TuningSlice.objects.all()]
    else:
        sums: dict[tuple[int, int, str], float] = defaultdict(float)
        for one in slices_by_hand():
            if one["stage"] == stage and one["over"]:
                sums[one["exploration"], one["round"], one["op_type"]] += one["seconds"]
        found = [(kind, seconds) for (_, _, kind), seconds in sums.items()]
    mine = [seconds for kind, seconds in found if kind == op_type]
    return median(mine if len(mine) >= 3 else [seconds for _, seconds in found])


def test_paces_are_medians_of_what_was_done(mess: Mess) -> None:
    pace = rates()
    for stage in t.Stage.values:
        for op_type in ("Conv", "MatMul", "Relu", "Add", "Loop"):
            assert pace.pace(stage, op_type).seconds == pytest.approx(paces_by_hand(stage, op_type))


def test_before_anything_ended_a_pace_is_assumed_and_says_so() -> None:
    pace = Rates([], []).pace(t.Stage.CONTEST, "Conv")
    assert (pace.seconds, pace.count) == (20.0, 0)
    assert "assumed" in str(pace)


@pytest.fixture
def paces(mess: Mess) -> dict[tuple[int, str], float]:
    return {(stage, kind): paces_by_hand(stage, kind) for stage in t.Stage.values for kind in OP_TYPES}


def held_by_hand(row: t.Exploration, stage: int, paces: dict[tuple[int, str], float]) -> float:
    """How long what a worker holds keeps it from work of this stage."""
    begun = row.steps_total and row.doing != "claimed"
    left = (1 - min(row.steps_done / row.steps_total, 1) if begun else 1) * paces[
        row.stage, row.operator.op_type
    ]
    if row.stage <= stage:
        return left
    return 0.0 if row.doing == "claimed" else min(left, {1: 10.0, 2: 15.0}[row.stage])


def level_by_hand(busy: list[float], work: float) -> float:
    """The level to which so much work fills them, by halving."""
    low, high = 0.0, max(busy) + work
    for _ in range(100):
        middle = (low + high) / 2
        filled = sum(max(0.0, middle - one) for one in busy)
        low, high = (middle, high) if filled < work else (low, middle)
    return max(high, min(busy))


def busy_by_hand(
    mess: Mess, rows: list[t.Exploration], target: int, stage: int, paces: dict[tuple[int, str], float]
) -> list[float]:
    """Of each live worker of a target."""
    names = ["w1@host", "w5@host"] if target == mess.targets[0].pk else ["w2@host"]
    return [
        sum(
            held_by_hand(row, stage, paces)
            for row in rows
            if row.state == "running" and row.target_id == target and row.lease_owner.split("/")[0] == name
        )
        for name in names
    ]


@pytest.fixture
def another_worker(mess: Mess) -> None:
    """A second one of the first target, which holds nothing."""
    t.Worker.objects.create(
        name="w5@host", host="host", pid=5, target=mess.targets[0],
        last_seen_at=mess.now + timedelta(minutes=10),
    )  # fmt: skip


def test_the_time_that_is_left(mess: Mess, another_worker: None, paces: dict[tuple[int, str], float]) -> None:
    figure("exploration_eta")
    pace = rates()
    rows = list(t.Exploration.objects.select_related("operator", "target"))
    checked = 0
    for row in rows:
        found = eta.eta(row, pace)
        if row.state not in ("queued", "running"):
            assert found is None
            continue
        kind = row.operator.op_type
        if row.stage == 2:
            left = max(row.max_tuning_slices - row.tuning_slices, 1)
            work = left * paces[2, kind]
        else:
            begun = row.state == "running" and row.steps_total and row.doing != "claimed"
            share = 1 - min(row.steps_done / row.steps_total, 1) if begun else 1
            work = share * paces[row.stage, kind]
            work += paces[1, kind] if row.stage == 0 else 0
        wait = 0.0
        if row.state == "queued":
            mine = (row.stage, row.priority, -row.worth)
            before = [
                paces[one.stage, one.operator.op_type]
                for one in rows
                if one.state == "queued"
                and one.target_id == row.target_id
                and (one.stage, one.priority, -one.worth) < mine
            ]
            wait = level_by_hand(busy_by_hand(mess, rows, row.target_id, row.stage, paces), sum(before))
        assert found is not None and found.seconds == pytest.approx(work + wait)
        assert found.wait_s == pytest.approx(wait)
        assert found.at_most == (row.stage == 2)
        checked += 1
    assert checked > 12


def test_what_an_operator_that_is_asked_for_now_waits(
    mess: Mess, viewer: Viewer, another_worker: None, paces: dict[tuple[int, str], float]
) -> None:
    figure("expected_wait")
    rows = explorations(viewer)
    wanted: list[float] = []
    lines = {
        line.capability: line for line in queues.capability_queues(WorkNow(viewer.shown(), mess.now), rates())
    }
    for target in mess.targets:
        ahead = sum(
            paces[0, row.operator.op_type]
            for row in rows
            if row.state == "queued" and row.stage == 0 and row.priority <= 2 and row.target_id == target.pk
        )
        wanted.append(level_by_hand(busy_by_hand(mess, rows, target.pk, 0, paces), ahead))
        assert lines[target.capability].wait_s == pytest.approx(wanted[-1])
    assert max(wanted) > 0
    t.Pause.objects.create(capability=mess.targets[0].capability)
    paused = {
        one.capability: one for one in queues.capability_queues(WorkNow(viewer.shown(), mess.now), rates())
    }
    assert paused[mess.targets[0].capability].wait_s is None


def test_when_a_worker_takes_up_the_next(
    mess: Mess, viewer: Viewer, paces: dict[tuple[int, str], float]
) -> None:
    figure("worker_wait")
    found = {
        row.worker.name: row for row in workers(fleet(), rates(), held_now(viewer.shown()), now=mess.now)
    }
    held = [row for row in explorations(viewer) if row.state == "running"]
    assert {row.lease_owner for row in held} == {"w1@host/7"}
    wanted = sum(held_by_hand(row, 0, paces) for row in held)
    assert wanted > 0 and found["w1@host"].free_in_s == pytest.approx(wanted)
    assert found["w2@host"].free_in_s == 0.0 and found["w3@host"].free_in_s is None
    t.Worker.objects.filter(name="w2@host").update(doing="upload 7")
    again = {
        row.worker.name: row for row in workers(fleet(), rates(), held_now(viewer.shown()), now=mess.now)
    }
    assert again["w2@host"].free_in_s is None, "what that takes nobody can say"


def test_how_first_results_came_against_when_they_were_expected(mess: Mess, viewer: Viewer) -> None:
    figure("first_result_foretold")
    for row in t.Exploration.objects.filter(first_result_at__isnull=False):
        if mess.random.random() < 0.8:
            row.first_result_at = mess.now - timedelta(hours=mess.random.uniform(0, 40))
            row.expected_first_at = row.first_result_at + timedelta(seconds=mess.random.uniform(-9, 20))
            row.save()
    found = {
        line.capability: line.foretold
        for line in queues.capability_queues(WorkNow(viewer.shown(), mess.now), rates())
    }
    for target in mess.targets:
        mine = [
            (row.asked_at, row.expected_first_at, row.first_result_at)
            for row in explorations(viewer)
            if row.target_id == target.pk
            and row.expected_first_at
            and row.first_result_at
            and timedelta(0) <= mess.now - row.first_result_at <= timedelta(days=1)
        ]
        line = found[target.capability]
        assert line is not None and line.count == len(mine) > 2
        assert line.expected_s == pytest.approx(
            median((expected - asked).total_seconds() for asked, expected, _ in mine)
        )
        assert line.came_s == pytest.approx(median((came - asked).total_seconds() for asked, _, came in mine))
        assert line.off_s == pytest.approx(
            median(abs((came - expected).total_seconds()) for _, expected, came in mine)
        )


def test_where_nobody_works_no_time_is_promised(mess: Mess) -> None:
    t.Worker.objects.all().delete()
    row = t.Exploration.objects.filter(state="queued").select_related("operator").first()
    assert row is not None
    found = eta.eta(row, rates())
    assert found is not None and found.seconds is None and "No live worker" in found.how


def test_the_time_to_drain(mess: Mess, viewer: Viewer) -> None:
    figure("time_to_drain")
    first, contest, tuning = (paces_by_hand(stage, "-") for stage in (0, 1, 2))
    for line in queues.capability_queues(WorkNow(viewer.shown(), mess.now), rates()):
        seconds = 0.0
        for row in explorations(viewer):
            if row.capability == line.capability and row.state == "queued":
                if row.stage == 2:
                    seconds += max(row.max_tuning_slices - row.tuning_slices, 1) * tuning
                else:
                    seconds += contest + (first if row.stage == 0 else 0)
        assert line.workers == 1
        assert line.drain_s == pytest.approx(seconds)


def test_what_a_worker_gets_done(mess: Mess) -> None:
    figure("worker_capacity", "worker_slices")
    by_hand = slices_by_hand()
    rows = {row.worker.name: row for row in workers(fleet(), rates(), held_now(), now=mess.now)}
    assert rows["w1@host"].state == "alive" and rows["w3@host"].state == "silent"
    for name, row in rows.items():
        mine = [one for one in by_hand if one["worker"] == name]
        if mine:
            assert row.per_hour == pytest.approx(3600 / mean(max(one["seconds"], 0.1) for one in mine))
        else:
            assert row.per_hour is None
        hour_ago = mess.now - timedelta(hours=1)
        assert row.ended_last_hour == sum(one["ended"] >= hour_ago for one in mine)
    held = {one.id for one in rows["w1@host"].holds}
    assert held == set(t.Exploration.objects.filter(state="running").values_list("pk", flat=True))


def test_an_explorations_own_figures(mess: Mess, viewer: Viewer) -> None:
    figure("exploration_worth", "exploration_spent", "time_to_first_result")
    by_id = {row.pk: row for row in explorations(viewer)}
    exported = explorations_table([], current_work.explorations(viewer.shown()), set(), {}).exported_rows()
    assert {row["id"] for row in exported} == set(by_id)
    for row in exported:
        raw = by_id[row["id"]]
        waited = raw.first_result_at and (raw.first_result_at - raw.asked_at).total_seconds()
        assert (row["worth_us"], row["spent_s"]) == (raw.worth, raw.spent_s)
        assert row["first_result_s"] == waited


def test_the_collect_queue_by_reason(mess: Mess, viewer: Viewer) -> None:
    figure("collect_depth")
    idle = ("waiting", "postponed", "discarded", "unsupported", "failed")
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for miss in seen(viewer, c.Miss.objects.all()):
        if miss.state in idle:
            counts[miss.state, miss.reason] += 1
    found = {(row.state, row.reason): row.count for row in collecting.reasons(viewer.shown())}
    assert found == dict(counts)
    for (state, reason), count in counts.items():
        listed = collecting.misses(viewer.shown(), state, reason or collecting.UNDECIDED)
        assert listed.count() == count


def test_what_a_miss_is_worth(mess: Mess, monkeypatch: pytest.MonkeyPatch) -> None:
    figure("miss_worth")
    from tuning.queue import promote

    monkeypatch.setattr(promote, "_gains", (-math.inf, {}))
    saved: dict[str, list[float]] = defaultdict(list)
    for best in c.Best.objects.filter(rank=0).select_related("operator"):
        saved[best.operator.op_type].append(max(0.0, 1 - 1 / best.ratio_to_default))
    for row in collecting.with_worth(list(collecting.misses(Q()))):
        miss, operator = row.miss, row.miss.operator
        time_us = max(operator.flops / FLOPS_PER_US, operator.bytes_moved / BYTES_PER_US) + CALL_US
        known = saved[operator.op_type]
        gain = max(0.02, mean(known)) if len(known) >= 3 else GAIN
        worth = miss.calls * time_us * gain * (RELATED_SHARE if miss.related else 1)
        assert row.worth_us == pytest.approx(worth)


def test_a_jobs_hit_rate_and_what_it_was_saved(mess: Mess) -> None:
    figure("job_saved", "job_speedup")
    month = TimeRange(mess.now - timedelta(days=10), mess.now)
    first_day = month.since.replace(hour=0, minute=0, second=0, microsecond=0)
    for row in jobs.rows(jobs.jobs(Q())):
        asked = list(c.JobOperator.objects.filter(job=row.job))
        hits, misses = sum(one.hits for one in asked), sum(one.misses for one in asked)
        assert (row.hits, row.misses, row.operators) == (hits, misses, len(asked))
        for range_, since in ((None, None), (month, first_day)):
            usage = [
                one for one in c.Usage.objects.filter(job=row.job) if not since or one.served_at >= since
            ]
            *by_method, total = jobs.saved(row.job, range_)
            for one in by_method:
                mine = [use for use in usage if use.method == one.method]
                assert one.hits == sum(use.lookups for use in mine)
                assert one.saved_us == pytest.approx(
                    sum(u.calls * (u.default_us - u.median_us) for u in mine)
                )
            default = sum(u.calls * u.default_us for u in usage)
            served = sum(u.calls * u.median_us for u in usage)
            assert total.hits == sum(use.lookups for use in usage)
            assert total.saved_us == pytest.approx(default - served)
            assert total.speedup == (pytest.approx(default / served) if served else None)
        for slot in jobs.over_time(row.job, month):
            day = [u for u in c.Usage.objects.filter(job=row.job) if u.served_at.date() == slot.start.date()]
            assert slot.all_hits == len(day)
            assert slot.saved_us == pytest.approx(sum(u.calls * (u.default_us - u.median_us) for u in day))


def test_who_answered_a_jobs_lookups_and_what_was_fetched_for_later(mess: Mess) -> None:
    figure("job_hit_rate", "job_cached", "prefetched_used", "prefetched_wasted", "requests_saved")
    before = {row.job.pk: row for row in jobs.rows(jobs.jobs(Q()))}
    job, chance = mess.jobs[0], mess.random
    shown = c.Implementation.objects.filter(scope="shared").values_list("pk", flat=True)[:3]
    missed = [*c.Operator.objects.values_list("key", flat=True)[:4], "o1:" + "f" * 64]
    told = [name for name in jobs.CACHE_COUNTS if not name.endswith(("_hits", "_counted"))]
    reports = [
        CacheReport(
            f"{number % 2:032x}", number // 2, dict.fromkeys(shown, 5.0),
            {pk: chance.randint(1, 900) for pk in shown}, chance.randint(0, 90),
            {name: chance.randint(0, 50) for name in told},
            missed={key: chance.randint(1, 9) for key in missed},
        )
        for number in range(6)
    ]  # fmt: skip
    for report in (*reports, *reports):
        record_report(job.organisation, job.name, report)
    row = next(one for one in jobs.rows(jobs.jobs(Q())) if one.job == job)
    cached = sum(sum(one.lookups.values()) for one in reports)
    said = {name: sum(one.others.get(name, 0) for one in reports) for name in jobs.CACHE_COUNTS}
    said["unasked_misses"] = sum(
        max(one.others["unasked_misses"], sum(one.missed.values())) for one in reports
    )
    old = before[job.pk]
    assert (row.hits, row.misses) == (old.hits + cached, old.misses + said["unasked_misses"])
    assert row.hit_rate == row.hits / (row.hits + row.misses)
    assert row.machine_hits == sum(one.machine_hits for one in reports)
    assert (row.cached_hits, row.service_hits) == (cached, old.hits)
    assert row.cached_share == cached / (row.hits + row.misses)
    found = row.prefetched
    assert found.used_share == said["prefetched_used"] / said["prefetched"]
    assert found.wasted_bytes == max(said["prefetched_bytes"] - said["prefetched_used_bytes"], 0)
    assert found.requests_saved == said["prefetched_used"] - said["prefetch_requests"]
    today = jobs.over_time(job, TimeRange(mess.now - timedelta(days=1), mess.now + timedelta(hours=1)))
    assert sum(slot.cached_hits for slot in today) == cached
    assert all(one == before[one.job.pk] for one in jobs.rows(jobs.jobs(Q())) if one.job != job)


def test_a_jobs_coverage(mess: Mess) -> None:
    figure("coverage_operators", "coverage_calls")
    partly = 0
    for job in mess.jobs:
        served = c.Usage.objects.filter(job=job, implementation__isnull=False)
        places = {(u.implementation.target_id, u.implementation.setting_id) for u in served}
        scopes = {"shared", f"org:{job.organisation_id}"}
        known = {
            best.operator_id
            for best in c.Best.objects.filter(rank=0)
            if best.scope in scopes and (not places or (best.target_id, best.setting_id) in places)
        }
        asked = {one.operator_id: one for one in c.JobOperator.objects.filter(job=job)}
        calls = {pk: one.hit_calls + one.miss_calls for pk, one in asked.items()}
        for pk, one in asked.items():
            assert one.hit_calls == sum(u.calls for u in c.Usage.objects.filter(job=job, operator=pk))
        found = jobs.coverage(job, {})
        covered = [pk for pk in asked if pk in known]
        assert (found.operators, found.covered) == (len(asked), len(covered))
        assert found.by_calls == pytest.approx(sum(calls[pk] for pk in covered) / sum(calls.values()))
        assert sum(one.operators for one in found.missing) == len(asked) - len(covered)
        assert sum(one.calls for one in found.missing) == pytest.approx(
            sum(calls[pk] for pk in asked if pk not in known)
        )
        states = {row.operator.pk: row.state for row in jobs.operator_rows(job, {}, jobs.asked_for(job))}
        assert {pk for pk, state in states.items() if state == "hit"} == set(covered)
        partly += 0 < len(covered) < len(asked)
    assert partly


def test_more_uncovered_operators_than_are_looked_at_one_by_one(
    mess: Mess, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = jobs.coverage(mess.jobs[0], {})
    monkeypatch.setattr(jobs, "MOST_UNCOVERED", 2)
    after = jobs.coverage(mess.jobs[0], {})
    assert after.missing[-1].reason == "further operators"
    for count in ("operators", "calls"):
        sums = [sum(getattr(one, count) for one in each.missing) for each in (before, after)]
        assert sums[0] == pytest.approx(sums[1])


def test_a_models_figures(mess: Mess) -> None:
    figure("model_saved", "model_speedup", "coverage_operators", "coverage_calls")
    model = mess.model
    scopes = {"shared", f"org:{model.organisation_id}"}
    bests = {
        best.operator_id: best
        for best in c.Best.objects.filter(rank=0, target=model.target, setting=model.setting)
        if best.scope in scopes
    }
    parts = list(c.ModelOperator.objects.filter(model=model))
    known = [(part, bests[part.operator_id]) for part in parts if part.operator_id in bests]
    assert known and len(known) < len(parts)
    report = ingest.model_report(model)
    coverage = model_figures.coverage(report)
    all_calls = sum(part.calls for part in parts) + 7
    assert coverage.by_operators == pytest.approx(len(known) / len(parts))
    assert coverage.by_calls == pytest.approx(sum(part.calls for part, _ in known) / all_calls)
    assert sum(one.calls for one in coverage.missing) == all_calls - sum(part.calls for part, _ in known)
    saved = sum(part.calls * (best.default_us - best.median_us) for part, best in known)
    assert model_figures.saved_us(report) == pytest.approx(saved)
    weights = [part.calls * best.default_us for part, best in known]
    logs = [math.log(best.ratio_to_default) for _, best in known]
    weighted = sum(weight * log for weight, log in zip(weights, logs, strict=True)) / sum(weights)
    assert report.totals.speedup_weighted == pytest.approx(math.exp(weighted))
    best_us = sum(part.calls * best.median_us for part, best in known)
    assert report.totals.speedup == pytest.approx(sum(weights) / best_us)


def test_every_figure_of_the_part_was_counted_again() -> None:
    said = re.findall(r"^    figure\(([^)]*)\)", Path(__file__).read_text(), re.M)
    assert {one.name for one in WORK} == {name for names in said for name in re.findall(r'"(\w+)"', names)}
    assert conf().served_s > 1  # live workers of the rows count as live


def test_a_devices_clocks_are_what_it_said_last(mess: Mess) -> None:
    from dashboard.pages.work.workers import workers_table
    from dashboard.web.requests import ViewerRequest

    figure("device_clocks")
    said = {"sm_mhz": 1755, "memory_mhz": 2619, "temperature_c": 54, "slowed": ["power cap", "idle"]}
    of_a_gpu = t.Worker.objects.get(name="w1@host")
    of_a_gpu.device, of_a_gpu.device_memory_bytes = "cuda:0", 80 << 30
    of_a_gpu.device_state = {**said, "used_bytes": 3 << 30}
    of_a_gpu.save()
    exported = {
        row["name"]: row
        for row in workers_table(workers(fleet(), now=mess.now), ViewerRequest()).exported_rows()
    }
    shown = exported["w1@host"]
    assert shown["clocks"] == "1755 MHz, 54 °C; power cap; idle"
    assert (shown["sm_mhz"], shown["device_used_bytes"], shown["device_memory_bytes"]) == (
        1755,
        3 << 30,
        80 << 30,
    )
    assert exported["w3@host"]["device"] == exported["w3@host"]["clocks"] == ""
