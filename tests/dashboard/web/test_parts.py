"""Words, charts and code: what pages are made of."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders

from catalog.selectors.traffic import LookupSlot
from dashboard.operation.growth import page as growth_page
from dashboard.operation.growth.forecast import SizePoint
from dashboard.operation.growth.selectors import Measured
from dashboard.web import wording
from dashboard.web.charts import models as model_charts
from dashboard.web.charts import operators as operator_charts
from dashboard.web.charts import traffic as traffic_charts
from dashboard.web.charts.drawing import Figure, ratio_ticks
from dashboard.web.highlighting import SHOWN_CHARACTERS, highlighted, language_of

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value_us", "text"),
    [
        (None, "–"), (0, "–"), (0.85, "850 ns"), (0.9999, "1.00 µs"), (12.34, "12.3 µs"),
        (999.4, "999 µs"), (999.7, "1.00 ms"), (1750, "1.75 ms"), (2_600_000, "2.60 s"),
        (7.2e9, "2 h 0 min"), (-1750, "−1.75 ms"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit_that_suits(value_us: float | None, text: str) -> None:
    assert wording.duration_us(value_us) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (None, "–"),
        (0, "0 %"),
        (0.004, "0.4 %"),
        (0.5, "50 %"),
        (0.994, "99.4 %"),
        (0.99999, "99.9 %"),
        (1, "100 %"),
    ],
)
def test_nearly_all_is_never_called_all(share: float | None, text: str) -> None:
    assert wording.percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1234, "1,234"), (12_345, "12.3k"), (4_560_000, "4.56M"), (0, "0"), (None, "–")]
)
def test_counts(value: float | None, text: str) -> None:
    assert wording.compact(value) == text


@pytest.mark.parametrize(
    ("away_s", "text"),
    [(2, "just now"), (42, "42 s ago"), (190, "3 min ago"), (7300, "2 h ago"), (-7300, "in 2 h"),
     (4 * 86400, "4 days ago"), (40 * 86400, "12 Oct 2026")],
)  # fmt: skip
def test_moments_are_told_from_now(away_s: float, text: str) -> None:
    assert wording.relative(NOW - timedelta(seconds=away_s), NOW) == text


def test_seconds_of_work() -> None:
    said = [wording.duration_s(value) for value in (0.24, 3.14, 38.2, 250, 7500)]
    assert said == ["240 ms", "3.1 s", "38 s", "4 min 10 s", "2 h 5 min"]


@pytest.mark.parametrize("value, text", [
    (2.24e-6, "0.00000224"), (-0.00002, "-0.00002"), (0.05, "0.05"), (0.12, "0.12"), (0, "0.00"),
    (9.99, "9.99"), (45.61, "45.6"), (1234.5, "1,234"),
])  # fmt: skip
def test_three_digits_without_an_exponent(value: float, text: str) -> None:
    assert wording.significant(value) == text


def figures() -> list[Figure]:
    slots = [LookupSlot(NOW, 3, 1), LookupSlot(NOW + timedelta(hours=1), 0, 0)]
    dots = [
        operator_charts.Dot("1", "library", 10.0, 9.0, 11.0, "one"),
        operator_charts.Dot("2", "compiler", 500.0, 450.0, 560.0, "two"),
        operator_charts.Dot("3", "manual", 7000.0, 6900.0, 7100.0, "three"),
    ]
    bars = [model_charts.Bar("a", "library", 10, 5, "a"), model_charts.Bar("b", "", 3, 0, "b")]
    return [
        traffic_charts.hit_rate(slots),
        operator_charts.ratios(dots, "default (PyTorch eager)"),
        operator_charts.ratios([], "default"),
        operator_charts.trials(dots, [(4, "crashed")], "default"),
        model_charts.model_time(bars),
        growth_page.taken(Measured([NOW], [], {"a": [SizePoint(NOW, 5)], "b": []}, {}), ["a"]),
    ]


def test_a_line_has_a_gap_where_nobody_asked() -> None:
    hours = [LookupSlot(NOW + timedelta(hours=n), *asked) for n, asked in enumerate([(3, 1), (0, 0), (1, 0)])]
    rate, hits, _ = traffic_charts.hit_rate(hours)["data"]
    assert rate["y"] == [75, None, 100] and rate["connectgaps"] is False
    assert hits["y"] == [3, 0, 1]


@pytest.mark.parametrize("figure", figures())
def test_every_chart_is_one_that_plotly_knows(figure: Figure) -> None:
    import plotly.graph_objects as go

    def painted(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("$"):
            return "#123456"
        if isinstance(value, dict):
            return {key: painted(item) for key, item in value.items()}
        return [painted(item) for item in value] if isinstance(value, list) else value

    go.Figure(painted(figure))  # raises on a property that does not exist or a value it cannot have
    json.dumps(figure, allow_nan=False)


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        ([0.97, 1.0, 1.03], "0.96×", "1.04×"), ([1.0, 1.0], "0.98×", "1.02×"), ([0.5, 1.9], "0.5×", "2×"),
        ([0.3, 30.0], "0.5×", "20×"), ([0.01, 900.0], "0.01×", "1000×"),
    ],
)  # fmt: skip
def test_ratios_that_lie_close_have_labels_too(values: list[float], first: str, last: str) -> None:
    ticks = ratio_ticks(values)
    said = ticks["ticktext"]
    assert 2 <= len(said) <= 9 and len(set(said)) == len(said)
    assert min(values) / 1.3 <= ticks["tickvals"][0] and ticks["tickvals"][-1] <= max(values) * 1.3
    assert (said[0], said[-1]) == (first, last)


def test_every_colour_of_a_chart_is_a_token() -> None:
    tokens = Path(str(finders.find("css/tokens.css"))).read_text()

    def colours(value: Any) -> set[str]:
        if isinstance(value, str):
            return {value[1:]} if value.startswith("$") else set()
        items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return {name for item in items for name in colours(item)}

    for name in set().union(*map(colours, figures())):
        assert f"--{name}: light-dark(" in tokens, name


def test_highlighting_escapes_what_it_shows() -> None:
    assert "<script>" not in highlighted("// <script>alert(1)</script>\nvoid f();").html
    assert "<b>" not in highlighted("<b>plain</b>").html


def test_long_code_is_cut_and_says_by_how_much() -> None:
    code = highlighted("x" * (SHOWN_CHARACTERS + 5))
    assert code.cut == 5


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ('{"call": "conv2d"}', "json"), ("# from tvm.script import ir as I\n@I.ir_module", "python"),
        ("; ModuleID = 'x'\n", "llvm"), ("#include <math.h>\nvoid f(void) {}", "c"),
        ("#include <vector>\nstd::vector<int> v;", "cpp"), ("nothing of the kind", "text"),
    ],
)  # fmt: skip
def test_languages(text: str, language: str) -> None:
    assert language_of(text) == language


def test_plotly_comes_from_the_installed_package() -> None:
    found = finders.find("vendor/plotly.min.js")
    assert found and Path(str(found)).stat().st_size > 1_000_000
    assert finders.find("vendor/other.js") is None


def test_a_mark_that_was_safe_once_is_escaped_for_who_says_the_same() -> None:
    from django.utils.safestring import mark_safe

    from dashboard.templatetags.opatlas import badge, method

    for mark in (badge, method):
        assert "<i>x</i>" in mark("done", mark_safe("<i>x</i>"))
        assert "<i>x</i>" not in mark("done", "<i>x</i>")
