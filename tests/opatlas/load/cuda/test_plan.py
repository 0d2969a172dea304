"""Launch plans: what they may say, and which devices they are for."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from opatlas.errors import LoadError
from opatlas.identity import parse_operator
from opatlas.load.cuda.plan import LaunchPlan

SIZE = {"shape": [4, 8], "dtype": "float32"}
QUOTIENT = parse_operator({"op": "Div", "inputs": [SIZE, {**SIZE, "const": True}]})
PLAN: dict[str, Any] = {
    "module": "scaled.cubin",
    "arch": "sm_90",
    "driver": 12080,
    "workspace_bytes": 128,
    "packed_bytes": [128],
    "prepare": [
        {
            "function": "inverted",
            "grid": [1, 1, 1],
            "block": [32, 1, 1],
            "shared_bytes": 0,
            "arguments": [{"input": 1}, {"packed": 0}, {"int32": 32}],
        }
    ],
    "run": [
        {
            "function": "scaled",
            "grid": [1, 1, 1],
            "block": [32, 1, 1],
            "shared_bytes": 1024,
            "arguments": [{"input": 0}, {"packed": 0}, {"output": 0}, {"int32": 32}, {"float32": 0.5}],
        }
    ],
}


def plan(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PLAN), **changes}


def launch(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(PLAN["run"][0]), **changes}


def test_a_plan_is_read_and_written_as_it_was() -> None:
    read = LaunchPlan.from_json(PLAN, QUOTIENT)
    assert read.to_json() == PLAN
    assert read.run[0].arguments[2].is_address
    assert not read.run[0].arguments[3].is_address


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (None, "the launch plan is an object with exactly module, arch"),
        (plan(more=1), "exactly module, arch"),
        (plan(module="a.so"), "ends in .cubin or .ptx"),
        (plan(module="../a.cubin"), "not plain"),
        (plan(arch="gfx90"), "such as sm_90"),
        (plan(arch="sm_"), "such as sm_90"),
        (plan(driver="13"), "driver is a whole number"),
        (plan(workspace_bytes=-1), "workspace_bytes is a whole number from 0"),
        (plan(workspace_bytes=1 << 60), "workspace_bytes is a whole number from 0"),
        (plan(packed_bytes=[0]), "packed_bytes is a whole number from 1"),
        (plan(run=[]), "launches nothing"),
        (plan(run=[launch()] * 65), "at most 64"),
        (plan(run=[launch(function="a b")]), r"run\[0\].function"),
        (plan(run=[launch(grid=[1, 1])]), r"run\[0\].grid is three numbers"),
        (plan(run=[launch(grid=[1, 65536, 1])]), "from 1 to 65535"),
        (plan(run=[launch(block=[1024, 2, 1])]), "more than 1024 threads"),
        (plan(run=[launch(shared_bytes=True)]), "shared_bytes is a whole number"),
        (plan(run=[launch(arguments=[{"input": 2}])]), r"run\[0\].arguments\[0\]"),
        (plan(run=[launch(arguments=[{"output": 1}])]), r"arguments\[0\] is a whole number from 0 to 0"),
        (plan(run=[launch(arguments=[{"packed": 1}])]), r"arguments\[0\] is a whole number from 0 to 0"),
        (plan(run=[launch(arguments=[{"workspace": 128}])]), "from 0 to 127"),
        (plan(run=[launch(arguments=[{"pointer": 1}])]), "one of input, output, packed"),
        (plan(run=[launch(arguments=[{"int32": 1 << 31}])]), "whole number from -2147483648"),
        (plan(run=[launch(arguments=[{"float32": "x"}])]), "is a number"),
        (plan(run=[launch(arguments=[{"input": 0, "output": 0}])]), "an object of one entry"),
        (plan(prepare=[launch(arguments=[{"input": 0}])]), "there is no input 0 in 'prepare'"),
        (plan(prepare=[launch(arguments=[{"output": 0}])]), "no output in 'prepare'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(document: Any, sentence: str) -> None:
    with pytest.raises(LoadError, match=sentence):
        LaunchPlan.from_json(document, QUOTIENT)


@pytest.mark.parametrize(
    ("made_for", "module", "here", "fits"),
    [
        ("sm_80", "a.cubin", "sm_80", True),
        ("sm_80", "a.cubin", "sm_86", True),
        ("sm_86", "a.cubin", "sm_80", False),
        ("sm_80", "a.cubin", "sm_90", False),
        ("sm_80", "a.ptx", "sm_90", True),
        ("sm_90", "a.ptx", "sm_86", False),
        ("sm_90a", "a.cubin", "sm_90", True),
        ("sm_90a", "a.ptx", "sm_100", False),
        ("sm_100", "a.ptx", "sm_120", True),
    ],
)
def test_which_devices_it_is_for(made_for: str, module: str, here: str, fits: bool) -> None:
    read = LaunchPlan.from_json(plan(arch=made_for, module=module), QUOTIENT)
    if fits:
        read.check_device(here, 13000)
    else:
        with pytest.raises(LoadError, match=f"made for {made_for}, and the device here is {here}"):
            read.check_device(here, 13000)


def test_a_driver_that_is_too_old_is_told_apart() -> None:
    with pytest.raises(LoadError, match=r"needs a driver for CUDA 12.8; the one here is for 12.4"):
        LaunchPlan.from_json(PLAN, QUOTIENT).check_device("sm_90", 12040)
