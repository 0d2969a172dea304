"""The default that a job falls back to is the one that workers time everything against."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, detect_target, parse_operator
from opatlas.load import Manifest, default
from opatlas.load.default import load_default
from opatlas.load.recipe import check_recipe
from tests.catalog.making import GPU
from tuning.routes import registry
from tuning.routes.base import Budget

SETTING = Setting(threads=1)
MATMUL = parse_operator(
    {
        "op": "MatMul",
        "inputs": [
            {"shape": [3, 4], "dtype": "float32"},
            {"shape": [4, 5], "dtype": "float32", "const": True},
        ],
    }
)
X, W = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 5), np.float32)
FAILED = Manifest("c-abi", "tvm", MATMUL.to_json(), SETTING.to_json())


def test_the_calls_are_the_defaults_of_workers_in_their_order():
    target = detect_target()
    routes = [registry.route(name) for name in registry.DEFAULTS]
    found = [next(route.candidates(MATMUL, target, SETTING, Budget(1.0, 1))).parameters for route in routes]
    for call, given in zip(default.CALLS, found, strict=False):
        assert check_recipe(call, 1) == check_recipe(given, 1)


@pytest.mark.parametrize("setting", [Setting(), Setting(tf32=True, graphs=True)], ids=["plain", "tf32"])
def test_on_a_device_it_is_what_workers_of_such_time_against(setting, monkeypatch):
    """The first call where the artifact computes there; none where that is the processor's, or has failed."""
    asked = []

    def load_recipe(manifest, files):
        asked.append(check_recipe(manifest.recipe, 1))
        raise LoadError("it is not here")

    monkeypatch.setattr(default, "load_recipe", load_recipe)
    given = next(registry.route("eager").candidates(MATMUL, GPU, setting, Budget(1.0, 1))).parameters
    on_host = [check_recipe(call, 1) for call in default.CALLS]
    module = replace(FAILED, kind="cuda-module", setting=setting.to_json())
    same = replace(module, kind="recipe", recipe=given)
    for failed, where, wanted in (
        (module, ["device"], [check_recipe(given, 1)]),
        (module, default.ANYWHERE, [check_recipe(given, 1), *on_host]),
        (same, default.ANYWHERE, on_host),
        (FAILED, ["device"], []),
    ):
        asked.clear()
        with pytest.raises(LoadError, match="default cannot be run here either"):
            load_default(failed, None, where)
        assert asked == wanted


@pytest.mark.parametrize("number", range(3))
def test_each_computes_the_operator(monkeypatch, number):
    monkeypatch.setattr(default, "CALLS", default.CALLS[number : number + 1])
    bound = load_default(FAILED, {1: W}).bind({0: X})
    bound()
    np.testing.assert_allclose(bound.outputs()[0], X @ W)


def test_never_the_very_call_that_failed_and_only_what_is_here(monkeypatch):
    failed = replace(
        FAILED, kind="recipe", recipe={"library": "torch", "call": "eager", "layout": "contiguous"}
    )
    assert type(load_default(failed, {1: W})).__name__ == "OrtKernel"
    monkeypatch.setattr(default, "CALLS", default.CALLS[:1])
    with pytest.raises(LoadError, match="default cannot be run here either"):
        load_default(failed, {1: W})
