"""A model's plan on its page: drawn, with reasons, within bounds."""

from __future__ import annotations

import html
import json
import random
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog import models as c
from catalog.best.publishing import publish
from catalog.registry import register_operator, register_target
from dashboard.pages.jobs import plans
from dashboard.web import wording
from dashboard.web.charts import plan_edges
from dashboard.web.charts.plan import THINNEST, DrawnStep, drawn
from dashboard.web.charts.plan_edges import PlanEdge
from dashboard.web.charts.timeline import MOST_PX
from dashboard.web.charts.timeline import drawn as drawn_run
from opatlas.graph.normal import ModelGraph
from opatlas.identity import Setting
from opatlas.streams.timeline import Timeline, TimelineBox, TimelineWait
from tests.catalog.making import new_result
from tests.dashboard.factory import Factory
from tests.dashboard.pages.test_work_pages import text_of
from tests.tuning import fakes
from tests.tuning.graph.layout.test_model import AT, DATA, GRAPH
from tests.tuning.test_layouts import form, pictures
from tuning import ingest, planning, timelines

EVERY_PASS = "kernels,fusion,layout"


def _plan_of(pages: Client, model: c.Model, passes: str = "") -> str:
    page = text_of(pages, f"/models/{model.pk}/" + (f"?passes={passes}" if passes else ""))
    after = 'id="run"' if 'id="run"' in page else 'id="coverage-title"'
    return page[page.index('id="plan"') : page.index(after)]


def _made(model: c.Model) -> planning.MadePlan:
    structure = planning.structure_of_model(model)
    return planning.make_plan(structure, model.target, model.setting, model.organisation)


def test_a_plan_is_drawn_with_the_reason_of_each_choice(pages: Client, catalogue: Factory) -> None:
    model = c.Model.objects.get(name="bert-base")
    made = _made(model)
    said = _plan_of(pages, model)
    assert made.plan.kernels and made.misses and made.predicted_us < made.default_us
    rows = re.findall(r'<svg class="plan-row".*?</svg></svg>', said, re.S)
    assert len(rows) == 2 and "compiler" in rows[1] and "compiler" not in rows[0]
    for row, us in zip(rows, (made.default_us, made.predicted_us), strict=True):
        width = sum(map(float, re.findall(r'width="([\d.]+)%" height="30" data', row)))
        assert width == pytest.approx(100 * us / made.default_us, abs=0.5)
    assert "Faster than the default alone." in said and "asked for, and not explored yet" in said
    assert "not measured yet" in said and "left to ONNX Runtime" in said
    assert "opatlas run model.onnx" in said and f'{{"model": {model.pk}}}' in said.replace("&quot;", '"')
    exported = pages.get(f"/models/{model.pk}/?export=json&table=plan").json()["rows"]
    by = {one["operator"]: one["by"] for one in exported}
    assert by == {one.operator: one.by for one in made.choices}


@pytest.fixture
def laid(organisation: c.Organisation) -> c.Model:
    """Conv → Relu → Conv: 100, 50 and 100 µs in row-major, and nothing known of it channels-last."""
    place = {"organisation": organisation, "target": register_target(fakes.TARGET)}
    model = ingest.add_model(pictures(), "pictures", setting=Setting(threads=2), **place)
    graph = ModelGraph(pictures())
    for node, ratio in ((0, 1.0), (1, 1.0), (1, 2.0)):
        found = graph.operator(node)
        assert found is not None
        _publish(model, found[0].operator, ratio)
    plans._made.cache_clear()  # of another test's model
    return model


def _publish(model: c.Model, operator: Any, ratio: float, route: str = "tvm") -> None:
    """A compiler's kernel, or a library's call; the default where it is not faster than that, 100 µs."""
    place = {"operator": register_operator(operator), "target": model.target, "setting": model.setting}
    route = route if ratio > 1 else "eager"
    kernel = {"kind": "c-abi", "method": "compiler", "needs": {}} if route == "tvm" else {}
    publish(new_result(place, route, ratio, **kernel))


