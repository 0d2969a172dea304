"""A column is declared once: its cell, its CSV and its JSON follow from that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.test import RequestFactory

from dashboard.web import tables
from dashboard.web.tables import Column, Table, exported, exports
from tests.databases import ROOT


@dataclass(frozen=True)
class Row:
    name: str
    best: SimpleNamespace | None
    number: int = 7


ROWS = (
    Row("=conv<3>", SimpleNamespace(route="tvm", method="compiler", median_us=1750.0, label="untuned")),
    Row("gelu", None),
)
TABLE = Table(
    "things",
    "Things",
    (
        *exports("number"),
        Column("name", "Name", "name", link=lambda row: f"/things/{row.number}/"),
        Column("route", "Best", "method", "best.route", beside="best.method", spare=True),
        Column("label", "Variant", value="best.label", under="route", say="as {}"),
        Column("median_us", "Time", "us", "best.median_us"),
        Column("length", "Length", "count", lambda row: len(row.name), only="page"),
    ),
    ROWS,
)


def asked(query: str) -> HttpRequest:
    return RequestFactory().get(f"/things/?{query}")


@pytest.fixture(scope="module")
def page() -> str:
    return render_to_string("parts/_table.html", {"table": TABLE}, asked(""))


def test_the_page_shows_each_column_in_its_kinds_form(page: str) -> None:
    assert '<a class="row-link clip-name" title="=conv&lt;3&gt;" href="/things/7/">=conv&lt;3&gt;</a>' in page
    assert '<td class="number" data-label="Time">1.75 ms</td>' in page
    assert 'data-method="compiler"' in page and 'data-label="Length">8</td>' in page


def test_a_column_under_another_stands_in_its_cell(page: str) -> None:
    assert '(compiler)</span></span><span class="sub">as untuned</span></td>' in page
    assert page.count('class="sub"') == 1  # the other row has nothing to say there
    assert '<th scope="col">Variant</th>' not in page


def test_a_cell_without_a_value_is_a_dash_and_spared_on_telephones(page: str) -> None:
    assert '<td class="spare"><span class="faint">–</span></td>' in page


def test_exports_have_the_values_as_they_are_in_the_columns_order() -> None:
    answer = exported(asked("export=json"), TABLE)
    assert answer is not None
    first, second = json.loads(answer.content)["rows"]
    assert list(first) == ["number", "name", "route", "label", "median_us"]
    assert first == {
        "number": 7, "name": "=conv<3>", "route": "tvm", "label": "untuned", "median_us": 1750.0,
    }  # fmt: skip
    assert second == {"number": 7, "name": "gelu", "route": None, "label": None, "median_us": None}


def test_a_spreadsheet_is_given_no_formula() -> None:
    answer = exported(asked("export=csv&table=things"), TABLE)
    assert answer is not None
    lines = answer.content.decode().split("\r\n")
    assert lines == ["number,name,route,label,median_us", "7,'=conv<3>,tvm,untuned,1750.0", "7,gelu,,,", ""]


def test_a_cell_with_a_template_sees_its_row_and_the_page() -> None:
    mine = Column("pause", "Actions", part="work/_pause.html")
    row = SimpleNamespace(paused=None, capability="cpu.<building>")
    table = Table("things", "Things", (Column("name", "Name", "head", lambda _: "a&b"), mine), [row])
    shown = render_to_string("parts/_table.html", {"table": table}, asked(""))
    assert "&lt;building&gt;" in shown
    assert '<th scope="row"\n           data-label="Name">a&amp;b</th>' in shown


def test_a_table_says_how_much_room_its_columns_need() -> None:
    """Its box has that as a class, for which there is a rule; a column more makes it more."""
    few = Table("few", "Few", [Column("name", "Name", "name"), Column("hits", "Hits", "count")], [])
    columns = [*few.columns, *(Column(f"us_{n}", "Time", "us") for n in range(4)), Column("at", "At", "when")]
    many = Table("many", "Many", columns, [])
    assert few.room < many.room < Table("more", "More", [*columns, Column("why", css="reason")], []).room
    assert Table("wide", "Wide", [Column(f"{n}", room_px=400) for n in range(9)], []).room == tables.MOST_ROOM
    style = (ROOT / "dashboard/static/css/components.css").read_text()
    for room in range(tables.LEAST_ROOM, tables.MOST_ROOM + 1):
        assert f".room-{room} {{ font-size: {room}px; }}" in style
