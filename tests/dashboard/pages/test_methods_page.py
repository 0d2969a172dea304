"""The page of methods and the comparison of environments: what they show, filter and export."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from catalog import models as c
from catalog.registry import register_environment
from tests.dashboard.factory import ROUTES, Factory, resnet_operators
from tuning import models as t
from tuning.statistics.efforts import refresh_efforts
from tuning.statistics.limits import refresh_limits


def stand(factory: Factory) -> None:
    """What the catalogue's rollups would say, and the routes' efforts."""
    refresh_efforts()
    rows = [("tvm", "compiler", "Conv", 3, 20, 12), ("onednn", "library", "Conv", 3, 22, 8)]
    rows += [("cpp", "manual", "Softmax", 1, 3, 3), ("onnxruntime", "library", "Softmax", 2, 5, 4)]
    for route, method, op_type, size, found, won in rows:
        c.Standing.objects.create(
            target=factory.target, setting=factory.setting, method=method, route=route, op_type=op_type,
            size_class=size, found=found, won=won, contested=won, log_margin=0.1 * won, log_speedup=0.5 * won,
        )  # fmt: skip
    day = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    for back, hits in ((0, 7), (20, 5), (40, 100)):
        c.RouteSlot.objects.create(
            start=day - timedelta(days=back), method="compiler", route="tvm", hits=hits, calls=hits * 3,
            saved_us=hits * 1e6,
        )  # fmt: skip


@pytest.fixture
def standing(catalogue: Factory) -> Factory:
    c.Standing.objects.all().delete()
    c.RouteSlot.objects.all().delete()
    stand(catalogue)
    return catalogue


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


def rows_of(client: Client, path: str, table: str) -> list[dict]:
    glue = "&" if "?" in path else "?"
    return json.loads(client.get(f"{path}{glue}export=json&table={table}").content)["rows"]


def test_methods_and_routes_are_counted(pages: Client, standing: Factory) -> None:
    html = text(pages, "/methods/")
    assert "Failures by reason" in html and "signal # (SIGSEGV) in the child after # s" in html
    routes = {row["name"]: row for row in rows_of(pages, "/methods/", "routes")}
    assert (routes["tvm"]["operators_found"], routes["tvm"]["operators_won"]) == (20, 12)
    assert routes["tvm"]["margin"] == pytest.approx(1.10517, rel=1e-4)
    assert routes["tvm"]["speedup"] == pytest.approx(1.64872, rel=1e-4)
    methods = {row["name"]: row for row in rows_of(pages, "/methods/", "methods")}
    assert methods["library"]["operators_won"] == 12
    known = c.Best.objects.filter(method="library").values("operator").distinct().count()
    assert methods["library"]["operators_found"] == known


def test_what_compilers_miss_is_listed(pages: Client, standing: Factory) -> None:
    refresh_limits()
    assert "Known limits of compilers" in text(pages, "/methods/")
    rows = rows_of(pages, "/methods/", "limits")
    assert {"tvm", "xla", "inductor"} <= {row["route"] for row in rows}
    assert {row["route"] for row in rows_of(pages, "/methods/?route=tvm", "limits")} == {"tvm"}


def test_the_range_counts_hits_only(pages: Client, standing: Factory) -> None:
    def hits(query: str) -> int:
        return next(
            row["hits"] for row in rows_of(pages, f"/methods/?{query}", "routes") if row["name"] == "tvm"
        )

    assert [hits("range=7d"), hits(""), hits("range=30d"), hits("range=90d")] == [7, 7, 12, 112]


def test_a_tenant_sees_its_own_hits(reader: Client, standing: Factory) -> None:
    assert {row["hits"] for row in rows_of(reader, "/methods/?range=90d", "routes")} == {0}


def test_one_route_by_its_address(pages: Client, standing: Factory) -> None:
    html = text(pages, "/methods/?route=tvm")
    assert "<title>tvm" in html
    assert [row["name"] for row in rows_of(pages, "/methods/?route=tvm", "routes")] == ["tvm"]
    assert {row["op_type"] for row in rows_of(pages, "/methods/?route=tvm", "where")} == {"Conv"}
    assert {row["route"] for row in rows_of(pages, "/methods/?route=tvm", "failures")} == {"tvm"}


def test_the_heat_map_by_method_and_by_route(pages: Client, standing: Factory) -> None:
    by_method = rows_of(pages, "/methods/", "where")
    assert (by_method[0]["leader"], by_method[0]["won"], by_method[0]["operators"]) == ("compiler", 12, 20)
    by_route = rows_of(pages, "/methods/?by=route", "where")
    assert by_route[0]["leader"] == "tvm"


def cells_of(html: str) -> list[tuple[str, str, str]]:
    """(colour, margin, denominator) of every filled cell of the heat map."""
    table = html.split('id="heat"')[1].split("</table>")[0]
    found = re.findall(
        r'<td data-step="(\w+)"[^>]*><strong>(.*?)</strong><span class="sub">(.*?)</span>', table
    )
    assert len(found) == table.count("<td data-step")
    return found


def test_the_heat_map_shows_margins_by_family_with_their_denominators(
    pages: Client, standing: Factory
) -> None:
    c.Standing.objects.filter(route="onednn").update(log_margin=8 * 0.5)  # wins by e^0.5
    c.Standing.objects.filter(route="cpp").update(contested=0, log_margin=0)
    html = text(pages, "/methods/")
    # Library, compiler, manual; convolutions first, since they are more.
    assert cells_of(html) == [
        ("4", "1.65×", "won 8 of 20"), ("2", "1.11×", "won 12 of 20"),
        ("2", "1.11×", "won 4 of 7"), ("none", "alone", "won 3 of 7"),
    ]  # fmt: skip
    assert "0 of 20" in html and "0 of 7" in html
    rows = rows_of(pages, "/methods/", "families")
    assert {(row["family"], row["name"], row["won"], row["operators"]) for row in rows} == {
        ("convolution", "library", 8, 20), ("convolution", "compiler", 12, 20),
        ("activation", "library", 4, 7), ("activation", "manual", 3, 7),
    }  # fmt: skip
    by_route = {row["name"] for row in rows_of(pages, "/methods/?by=route", "families")}
    assert by_route == {"onednn", "tvm", "onnxruntime", "cpp"}
    alone = text(pages, "/methods/?by=route&route=tvm")
    assert cells_of(alone) == [("2", "1.11×", "won 12 of 20")]


def test_methods_stand_on_the_page_once(pages: Client, standing: Factory) -> None:
    html = text(pages, "/methods/")
    assert "method-card" not in html and html.count('id="table-methods"') == 1


@pytest.mark.parametrize(
    "query", ["at=9-9", "at=%00", "range=never", "since=x", "by=z", "method=q", "route=none", "route=%00"]
)
def test_what_is_not_understood_changes_nothing_or_is_said(
    pages: Client, standing: Factory, query: str
) -> None:
    assert pages.get(f"/methods/?{query}").status_code == 200


def test_an_empty_catalogue_has_a_page(pages: Client) -> None:
    assert "no operator was explored" in text(pages, "/methods/")


def test_methods_take_no_query_per_route(
    pages: Client, standing: Factory, queries_of: Callable[[str], int]
) -> None:
    few = queries_of("/methods/")
    for number in range(12):
        c.Standing.objects.create(
            target=standing.target, setting=standing.setting, method="library", route=f"r{number}",
            op_type=f"Op{number}", size_class=number % 6, found=3, won=1, log_speedup=0.2,
        )  # fmt: skip
    assert queries_of("/methods/") == few


@pytest.fixture
def upgraded(db: None) -> tuple[Factory, str, str]:
    """Ten operators whose TVM candidates were measured with 0.27 and 0.28: two worse, three better."""
    factory = Factory()
    operators = resnet_operators(factory, 10)
    newer = register_environment({"apache-tvm": "0.28.0"})
    changes = [0.8, 0.9, 1.0, 1.0, 1.0, 1.01, 0.99, 1.2, 1.3, 1.5]
    for operator, change in zip(operators, changes, strict=True):
        factory.implement(operator, [one for one in ROUTES if one[0] in ("eager", "tvm")])
        old = c.Implementation.objects.get(operator=operator, route="tvm")
        m = old.measurements.get()
        old.pk, old.environment = None, newer
        old.save()
        m.pk, m.implementation = None, old
        m.ratio_to_default, m.ratio_low, m.ratio_high = (
            value * change for value in (m.ratio_to_default, m.ratio_low, m.ratio_high)
        )
        m.save()
    return factory, factory.environment.digest, newer.digest


def test_environments_side_by_side(pages: Client, upgraded: tuple[Factory, str, str]) -> None:
    factory, a, b = upgraded
    path = f"/compare/?target={factory.target.key}&a={a}&b={b}"
    html = text(pages, path)
    assert "10 candidates measured in both: 2 worse, 3 better, 5 with no significant difference" in html
    rows = rows_of(pages, path, "changes")
    assert [row["verdict"] for row in rows] == ["worse"] * 2 + ["better"] * 3 + ["same"] * 5
    assert [round(row["change"], 2) for row in rows[:3]] == [0.8, 0.9, 1.5]
    turned = rows_of(pages, f"/compare/?target={factory.target.key}&a={b}&b={a}", "changes")
    assert [row["verdict"] for row in turned].count("worse") == 3


def test_the_newest_two_of_a_route_are_compared_unasked(
    pages: Client, upgraded: tuple[Factory, str, str]
) -> None:
    assert "2 worse, 3 better" in text(pages, "/compare/")


def test_another_organisations_kernels_are_not_compared(
    reader: Client, upgraded: tuple[Factory, str, str]
) -> None:
    c.Implementation.objects.filter(route="tvm").update(scope=f"org:{upgraded[0].organisation.pk + 7}")
    html = text(reader, f"/compare/?a={upgraded[1]}&b={upgraded[2]}")
    assert "environments that have evidence on this target" in html
    assert "0.28.0" not in html, "what only another organisation knows is not even offered"


def test_what_cannot_be_compared_is_said(pages: Client, upgraded: tuple[Factory, str, str]) -> None:
    _, a, _ = upgraded
    assert "are the same environment" in text(pages, f"/compare/?a={a}&b={a}")
    assert "Choose two environments that have evidence" in text(pages, f"/compare/?a={a}&b=nonsense")
    assert "Choose two environments that have evidence" in text(pages, "/compare/?target=none&a=%00")


def test_nobody_is_invited_to_choose_two_environments_where_there_are_none(pages: Client) -> None:
    assert "Nothing measured yet" in text(pages, "/compare/")
    factory = Factory()
    factory.implement(factory.operator("Relu", "Relu 64 float32"))
    html = text(pages, "/compare/")
    assert "evidence of one environment only" in html and 'name="a"' not in html


def test_a_longer_comparison_takes_no_more_queries(
    pages: Client, upgraded: tuple[Factory, str, str], queries_of: Callable[[str], int]
) -> None:
    factory, a, b = upgraded
    path = f"/compare/?target={factory.target.key}&a={a}&b={b}"
    many = queries_of(path)
    t.Trial.objects.all().delete()
    c.Implementation.objects.filter(
        pk__in=list(c.Implementation.objects.values_list("pk", flat=True)[:8])
    ).update(revoked_at=timezone.now())
    assert queries_of(path) == many