@pytest.mark.parametrize(("route", "by"), [("tvm", "compiler"), ("onnxruntime", "default")])
def test_layouts_and_reorders_are_drawn_with_what_each_pass_gains(
    pages: Client, laid: c.Model, route: str, by: str
) -> None:
    """Also within a region that is left to ONNX Runtime."""
    _publish(laid, form(0), 4.0, route)
    _publish(laid, form(1), 2.0)
    said = _plan_of(pages, laid, "kernels,layout")
    before, after = re.findall(r'<svg class="plan-row".*?</svg></svg>', said, re.S)
    boxes = re.findall(
        r'width="([\d.]+)%" height="30" data-method="(\w+)"><title>(.*?): [\d.]+ µs</title>(.*?)</svg>', after
    )
    assert [(mark, "turned" in rest) for _, mark, _, rest in boxes] == [
        ("reorder", False), (by, True), ("compiler", True), (by, True), ("reorder", False),
    ]  # fmt: skip
    assert [one[2] for one in (boxes[0], boxes[4])] == [
        "Reorder, row-major to channels-last, left to ONNX Runtime",
        "Reorder, channels-last to row-major, left to ONNX Runtime",
    ]
    assert "reorder" not in before and "turned" not in before and before.count("<rect") == 3
    # Beneath, which edges lie channels-last, and on which a reorder lies.
    assert re.findall(r'data-edge="(\w+)"><title>(.*?)</title>', html.unescape(said)) == [
        ("reorder", "from outside → Reorder, row-major"), ("reorder", "Reorder → Conv, channels-last"),
        ("turned", "Conv → Relu, channels-last"), ("turned", "Relu → Conv, channels-last"),
        ("reorder", "Conv → Reorder, channels-last"),
    ]  # fmt: skip
    assert "Between the steps: 2 edges channels-last, 3 from or to reorders" in said
    reorder_us = 2 + 2 * 4 * 8 * 14 * 14 / 2_000  # 12.5 kB read and written, which nobody has timed
    widths = [float(one[0]) for one in boxes]
    assert widths == pytest.approx([us / 3 for us in (reorder_us, 25, 50, 25, reorder_us)], abs=0.01)
    assert "</span>Reorder <strong>" in said and "of these channels-last <strong>100 µs" in said
    predicted = wording.duration_us(100 + 2 * reorder_us)
    assert "300 µs → 250 µs; single operators" in said
    assert f"250 µs → {predicted}; channels-last, reorders counted" in said
    assert f"Nobody has measured {wording.duration_us(2 * reorder_us)} of the predicted time" in said
    rows = re.findall(r"<tr.*?</tr>", said, re.S)
    [unseen] = [one for one in rows if "Transpose float32 1×8×14×14 → 1×14×14×8" in one]
    assert "Brings values" in unseen and "<a " not in unseen and "o1:" not in unseen
    plain = _plan_of(pages, laid)
    assert "reorder" not in plain.lower().replace("reorders counted", "") and "250 µs" in plain


def test_what_runs_in_a_loop_is_drawn_in_its_place(pages: Client, organisation: c.Organisation) -> None:
    place: Any = {"organisation": organisation, "target": register_target(fakes.TARGET)}
    model = ingest.add_model(DATA, "seeing", setting=Setting(threads=2), **place)
    for at, (canonical, _) in GRAPH.operators().items():
        _publish(model, canonical.operator, 4.0 if at == AT["step_add"] else 1.0)
    plans._made.cache_clear()
    said = _plan_of(pages, model)
    _, after = re.findall(r'<svg class="plan-row".*?</svg></svg>', said, re.S)
    titles = re.findall(r'data-method="(\w+)"><title>(.*?): ([\d.]+ \S+)</title>', html.unescape(after))
    assert [mark for mark, _, _ in titles] == ["default", "default", "compiler", "default", "default"]
    assert "Add float32" in titles[2][1] and titles[2][2] == "25.0 µs"
    assert "10 nodes" in said and "plan-edges" not in said


