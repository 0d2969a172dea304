"""A model's plan on its page: drawn, with reasons, within bounds."""

from __future__ import annotations

import random
import re

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog import models as c
from dashboard.pages.jobs import plans
from dashboard.web import wording
from dashboard.web.charts.plan import THINNEST, DrawnStep, drawn
from tests.dashboard.factory import Factory
from tests.dashboard.pages.test_work_pages import text_of
from tuning import planning


def _plan_of(pages: Client, model: c.Model) -> str:
    html = text_of(pages, f"/models/{model.pk}/")
    return html[html.index('id="plan"') : html.index('id="coverage-title"')]


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
