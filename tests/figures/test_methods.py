"""The figures of methods and comparisons, counted again in plain Python from raw rows."""

from __future__ import annotations

import hashlib
import math
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog import models as c
from catalog.figures.methods import METHODS
from catalog.registry import register_operators
from catalog.rollups.rollups import rebuild_rollups
from catalog.selectors import detail
from catalog.sizes import BOUNDS_BYTES
from catalog.timerange import TimeRange
from catalog.viewing import NOBODY, Viewer
from opatlas.identity.parse import parse_operator
from tests.figures.traffic_rows import NOW, messy_traffic
from tuning import models as t
from tuning.explore.slice_history import _threads
from tuning.explore.worth import DoneSlice, Estimator, SliceTraits, family_of_slice, room_of
from tuning.failures.reasons import reason_of
from tuning.measure.timing.stats import timing
from tuning.statistics import benefit, efforts, environments, limits, methods, sides
from tuning.statistics.methods import At, Fares

pytestmark = pytest.mark.django_db

HOST = Viewer(everywhere=frozenset())
SPAN = TimeRange(NOW - timedelta(days=9), NOW)
ENDS = ("ok", "ok", "ok", "slower", "crashed", "unsupported")


def figure(*names: str) -> None:
    """Says of which figures a test is."""
    assert {one.name for one in METHODS} >= set(names)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messy traffic, the same bests in a second place, and messy trials; only the latest six explorations
    count."""
    messy_traffic()
    chance = random.Random(11)
    _second_place(chance)
    _trials(chance)
    monkeypatch.setattr(efforts, "LATEST", 6)
    rebuild_rollups()
    efforts.refresh_efforts()


def _second_place(chance: random.Random) -> None:
    old = c.Setting.objects.get()
    other = c.Setting.objects.create(
        key="s1:" + "b" * 64, threads=1, cache="cold", description={"threads": 1}
    )
    for best in c.Best.objects.filter(setting=old, rank__lt=2).select_related(
        "implementation", "measurement"
    ):
        made, measured = best.implementation, best.measurement
        made.pk, made.setting = None, other
        made.save()
        measured.pk, measured.implementation = None, made
        measured.save()
        best.pk, best.setting, best.implementation, best.measurement = None, other, made, measured
        best.ratio_to_default *= chance.uniform(0.9, 1.1) if best.rank else 1.2
        best.save()


def _trials(chance: random.Random) -> None:
    target, environment = c.Target.objects.get(), c.Environment.objects.get()
    settings, operators = list(c.Setting.objects.all()), list(c.Operator.objects.all())
    routes = (("eager", "library"), ("onednn", "library"), ("tvm", "compiler"), ("halide", "compiler"))
    for number, operator in enumerate(operators):
        private, asked_at = number % 5 == 3, NOW - timedelta(hours=number)
        row = t.Exploration.objects.create(
            operator=operator, target=target, setting=settings[number % 2], capability="cpu.zen3",
            scope="org:1" if private else "shared", state="done" if number % 3 else "queued",
            asked_at=asked_at,
            first_result_at=None if number == 7 else asked_at, finished_at=asked_at if number % 3 else None,
        )  # fmt: skip
        for _ in range(chance.randrange(0, 14)):
            route, method = chance.choice(routes)
            status = chance.choice(ENDS)
            trial = t.Trial.objects.create(
                exploration=row, route=route, method=method, stage=1, round=chance.choice([0, 0, 0, 1]),
                status=status, took_s=chance.uniform(0.1, 9), environment=environment,
                ratio_to_default=chance.uniform(0.5, 2) if status == "ok" else None,
                build_s=chance.choice([None, chance.uniform(0.1, 4)]),
                detail="" if status == "ok" else f"{status} after {chance.random():.2f} s in /tmp/x/{number}",
            )  # fmt: skip
            t.Trial.objects.filter(pk=trial.pk).update(
                created_at=asked_at + timedelta(seconds=chance.uniform(1, 900))
            )


def spots() -> list[At]:
    target = c.Target.objects.get()
    return [At(), *(At(target, setting) for setting in c.Setting.objects.all())]


def bests_at(at: At) -> list[c.Best]:
    found = c.Best.objects.filter(scope="shared").select_related("operator")
    return [one for one in found if not at.setting or one.setting_id == at.setting.pk]


def runner_up(best: c.Best, among: Iterable[c.Best]) -> c.Best | None:
    place = (best.operator_id, best.target_id, best.setting_id)
    return next(
        (one for one in among if (one.operator_id, one.target_id, one.setting_id) == place and one.rank == 1),
        None,
    )


def geometric(ratios: list[float]) -> float | None:
    return pytest.approx(math.exp(sum(map(math.log, ratios)) / len(ratios))) if ratios else None


def same_wins(fares: Fares, mine: list[c.Best], every: list[c.Best]) -> None:
    won = [one for one in mine if one.rank == 0]
    assert fares.won == len(won)
    found = {(one.operator_id, one.target_id, one.setting_id) for one in mine}
    assert fares.found == len(found)
    assert fares.win_rate == (pytest.approx(len(won) / len(found)) if found else None)
    seconds = [(one, other) for one in won if (other := runner_up(one, every))]
    assert fares.margin == geometric(
        [one.ratio_to_default / other.ratio_to_default for one, other in seconds]
    )
    assert fares.speedup == geometric([one.ratio_to_default for one in won])


def test_found_won_margins_and_speedups(rows: None) -> None:
    figure("operators_found", "operators_won", "win_rate", "win_margin", "win_speedup")
    for at in spots():
        every = bests_at(at)
        routes = methods.routes(at, HOST, SPAN)
        for one in routes:
            same_wins(one, [best for best in every if best.route == one.route], every)
        assert {best.route for best in every} <= {one.route for one in routes}
        for one in methods.by_method(routes, at):
            same_wins(one, [best for best in every if best.method == one.method], every)


def test_hits_calls_and_time_saved(rows: None) -> None:
    figure("route_hits", "route_calls", "route_saved")
    first = SPAN.since.replace(hour=0, minute=0, second=0, microsecond=0)
    north = c.Organisation.objects.get(name="north")
    seen = 0
    for viewer, mine in ((HOST, None), (Viewer(roles={north.pk: frozenset()}, focus=north.pk), north.pk)):
        served = [
            one
            for one in c.Usage.objects.all()
            if first <= one.served_at < SPAN.until and mine in (None, one.organisation_id)
        ]
        for fares in methods.routes(At(), viewer, SPAN):
            own = [one for one in served if one.route == fares.route]
            assert fares.hits == sum(one.lookups for one in own)
            assert fares.calls == pytest.approx(sum(one.calls for one in own))
            assert fares.saved_us == pytest.approx(
                sum(one.calls * (one.default_us - one.median_us) for one in own)
            )
            seen += fares.hits
    assert seen > 50
    assert not any(one.hits for one in methods.routes(At(), NOBODY, SPAN))


def test_where_each_wins(rows: None) -> None:
    figure("where_it_wins")
    for at in spots():
        for by in ("method", "route"):
            wins: dict[tuple[str, int], list[c.Best]] = defaultdict(list)
            for best in bests_at(at):
                if best.rank == 0:
                    size = sum(best.operator.bytes_moved >= bound for bound in BOUNDS_BYTES)
                    wins[best.operator.op_type, size].append(best)
            cells = methods.cells(at, by)
            assert {(cell.op_type, cell.size_class) for cell in cells} == set(wins)
            for cell in cells:
                mine = wins[cell.op_type, cell.size_class]
                names = [getattr(best, by) for best in mine]
                most = max(names.count(name) for name in names)
                assert cell.operators == len(mine)
                assert cell.share == pytest.approx(most / len(mine))
                assert names.count(cell.leader[0]) == most
                assert cell.speedup == geometric([best.ratio_to_default for best in mine])


def tried_at(at: At) -> list[t.Trial]:
    """Trials of the six latest explorations there that came to something."""
    chosen = [
        row
        for row in t.Exploration.objects.order_by("-pk")
        if row.scope == "shared"
        and (row.first_result_at or row.finished_at)
        and (not at.setting or row.setting_id == at.setting.pk)
    ][:6]
    return [one for one in t.Trial.objects.select_related("exploration") if one.exploration in chosen]


def after_s(trial: t.Trial) -> float:
    return (trial.created_at - trial.exploration.asked_at).total_seconds()


def median(values: Iterable[float]) -> float | None:
    known = list(values)
    return pytest.approx(statistics.median(known)) if known else None


def same_times(fares: Fares, mine: list[t.Trial]) -> None:
    by_exploration: dict[int, list[t.Trial]] = defaultdict(list)
    for one in mine:
        by_exploration[one.exploration_id].append(one)
    well = [[one for one in of if one.status == "ok" and one.round == 0] for of in by_exploration.values()]
    well = [of for of in well if of]
    assert fares.first_result_s == median(min(map(after_s, of)) for of in well)
    assert fares.best_s == median(after_s(max(of, key=lambda one: one.ratio_to_default or 0)) for of in well)
    assert fares.effort_s == median(sum(one.took_s for one in of) for of in by_exploration.values())
    assert fares.build_s == median(one.build_s for one in mine if one.build_s is not None)
    assert (fares.trials, fares.explorations) == (len(mine), len(by_exploration))
    verified = [one for one in mine if one.status == "ok"]
    assert fares.success_rate == (pytest.approx(len(verified) / len(mine)) if mine else None)


def test_how_fast_they_find(rows: None) -> None:
    figure("route_first_result", "route_best_result", "route_effort", "route_build", "verified_trials")
    seen = 0
    for at in spots():
        tried = tried_at(at)
        routes = methods.routes(at, HOST, SPAN)
        for one in routes:
            same_times(one, [trial for trial in tried if trial.route == one.route])
            seen += one.trials
        for one in methods.by_method(routes, at):
            same_times(one, [trial for trial in tried if trial.method == one.method])
    assert seen > 60


def test_failures_by_reason(rows: None) -> None:
    figure("failure_reasons")
    for at in spots():
        counted: dict[tuple[str, str, str], int] = defaultdict(int)
        for one in tried_at(at):
            if one.status != "ok":
                counted[one.route, one.status, reason_of(one.detail)] += 1
        found = {(one.route, one.status, one.reason): one.count for one in methods.failures(at)}
        assert found == counted
        assert all("#" in reason and "/tmp" not in reason for _, _, reason in counted)


def test_known_limits_of_compilers(rows: None) -> None:
    """Of what was asked for, an odd convolution for TVM, a TopK, and a graph that nobody can read."""
    figure("known_limits")
    odd = {"op": "Conv", "inputs": [{"dtype": "float32", "shape": s} for s in ([1, 8, 9, 9], [6, 8, 3, 3])]}
    largest = {
        "op": "TopK",
        "inputs": [
            {"dtype": "float32", "shape": [4, 9]},
            {"dtype": "int64", "shape": [1], "const": True, "data": [3]},
        ],
    }
    tenant = c.OperatorTotal.objects.exclude(tenant=c.EVERYBODY).values_list("tenant", flat=True).first()
    assert tenant
    c.OperatorTotal.objects.all().delete()
    made = {name: register(document) for name, document in (("odd", odd), ("largest", largest))}
    for name, calls in (("odd", 30.0), ("largest", 10.0)):
        for who in (c.EVERYBODY, tenant)[: 2 - (name == "largest")]:
            c.OperatorTotal.objects.create(operator=made[name], tenant=who, calls=calls, last_at=NOW)
    unread = c.Operator.objects.create(key="o1:" + "0" * 64, graph={"odd": 1}, op_type="Conv")
    c.OperatorTotal.objects.create(operator=unread, tenant=c.EVERYBODY, calls=9.0, last_at=NOW)
    limits.refresh_limits()

    def said(viewer: Viewer, route: str) -> dict[str, tuple[int, float, bool]]:
        found = limits.known_limits(viewer, route)
        return {one.sentence: (one.operators, one.share_of_calls, one.refused) for one in found.rows}

    assert limits.known_limits(HOST).operators == 2
    [(together, never), (channels, counted), (top, refused)] = sorted(said(HOST, "tvm").items())
    assert "batch normalisation" in together and never == (0, 0.0, False)
    assert "einsum" in channels and counted == (1, 0.75, False)
    assert "TopK" in top and refused == (1, 0.25, True)
    assert [row[:2] for row in said(HOST, "xla").values()] == [(2, 1.0)]
    theirs = said(Viewer(focus=int(tenant.removeprefix("org:"))), "tvm")
    assert sorted(theirs.values()) == [(0, 0.0, False), (1, 1.0, False)]
    assert said(NOBODY, "tvm") == {}


def register(document: dict[str, Any]) -> c.Operator:
    operator = parse_operator(document)
    return register_operators({operator.key: operator})[operator.key]


def test_comparisons_and_their_confidence(rows: None) -> None:
    figure("comparison", "comparison_confidence")
    compared = 0
    for operator in c.Operator.objects.all():
        known = detail.ShownOperator(operator, HOST.shown())
        for place in known.places:
            made = [one for one in known.implementations(place) if one.measurement]
            for pair in sides.side_by_side(made).pairs:
                a, b = (
                    c.Measurement.objects.get(pk=one.measurement.pk)
                    for one in (pair.first, pair.second)
                    if one.measurement
                )
                d = math.log(a.ratio_to_default / b.ratio_to_default)
                down = math.hypot(
                    math.log(a.ratio_to_default / a.ratio_low), math.log(b.ratio_high / b.ratio_to_default)
                )
                up = math.hypot(
                    math.log(a.ratio_high / a.ratio_to_default), math.log(b.ratio_to_default / b.ratio_low)
                )
                said = pair.comparison
                assert (said.factor, said.low, said.high) == pytest.approx(
                    (math.exp(d), math.exp(d - down), math.exp(d + up))
                )
                half = down if d > 0 else up
                assert said.confidence == pytest.approx(
                    min(0.999, math.erf(1.959964 * abs(d) / half / 2**0.5))
                )
                if said.verdict in ("faster", "slower"):
                    assert (
                        said.confidence >= 0.95 and not said.low <= 1 <= said.high and abs(d) > math.log(1.02)
                    )
                compared += 1
    assert compared > 5


def test_over_the_default_is_the_median_of_pairs(rows: None) -> None:
    figure("operator_speedup", "operator_time", "default_time")
    chance = random.Random(5)
    default_us = [chance.uniform(90, 130) for _ in range(41)]
    candidate_us = [value / chance.uniform(1.4, 1.7) for value in default_us]
    found = timing(default_us, candidate_us)
    row = c.Best.objects.filter(scope="shared", rank=0).select_related("implementation", "operator")[0]
    names = ("median_us", "spread_us", "default_us", "ratio_to_default", "ratio_low", "ratio_high")
    times: dict[str, Any] = {name: getattr(found, name) for name in names}
    m = c.Measurement.objects.create(
        implementation=row.implementation, tier="T2", samples_us=list(found.samples_us), **times
    )
    c.Best.objects.filter(pk=row.pk).update(measurement=m, **times)
    place = detail.Place(row.target, row.setting)
    shown = detail.ShownOperator(row.operator, HOST.shown()).implementations(place)
    one = next(made for made in shown if made.implementation.pk == row.implementation_id)
    assert one.measurement is not None
    assert one.measurement.ratio_to_default == pytest.approx(
        statistics.median(d / m for d, m in zip(default_us, candidate_us, strict=True))
    )
    assert one.samples == 41
    low, middle, high = statistics.quantiles(candidate_us, n=4, method="inclusive")
    assert one.measurement.median_us == pytest.approx(middle)
    assert one.measurement.spread_us == pytest.approx((high - low) / 2)
    assert one.measurement.default_us == pytest.approx(statistics.median(default_us))


def test_a_target_is_compared_with_the_one_where_it_is_fastest(rows: None) -> None:
    figure("times_the_fastest")
    compared = 0
    for operator in c.Operator.objects.all():
        there: dict[tuple[int, int], float] = {}
        for best in c.Best.objects.filter(HOST.shown(), operator=operator, rank=0):
            place = (best.target_id, best.setting_id)
            there[place] = min(best.median_us, there.get(place, math.inf))
        bests = detail.ShownOperator(operator, HOST.shown()).bests
        found = {(row.place.target.pk, row.place.setting.pk): row for row in bests}
        assert found.keys() == there.keys()
        for place, median_us in there.items():
            assert found[place].times_the_fastest == pytest.approx(median_us / min(there.values()))
            compared += len(there) > 1
    assert compared


def test_the_work_of_one_run() -> None:
    figure("operator_work")
    inputs = [{"shape": shape, "dtype": "float32"} for shape in ([3, 40], [40, 7])]
    operator = parse_operator({"op": "MatMul", "inputs": inputs})
    row = register_operators({operator.key: operator})[operator.key]
    assert row.flops == 2 * 3 * 40 * 7
    assert row.bytes_moved == 4 * (3 * 40 + 40 * 7 + 3 * 7)


def test_calls_a_day(rows: None) -> None:
    figure("call_rate")
    now = timezone.now()
    c.LookupTally.objects.all().delete()
    organisations = list(c.Organisation.objects.all())
    operator = c.Operator.objects.all()[1]
    for days, organisation in ((0.1, 0), (2.5, 1), (6.2, 0), (9, 0)):
        c.LookupTally.objects.create(
            hour=now - timedelta(days=days), operator=operator, organisation=organisations[organisation],
            hit_calls=100 * days, miss_calls=7,
        )  # fmt: skip
    expected = sum(100 * days + 7 for days in (0.1, 2.5, 6.2)) / 6.2
    assert benefit.calls_per_day(operator, HOST) == pytest.approx(expected, rel=1e-4)
    south = Viewer(roles={organisations[1].pk: frozenset()}, focus=organisations[1].pk)
    assert benefit.calls_per_day(operator, south) == pytest.approx((100 * 2.5 + 7) / 2.5, rel=1e-4)
    assert benefit.calls_per_day(c.Operator.objects.all()[0], HOST) == 0
    assert benefit.calls_per_day(operator, NOBODY) == 0


def test_what_the_next_slice_would_bring(rows: None) -> None:
    figure("next_gain", "next_payback")
    benefit.forget()
    chance = random.Random(2)
    explorations = list(t.Exploration.objects.select_related("operator", "setting"))
    row = explorations[0]
    t.Trial.objects.create(exploration=row, route="tvm", method="compiler", stage=1, status="ok")
    for number in range(30):
        one = explorations[number % 4]
        t.TuningSlice.objects.create(
            exploration=one, route="tvm", family=family_of_slice(one.operator.op_type, 50.0),
            expected_gain=0.1, gained=chance.uniform(0, 0.2), before_us=50.0, after_us=45.0,
            seconds=chance.uniform(5, 20),
        )  # fmt: skip
    history, counted = [], defaultdict(int)
    for one in t.TuningSlice.objects.order_by("pk"):
        o = one.exploration.operator
        room = room_of(50.0, o.flops, o.bytes_moved, _threads(one.exploration.setting.description))
        about = SliceTraits(
            one.exploration_id, "tvm", o.op_type, one.family, counted[one.exploration_id], room
        )
        history.append(DoneSlice(about, one.gained))
        counted[one.exploration_id] += 1
    o = row.operator
    room = room_of(40.0, o.flops, o.bytes_moved, _threads(row.setting.description))
    next_one = SliceTraits(row.pk, "tvm", o.op_type, family_of_slice(o.op_type, 40.0), counted[row.pk], room)
    gain = Estimator(history).expect(next_one).gain
    done, endings = list(row.slices.all()), list(benefit.endings_of(row))
    found = benefit.benefit(row, 40.0, 2e6, done, endings)
    assert found is not None and found.gain == pytest.approx(gain)
    seconds = statistics.median(one.seconds for one in t.TuningSlice.objects.all())
    assert found.payback_days == pytest.approx(seconds / (2e6 * 40e-6 * gain))
    left = math.prod(1 - one.gained for one in t.TuningSlice.objects.filter(exploration=row))
    assert found.gained == pytest.approx(1 - left)
    assert getattr(benefit.benefit(row, 40.0, 0, done, endings), "payback_days", 1) is None
    benefit.forget()


def test_changes_between_environments(rows: None) -> None:
    figure("environment_change", "environment_mean")
    chance = random.Random(9)
    a = c.Environment.objects.get()
    b = c.Environment.objects.create(digest=hashlib.sha256(b"b").hexdigest(), versions={"x": "2"})
    for old in list(c.Implementation.objects.all()):
        if chance.random() < 0.7:
            m = old.measurements.order_by("-pk").first()
            old.pk, old.environment = None, b
            old.save()
            for change in (5.0, chance.uniform(0.9, 1.1)):  # only the newest counts
                if m is not None:
                    m.pk, m.implementation, m.ratio_to_default = None, old, m.ratio_to_default * change
                    m.ratio_low, m.ratio_high = m.ratio_to_default * 0.99, m.ratio_to_default * 1.01
                    m.save()
    seen = Viewer(roles={999: frozenset()}, focus=999).shown()
    expected = []
    for new in c.Implementation.objects.filter(environment=b, scope="shared"):
        same = ("operator", "setting", "scope", "route", "candidate_sha256")
        old = c.Implementation.objects.get(environment=a, **{name: getattr(new, name) for name in same})
        before, after = (one.measurements.order_by("-pk").first() for one in (old, new))
        if before and after:
            expected.append(after.ratio_to_default / before.ratio_to_default)
    found = environments.compare_environments(c.Target.objects.get(), a, b, seen)
    assert sorted(pair.change.factor for pair in found.pairs) == pytest.approx(sorted(expected))
    assert found.change == geometric(expected)
    assert found.counts.total() == len(expected) > 10
    order = [pair.verdict for pair in found.pairs]
    assert order == sorted(order, key=["worse", "better", "same"].index)


def test_every_figure_is_counted_again() -> None:
    said = re.findall(r"^    figure\(([^)]*)\)", Path(__file__).read_text(), re.M)
    tested = {name for names in said for name in re.findall(r'"(\w+)"', names)}
    assert {one.name for one in METHODS} == tested