def test_arcs_lead_from_box_to_box_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [DrawnStep("default", "", "", 10.0, us) for us in (10.0, 20.0, 0.0, 10.0)]
    edges = [
        PlanEdge(0, 1, "turned", "a"), PlanEdge(0, 1, "turned", "the same"), PlanEdge(1, 3, "reorder", "b"),
        PlanEdge(None, 1, "reorder", "c"), PlanEdge(0, 2, "turned", "without a time"),
        PlanEdge(1, 1, "turned", "within a box"),
    ]  # fmt: skip
    found = drawn(steps, edges).edges
    assert [(one.said, one.start, one.end) for one in found] == [
        ("a", 125.0, 500.0), ("b", 500.0, 875.0), ("c", 0.0, 500.0),
    ]  # fmt: skip
    monkeypatch.setattr(plan_edges, "MOST_EDGES", 2)
    assert len(drawn(steps, edges).edges) == 2


def test_what_is_unknown_is_counted_with_what_asking_takes(pages: Client, laid: c.Model) -> None:
    said = _plan_of(pages, laid, EVERY_PASS)
    made = planning.make_plan(
        planning.structure_of_model(laid), laid.target, laid.setting, laid.organisation, EVERY_PASS.split(",")
    )
    assert made.open_questions >= 4 and made.asking_s
    assert f"<dd>{made.open_questions}</dd><dd>operators, fused or channels-last, that could change" in said
    assert f"takes a worker about {wording.duration_s(made.asking_s)}" in said
    command = f"manage.py plan {laid.pk} --passes {EVERY_PASS} --fusions 8 --layouts 8"
    assert command in said and command in _plan_of(pages, laid)  # which asks nothing itself
    [sent] = re.findall(r"POST /api/v1/plans\n(.*?)</pre>", said)
    assert json.loads(html.unescape(sent)) == {
        "model": laid.pk, "passes": EVERY_PASS.split(","), "fusions": 8, "layouts": 8,
    }  # fmt: skip
    c.Miss.objects.update(state="waiting")
    c.Target.objects.update(served_until=timezone.now() + timedelta(minutes=5))
    report = text_of(pages, f"/models/{laid.pk}/?passes={EVERY_PASS}")
    [again] = re.findall(r'hx-get="(/models/.*?)"', report)
    assert html.unescape(again).startswith(f"/models/{laid.pk}/?passes={quote(EVERY_PASS, safe='')}")
    assert "There is no pass &#x27;speed&#x27;; there are:" in _plan_of(pages, laid, "kernels,speed")


def test_what_was_measured_stands_beside_what_was_predicted(pages: Client, catalogue: Factory) -> None:
    model = c.Model.objects.get(name="bert-base")
    assert model.organisation is not None
    made = _made(model)
    row, _ = planning.keep_plan(made, model.organisation, model.target, model.setting, model)
    planning.keep_measured(row, planning.MeasuredPlan(1234.0, 2345.0, 1.9, 1.8, 2.0, True))
    said = _plan_of(pages, model)
    assert "1.23 ms" in said and "2.35 ms" in said and "not chosen" not in said
    assert "not measured yet" not in said and "of an earlier plan" not in said
    c.StoredPlan.objects.update(sha256="0" * 64)
    planning.keep_measured(row, planning.MeasuredPlan(1234.0, 2345.0, 1.0, 0.9, 1.1, False))
    said = _plan_of(pages, model)
    assert "of an earlier plan" in said and "the plan was not chosen" in said


def test_what_a_session_measured_of_a_plan_that_it_asked_for_is_shown(
    pages: Client, catalogue: Factory
) -> None:
    """Such a plan is of no uploaded model: it is of the same structure, or of its simpler form."""
    model = c.Model.objects.get(name="bert-base")
    c.StoredPlan.objects.all().delete()
    made = _made(model)
    simpler = replace(made, plan=replace(made.plan, model="m1:" + "5" * 64))
    place = (model.target, model.setting)
    mine, others = model.organisation, catalogue.organisation
    assert mine is not None and mine != others
    measured = planning.MeasuredPlan(1234.0, 2345.0, 1.9, 1.8, 2.0, True)
    for row, _ in (
        planning.keep_plan(simpler, others, *place, original=model.structure_key),
        planning.keep_plan(simpler, mine, *place),
    ):
        planning.keep_measured(row, measured)
    assert "not measured yet" in _plan_of(pages, model)
    row, _ = planning.keep_plan(simpler, mine, *place, original=model.structure_key)
    said = _plan_of(pages, model)
    assert "1.23 ms" in said and "of a session&#x27;s plan of the model&#x27;s simpler form" in said
    row, _ = planning.keep_plan(made, mine, *place)
    planning.keep_measured(row, replace(measured, plan_us=1111.0))
    said = _plan_of(pages, model)
    assert "1.11 ms" in said and "; of " not in said


