"""Lists: narrowed, sorted and paged by what the URL says."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from django.test import Client

from catalog import models as c
from catalog.selectors import listing
from catalog.selectors.jobs import WITHHELD
from catalog.viewing import Viewer
from tests.dashboard.factory import Factory

HOST = Viewer("host", everywhere=frozenset())


def found(**filters: str) -> list[c.Operator]:
    return list(listing.operators(listing.OperatorFilters(**filters), HOST))


def test_every_word_of_a_search_must_be_there(catalogue: Factory) -> None:
    names = [operator.summary for operator in found(q="conv 56×56")]
    assert names and all("Conv" in name and "56×56" in name for name in names)


def test_a_key_is_found_by_its_beginning(catalogue: Factory) -> None:
    operator = c.Operator.objects.order_by("?").first()
    assert operator is not None
    assert found(q=operator.key[:14]) == [operator]


def test_a_status_gives_the_operators_that_show_it(catalogue: Factory) -> None:
    for status in set(listing.STATUSES) - {WITHHELD}:  # nothing has a price here: tests/dashboard/billing
        filters = listing.OperatorFilters(status=status)
        operators = list(listing.operators(filters, HOST))
        assert operators, status
        assert {row.status for row in listing.rows(operators, filters, HOST)} == {status}


def test_best_by_manual_gives_what_manual_kernels_win(catalogue: Factory) -> None:
    operators = found(method="manual")
    rows = listing.rows(operators, listing.OperatorFilters(), HOST)
    assert rows and all(row.best is not None and row.best.method == "manual" for row in rows)


def test_sorting_by_speed_up_puts_the_unknown_last(catalogue: Factory) -> None:
    for sort, reverse in (("-speedup", True), ("speedup", False)):
        rows = listing.rows(found(sort=sort), listing.OperatorFilters(), HOST)
        ratios = [row.best.ratio_to_default if row.best else None for row in rows]
        known = [ratio for ratio in ratios if ratio is not None]
        assert known == sorted(known, reverse=reverse)
        assert ratios == known + [None] * (len(ratios) - len(known))


def test_no_order_loses_an_operator(catalogue: Factory) -> None:
    for sort in (sign + name for name in listing.SORTS for sign in ("", "-")):
        assert len(found(sort=sort)) == c.Operator.objects.count(), sort


def test_the_url_holds_filters_sort_and_page(pages: Client, catalogue: Factory) -> None:
    html = pages.get("/operators/?q=conv&status=hit&method=library&sort=-speedup").content.decode()
    assert 'value="conv"' in html
    assert re.search(r"<option selected>hit</option>", html)
    assert re.search(r"<option selected>library</option>", html)
    assert 'aria-sort="descending"' in html
    # Sorting the other way keeps what narrows the list.
    assert "q=conv&amp;status=hit&amp;method=library&amp;sort=speedup" in html


def test_what_a_url_cannot_mean_is_left_out(pages: Client, catalogue: Factory) -> None:
    for query in ("status=;drop", "sort=password", "page=-5", "page=x", "method=x", "q=%00" + "x" * 5000):
        assert pages.get(f"/operators/?{query}").status_code == 200, query
        assert pages.get(f"/explorations/?{query}").status_code == 200, query


def test_htmx_gets_the_part_that_changed(pages: Client, catalogue: Factory) -> None:
    for path in ("/operators/", "/explorations/"):
        part = pages.get(path, headers={"HX-Request": "true"})
        assert b"<html" not in part.content
        assert "HX-Request" in part.headers["Vary"]


def test_pages_of_fifty(pages: Client, db: None) -> None:
    factory = Factory()
    for n in range(120):
        factory.operator("Relu", f"Relu {n}×64 float32")
    html = pages.get("/operators/?page=2&sort=recent").content.decode()
    assert "51–100 of 120 operators" in html
    assert "page=3" in html and "page=1" in html


def test_explorations_are_narrowed_by_state_and_stage(pages: Client, catalogue: Factory) -> None:
    html = pages.get("/explorations/?state=active&stage=2").content.decode()
    assert "of 4 explorations" in html  # one running, two queued, one paused
    assert "given up" in pages.get("/explorations/?state=dead").content.decode()


def test_operators_of_several_targets_are_listed_once(catalogue: Factory) -> None:
    other = c.Target.objects.create(
        key="t1:" + "b" * 64, kind="cpu", arch="zen5", capability="cpu.zen5", description={}
    )
    for best in c.Best.objects.filter(rank=0)[:9]:
        best.pk, best.target = None, other
        best.ratio_to_default *= 1.5 if best.operator_id % 2 else 1.0
        best.save()
    for sort in ("-speedup", "speedup", "-time", "time"):
        operators = found(sort=sort)
        assert len(operators) == len(set(operators)) == c.Operator.objects.count(), sort
        rows = listing.rows(operators, listing.OperatorFilters(), HOST)
        values = [
            row.best.ratio_to_default if "speedup" in sort else row.best.median_us for row in rows if row.best
        ]
        assert values == sorted(values, reverse=sort.startswith("-")), sort


def test_pages_of_a_list_go_on_where_the_known_ones_end(catalogue: Factory) -> None:
    for sort in ("-jobs", "asked", "-saved", "-speedup"):
        whole = [operator.pk for operator in found(sort=sort)]
        listed = listing.operators(listing.OperatorFilters(sort=sort), HOST)
        paged = [pk for start in range(0, len(whole), 7) for pk in listed.ids(start, start + 7)]
        assert paged == whole, sort


@pytest.mark.parametrize("few", [0, listing.FEW])  # looked for one by one, and gone through first
def test_a_filter_leaves_out_and_keeps_the_order(
    catalogue: Factory, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(listing, "FEW", few)
    tenant = c.Organisation.objects.order_by("pk")[0].pk
    private = c.Best.objects.filter(rank=0, method="manual")[0]
    c.Best.objects.filter(operator=private.operator_id).update(scope="org:0")  # another tenant's own
    own = Viewer("tenant", {tenant: frozenset()}, focus=tenant)
    for sort in ("-recent", "name", "-time", "speedup", "-jobs", "asked", "-saved"):
        for viewer in (HOST, own):
            assert_filters_keep_the_order(sort, viewer)


def assert_filters_keep_the_order(sort: str, viewer: Viewer) -> None:
    every = list(listing.operators(listing.OperatorFilters(sort=sort), viewer))
    rows = listing.rows(every, listing.OperatorFilters(), viewer)
    for method in c.Method.values:
        best = set(
            c.Best.objects.filter(viewer.shown(), rank=0, method=method).values_list("operator", flat=True)
        )
        won = [operator for operator in every if operator.pk in best]
        listed = listing.operators(listing.OperatorFilters(sort=sort, method=method), viewer)
        assert list(listed) == won, (sort, method)
    for status in listing.STATUSES:
        shown = [row.operator for row in rows if row.status == status]
        listed = listing.operators(listing.OperatorFilters(sort=sort, status=status), viewer)
        assert list(listed) == shown, (sort, status)
        of_type = [operator for operator in shown if operator.op_type == "Conv"]
        filters = listing.OperatorFilters(sort=sort, status=status, op_type="Conv")
        assert list(listing.operators(filters, viewer)) == of_type, (sort, status)


def test_more_operators_than_are_counted_say_so(
    pages: Client, catalogue: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboard.web.paging.COUNTED", 40)
    assert "1–40 of 40+ operators" in pages.get("/operators/").content.decode()


def test_the_whole_filtered_list_is_exported(pages: Client, catalogue: Factory) -> None:
    operators = found(q="conv", sort="-speedup")
    answer = pages.get("/operators/?q=conv&sort=-speedup&export=json&page=2")
    rows = json.loads(answer.getvalue())["rows"]
    assert [row["key"] for row in rows] == [operator.key for operator in operators]
    text = pages.get("/operators/?q=conv&sort=-speedup&export=csv").getvalue().decode()
    assert [row["key"] for row in csv.DictReader(io.StringIO(text))] == [row["key"] for row in rows]
    assert pages.get("/operators/?export=xls").status_code == 404


def test_a_digest_is_found_without_its_prefix(catalogue: Factory) -> None:
    operator = c.Operator.objects.order_by("pk").last()
    assert operator is not None
    assert found(q=operator.key[3:15]) == [operator]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/operators/?type=Nope", "This page has no filter “type”: it has q, op_type,"),
        ("/operators/?status=Nope", "There is no status “Nope”: it is one of"),
        ("/operators/?op_type=Nope", "There is no operator type “Nope”"),
        ("/operators/?dtype=half", "There is no element type “half”"),
        ("/operators/?q=conv route:tvmm", "There is no route “tvmm”: did you mean tvm?"),
        ("/queues/collect/?q=route:zzz", "There is no route “zzz”: there are eager, onnxruntime,"),
        ("/explorations/?q=conv stride=2", "“stride=2” finds nothing: sizes are asked for as dim&gt;=1024"),
        ("/operators/?page=99", "There is no page “99”: this is page 1."),
        ("/queues/collect/?reason=x", "There is no reason “x”: it is one of"),
        ("/kernels/?page=zz", "There is no page “zz”"),
        ("/operators/?sort=bogus", "Nothing is sorted by “bogus”: sort is one of"),
        ("/explorations/?state=Nope", "There is no state “Nope”"),
        ("/explorations/?from=2026-13-45", "This page has no filter “from”"),
        ("/queues/collect/?state=hit", "There is no state “hit”"),
        ("/?since=2026-13-45", "since is a date or a time"),
        ("/billing/ledger/?kind=x", "There is no kind “x”"),
        ("/billing/ledger/?organisation=0", "There is no organisation “0”"),
        ("/methods/?route=tvmm", "There is no route “tvmm”: it is one of"),
        ("/?org=999999", "There is no organisation “999999”"),
        ("/methods/?at=0-0", "There is no place “0-0”"),
        ("/compare/?target=t", "There is no target “t”"),
        ("/notifications/?event=x", "There is no event “x”: it is one of"),
        ("/webhooks/?state=x", "There is no state “x”: it is one of"),
    ],
)
def test_a_filter_that_is_none_is_said(pages: Client, catalogue: Factory, path: str, said: str) -> None:
    assert said in pages.get(path).content.decode()
    assert said not in pages.get(path.split("?")[0]).content.decode()
