"""Statistics over REST: the pages' figures, other organisations' rows, and what cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest

from catalog import models as c
from catalog.people.keys import create_api_key
from catalog.registry import register_environment
from tests.dashboard.factory import Factory, resnet_operators
from tuning.statistics.efforts import refresh_efforts
from tuning.statistics.limits import refresh_limits

pytestmark = pytest.mark.django_db


@pytest.fixture
def factory() -> Factory:
    factory = Factory()
    for operator in resnet_operators(factory, 4):
        factory.implement(operator)
        factory.trials(factory.explore(operator, "done"))
    factory.traffic(c.Operator.objects.all(), hours=3)
    from catalog.rollups.rollups import rebuild_rollups

    rebuild_rollups()
    refresh_efforts()
    refresh_limits()
    return factory


def test_methods_and_routes(api: Any, factory: Factory) -> None:
    answer = api.get("statistics/methods").json()
    assert [one["method"] for one in answer["methods"]] == ["library", "compiler", "manual"]
    assert sum(one["operators_won"] for one in answer["methods"]) == 4
    tvm = next(one for one in answer["routes"] if one["route"] == "tvm")
    assert (tvm["operators_found"], tvm["trials"]) == (4, 12)
    assert any(one["status"] == "crashed" and one["route"] == "onednn" for one in answer["failures"])
    here = api.get("statistics/methods", target=factory.target.key, setting=factory.setting.key).json()
    assert {one["route"] for one in answer["known_limits"]} >= {"tvm", "xla", "inductor"}
    assert here["routes"] == answer["routes"] and here["target"] == factory.target.key


def test_where_each_wins(api: Any, factory: Factory) -> None:
    cells = api.get("statistics/heatmap", by="route").json()["cells"]
    assert sum(cell["operators"] for cell in cells) == 4
    for cell in cells:
        assert sum(one["won"] for one in cell["wins"]) == cell["operators"]
    assert api.get("statistics/heatmap", route="nobody").json()["cells"] == []


def test_one_operator(api: Any, factory: Factory) -> None:
    best = c.Best.objects.filter(rank=0).select_related("operator")[0]
    answer = api.get(f"statistics/operators/{best.operator.key}").json()
    assert answer["target"] == factory.target.key
    first, *rest = answer["implementations"]
    assert (first["implementation"], first["against_best"]) == (best.implementation_id, None)
    assert all(one["against_best"]["factor"] <= 1.02 for one in rest)
    assert answer["methods"][0]["sentence"].endswith(".")
    assert answer["benefit"]["sentence"].startswith("One more slice")
    assert answer["hits"] == sum(
        c.LookupTally.objects.filter(operator=best.operator).values_list("hits", flat=True)
    )


def test_another_organisations_use_is_not_told(api_with: Any, factory: Factory) -> None:
    other = c.Organisation.objects.create(name="another")
    api = api_with(create_api_key(other, "k", ["lookup"])[1])
    operator = c.Operator.objects.all()[0]
    answer = api.get(f"statistics/operators/{operator.key}").json()
    assert (answer["hits"], answer["misses"], answer["jobs"]) == (0, 0, 0)
    assert answer["implementations"]
    assert {one["route_hits"] for one in api.get("statistics/methods").json()["routes"]} == {0}


def test_two_environments(api: Any, factory: Factory) -> None:
    newer = register_environment({"apache-tvm": "0.28.0"})
    for old in c.Implementation.objects.filter(route="tvm"):
        m = old.measurements.get()
        old.pk, old.environment = None, newer
        old.save()
        m.pk, m.implementation, m.ratio_to_default = None, old, m.ratio_to_default * 0.5
        m.ratio_low, m.ratio_high = m.ratio_low * 0.5, m.ratio_high * 0.5
        m.save()
    asked = {"target": factory.target.key, "a": factory.environment.digest, "b": newer.digest}
    answer = api.get("statistics/environments/compare", **asked).json()
    assert (answer["worse"], answer["better"], answer["same"]) == (4, 0, 0)
    assert answer["environment_mean"] == pytest.approx(0.5)
    assert {pair["verdict"] for pair in answer["pairs"]} == {"worse"}


@pytest.mark.parametrize(
    ("path", "query", "status", "where"),
    [
        ("methods", {"range": "never"}, 400, "range"),
        ("methods", {"since": "yesterday"}, 400, "since"),
        ("methods", {"since": "2026-11-21", "until": "2026-11-01"}, 400, "since"),
        ("methods", {"target": "\0"}, 400, "target"),
        ("methods", {"target": "t1:unknown"}, 404, "target"),
        ("heatmap", {"by": "colour"}, 400, "by"),
        ("heatmap", {"route": "é"}, 400, "route"),
        ("operators/o1:none", {}, 404, "key"),
        ("environments/compare", {}, 400, "target"),
        ("environments/compare", {"target": "t1:none"}, 404, "target"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_a_sentence(
    api: Any, path: str, query: dict[str, str], status: int, where: str
) -> None:
    answer = api.get(f"statistics/{path}", **query)
    assert answer.status_code == status
    assert answer.json()["where"] == where
    assert answer.json()["error"].endswith(".")


def test_half_a_place_and_equal_environments_are_refused(api: Any, factory: Factory) -> None:
    assert (
        "name both, or neither" in api.get("statistics/methods", target=factory.target.key).content.decode()
    )
    digest = factory.environment.digest
    asked = {"target": factory.target.key, "a": digest, "b": digest}
    assert api.get("statistics/environments/compare", **asked).status_code == 400
    asked |= {"b": "0" * 64}
    assert api.get("statistics/environments/compare", **asked).status_code == 404
    asked |= {"b": "abc"}
    assert "64 hexadecimal digits" in api.get("statistics/environments/compare", **asked).content.decode()