def _run_of(pages: Client, model: c.Model) -> str:
    page = text_of(pages, f"/models/{model.pk}/")
    return page[page.index('id="run"') : page.index('id="coverage-title"')]


def test_a_run_that_a_session_told_is_drawn(pages: Client, catalogue: Factory) -> None:
    """A lane for each stream, a box for each kernel in its method's colour, waits below, and in words."""
    model = c.Model.objects.get(name="bert-base")
    kernel = next(one for one in _made(model).choices if one.by == "kernel")
    boxes = (
        TimelineBox(0, "Step 0 (Conv)", 0.0, 400.0, by=f"{kernel.route} {kernel.label}"),
        TimelineBox(1, "Step 1 (Relu)", 400.0, 600.0, by="onnxruntime"),
    )
    waits = (TimelineWait(1, "Step 0 (Conv)", 0.0, 400.0), TimelineWait(0, "Step 1 (Relu)", 401.0, 0.5))
    row = c.PlanTimeline.objects.get(plan__given=model)
    timelines.keep_timeline(row.plan, Timeline(("stream 0", "stream 1"), boxes, waits))
    said = _run_of(pages, model)
    drawn = re.findall(
        r'<svg x="([\d.]+)%"(?: y="31")? width="([\d.]+)%" height="\d+" data-method="(\w+)"', said
    )
    assert drawn == [
        ("0.000", "40.000", kernel.method),
        ("40.000", "60.000", "default"),
        ("0.000", "40.000", "wait"),  # the other is too short to be seen, and counted in words
    ]
    assert "stream 0: 1 box takes 400 µs of 1.00 ms, 1 wait 500 ns" in said
    assert "waits for Step 0 (Conv): 400 µs" in said and "1.00 ms in all" in said
    answer = pages.get(f"/models/{model.pk}/?export=trace")
    assert answer["Content-Disposition"].startswith("attachment")
    events = answer.json()["traceEvents"]
    assert [one["dur"] for one in events if one["ph"] == "X"] == [400.0, 600.0]
    told = pages.get(f"/models/{model.pk}/?export=json&table=timeline").json()["rows"]
    assert [(one["row"], one["method"]) for one in told] == [("stream 0", kernel.method), ("stream 1", "")]
    c.PlanTimeline.objects.all().delete()
    assert 'id="run"' not in text_of(pages, f"/models/{model.pk}/")
    assert pages.get(f"/models/{model.pk}/?export=trace").status_code == 404


def test_thin_boxes_of_a_run_are_drawn_together_and_keep_their_time() -> None:
    """Two thousand boxes, the most there are, of which most are too thin for a lane."""
    chance, at_us, boxes = random.Random(9), 0.0, []
    for _ in range(2000):
        took_us = chance.choice([0.0, 1.0, 2.0, 900.0])
        boxes.append(TimelineBox(0, "s", at_us, took_us, by=chance.choice(["a", "b"])))
        at_us += took_us + chance.choice([0.0, 0.0, 50.0])
    found = drawn_run(Timeline(("stream 0",), tuple(boxes)), {"a": "compiler"})
    [lane] = found.lanes
    assert found.width_px == MOST_PX and len(lane.boxes) < 1500
    for one, after in zip(lane.boxes, lane.boxes[1:], strict=False):
        assert after.start >= one.start + one.width - 0.01
    assert sum(us for _, us, _ in found.shares) == pytest.approx(sum(one.took_us for one in boxes))
    alone = drawn_run(Timeline(("a", "b"), (TimelineBox(1, "s", 0.0, 0.0),)), {})
    assert [len(one.boxes) for one in alone.lanes] == [0, 1] and not alone.shares


