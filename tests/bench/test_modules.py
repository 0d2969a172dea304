"""Modules of PyTorch in the bench of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.models import modules
from opatlas.client import Client
from opatlas.identity import Operator, Setting
from tests import by_day

torch = pytest.importorskip("torch")


@pytest.fixture
def client(tmp_path: Path) -> Client:
    own = Setting(threads=torch.get_num_threads())  # which another test may have set
    return Client(offline=True, cache=tmp_path, setting=own)


@pytest.mark.parametrize("name", by_day.first(1, modules.MODULES))
def test_the_operators_of_a_module_are_told_with_their_times(name: str) -> None:
    rows = modules.operators(name)["operators"]
    found = {Operator.from_json(row["operator"]).key for row in json.loads(json.dumps(rows))}
    assert len(found) == len(rows) > 10
    assert all(row["us"] > 0 and row["calls"] >= 1 for row in rows)
    assert max(row["calls"] for row in rows) > 1  # layers that are alike are one operator


@pytest.mark.nightly
@pytest.mark.slow
def test_a_module_is_timed_beside_its_frameworks(client: Client) -> None:
    found = modules.measure("module_mobilenet", client, 0.0)
    assert json.loads(json.dumps(found)) == found
    assert found["best"] in ("eager", "compile") and found["itself"] in ("eager", "compile")
    assert found["ratio"][1] <= found["ratio"][0] <= found["ratio"][2] and found["max_error"] < 1e-3
    assert found["cold_s"] > found["warm_s"] > 0 and found["kernels"] == 0
