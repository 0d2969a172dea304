"""Each route says of each kind of target whether it is for it."""

from __future__ import annotations

import pytest

from catalog.default_names import default_route_name
from opatlas.conf import Misconfigured
from opatlas.identity import Setting, detect_target, parse_operator
from opatlas.load.recipe import check_recipe
from tests.catalog.making import GPU
from tuning.routes.base import Budget, No, Route
from tuning.routes.library.eager import Eager
from tuning.routes.registry import DEFAULTS, ROUTES, routes_for


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.name)
def test_it_refuses_targets_of_other_kinds(route: Route) -> None:
    for target in (GPU, detect_target()):
        if target.kind not in route.kinds:
            answer = route.available(target)
            assert isinstance(answer, No)
            assert target.kind in answer.reason


def test_a_worker_has_the_routes_for_its_kind_of_target() -> None:
    on_cuda = {"eager", "cublaslt", "cudnn", "inductor", "triton", "cuda"}
    assert {route.name for route in routes_for("cuda")} == on_cuda
    assert {route.name for route in routes_for("cpu")} == {route.name for route in ROUTES} - {
        "cublaslt",
        "cudnn",
        "triton",
        "cuda",
    }
    assert len(routes_for("cpu")) == 11


def test_a_worker_may_be_told_which_routes_it_has() -> None:
    assert {route.name for route in routes_for("cpu", ("halide", "triton"))} == {"halide", *DEFAULTS}
    with pytest.raises(Misconfigured, match="No route is called 'halid'"):
        routes_for("cpu", ("halid",))


def test_eager_on_a_gpu_is_the_plain_call_there() -> None:
    operator = parse_operator({"op": "Relu", "inputs": [{"shape": [8], "dtype": "float32"}]})
    (candidate,) = Eager().candidates(operator, GPU, Setting(tf32=True), Budget(1.0))
    recipe = {"library": "torch", "call": "eager", "device": "cuda", "tf32": True}
    assert candidate.parameters == recipe
    (captured,) = Eager().candidates(operator, GPU, Setting(tf32=True, graphs=True), Budget(1.0))
    assert captured.parameters == {**recipe, "graphs": True}
    assert check_recipe(recipe, 1)["device"] == "cuda"
    assert check_recipe({"library": "torch", "call": "eager"}, 1)["device"] == "cpu"
    if "+cpu" in Eager().versions()["torch"]:
        assert not Eager().available(GPU)


def test_people_read_which_route_the_default_is() -> None:
    names = [default_route_name(name) for name in DEFAULTS]
    assert not set(names) & set(DEFAULTS), "each has a name of its own"
    assert ", else ".join(names) == default_route_name()