def test_a_plan_is_kept_until_what_is_published_or_missed_changes(
    pages: Client, catalogue: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = c.Model.objects.get(name="bert-base")
    made: list[planning.MadePlan] = []
    make = planning.make_plan
    monkeypatch.setattr(planning, "make_plan", lambda *args: made.append(make(*args)) or made[-1])
    clock = [0.0]
    monkeypatch.setattr(plans.time, "monotonic", lambda: clock[0])
    plans._made.cache_clear()
    first = _plan_of(pages, model)
    assert _plan_of(pages, model) == first and len(made) == 1
    here = c.Best.objects.filter(operator__models__model=model)
    beaten = here.filter(
        kind="c-abi", rank__gt=0, operator__best_set__kind="recipe", operator__best_set__rank=0
    )
    best = beaten.first()
    assert best is not None  # a library's call is faster alone, and is none of the plan's
    best.median_us /= 2  # as a race would
    best.save()
    assert _told(pages, model, made).predicted_us < made[0].predicted_us and len(made) == 2
    c.Best.objects.filter(pk=best.pk).delete()
    by = {one.operator: one.by for one in _told(pages, model, made).choices}
    assert by[best.operator.key] == "default" and len(made) == 3
    c.Miss.objects.filter(operator__models__model=model).update(reason="nobody has time")
    rows = pages.get(f"/models/{model.pk}/?export=json&table=plan").json()["rows"]
    assert "nobody has time" in {one["reason"] for one in rows}
    count = len(made)
    clock[0] += plans.KEPT_S  # prices may be others
    assert _plan_of(pages, model) and _plan_of(pages, model) and len(made) == count + 1


def _told(pages: Client, model: c.Model, made: list[planning.MadePlan]) -> planning.MadePlan:
    """What the page shows now."""
    said = _plan_of(pages, model)
    assert wording.duration_us(made[-1].predicted_us) in said
    return made[-1]


def test_without_a_structure_the_page_says_why(pages: Client, catalogue: Factory) -> None:
    model = c.Model.objects.get(name__startswith="ResNet")
    assert "was given before structures were" in _plan_of(pages, model)
    c.Model.objects.filter(pk=model.pk).update(form="operator-list")
    assert "An operator list has no structure" in _plan_of(pages, model)


def test_a_model_of_two_thousand_nodes_is_some_hundred_boxes_in_as_many_queries(
    pages: Client, catalogue: Factory
) -> None:
    model = c.Model.objects.get(name="bert-base")
    _plan_of(pages, model)  # what is cached once a process is not counted, the plan apart
    plans._made.cache_clear()
    with CaptureQueriesContext(connection) as few:
        small = _plan_of(pages, model)
    c.StoredStructure.objects.all().delete()
    c.ModelOperator.objects.filter(model=model).update(calls=80)
    catalogue.structure(model)
    with CaptureQueriesContext(connection) as many:
        large = _plan_of(pages, model)
    assert len(_made(model).plan.steps) > 500
    assert len(many) <= len(few) + 2  # price rules and the like are read again when a second is over
    assert large.count("<rect") < 1000 and len(large) < 4 * len(small) + 150_000


def test_thin_steps_are_drawn_together_and_nothing_gets_lost() -> None:
    chance = random.Random(5)
    steps = []
    for _ in range(3000):
        before = chance.choice([0.0, 1.0, 2.0, 900.0])
        mark = chance.choice(["compiler", "manual", "default"])
        after = before if mark == "default" else before * chance.uniform(0.3, 1.2)
        steps.append(DrawnStep(mark, "Conv", "a step", before, after))
    found = drawn(steps)
    assert sum(box.us for box in found.before) == pytest.approx(sum(one.before_us for one in steps))
    for mark in ("compiler", "manual", "default"):
        wanted = sum(one.after_us for one in steps if one.mark == mark)
        assert sum(box.us for box in found.after if box.mark == mark) == pytest.approx(wanted)
    assert len(found.before) <= 100 / THINNEST + 1
    for row in (found.before, found.after):
        ends = [box.start + box.width for box in row]
        assert all(box.start == pytest.approx(end, abs=0.01) for box, end in zip(row[1:], ends, strict=False))
        assert ends[-1] <= 100.01
    assert drawn([]).after == () and drawn([DrawnStep("manual", "", "", 0.0, 0.0)]).before == ()
