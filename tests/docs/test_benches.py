"""Every ``make bench ONLY=…`` as a short smoke run: it measures and writes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper, save

from bench.__main__ import BENCHES
from tests.databases import ROOT
from tests.distribution.tree import copy_everything, run
from tests.docs.service import STAMPS
from tuning.graph import sample_graph

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

SAMPLE = {"SAMPLE": "small.json"}
FEW = {"OPATLAS_BENCH_IMPLEMENTATIONS": "2000", "OPATLAS_BENCH_USAGE": "20000"}
SHORT: dict[str, dict[str, str]] = {
    "client": SAMPLE | FEW | {"MODELS": "chains", "OPATLAS_WORKLOADS": "nowhere"},
    "contest": SAMPLE | {"BUDGET_S": "60"},
    "coverage": SAMPLE,
    "graph": {"BUDGET_S": "40", "MODELS": "."},
    "lookup": SAMPLE | FEW,
    "reproduced": {"AFTER_S": "1"},
    "models": {"BUDGET_S": "20", "MODELS": "."},
    "pages": FEW | {"OPATLAS_BENCH_EXPLORATIONS": "500", "OPATLAS_BENCH_ROUNDS": "1"},
    "sandbox": {"BUDGET_S": "20", "SITTINGS": "1"},
    "service": FEW | {"BUDGET_S": "40"},
    "streams": {"OPATLAS_WORKLOADS": "nowhere", "BUDGET_S": "4"},
    "trials": {"BUDGET_S": "20"},
    "wire": FEW | {"CATALOGUE": "1k"},
}
"""What makes a bench short."""
OVER = {"reproduced": "contest"}
"""What a bench measures is what another one left."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """Where PostgreSQL's own user may go, unlike pytest's folders."""
    with tempfile.TemporaryDirectory(prefix="opatlas-benches-") as folder:
        Path(folder).chmod(0o755)
        tree = copy_everything(Path(folder) / "tree")
        calls = json.loads((ROOT / "bench/data/contest_sample.json").read_text())
        (tree / "small.json").write_text(json.dumps(calls[:2]))
        (tree / "small.onnx").write_bytes(sample_graph("squeezenet"))
        (tree / "chains").mkdir()
        for width in (32, 40, 48, 56):
            save(chain(width), tree / f"chains/{width}.onnx")
        yield tree


def chain(width: int) -> ModelProto:
    """A model of six operators: what predictors are judged by takes minutes for real ones."""
    operators = ["Relu", "Tanh", "Sigmoid", "Exp", "Neg", "Abs"]
    nodes = [helper.make_node(op, [str(n)], [str(n + 1)]) for n, op in enumerate(operators)]
    first, last = (
        helper.make_tensor_value_info(str(n), TensorProto.FLOAT, [1, width]) for n in (0, len(nodes))
    )
    return helper.make_model(helper.make_graph(nodes, "chain", [first], [last]))


@pytest.mark.parametrize("name", BENCHES)
def test_a_bench_measures_and_writes(name: str, tree: Path, tmp_path: Path) -> None:
    before = OVER.get(name)
    if before and not (tree / "var/bench" / f"{before}.json").exists():
        bench(before, tree, tmp_path)
    found = bench(name, tree, tmp_path)
    if name == "reproduced":
        contest = json.loads((tree / "var/bench/contest.json").read_text())
        assert contest["reproducing"]["after_s"] == found["after_s"] == 1.0
        assert contest["reproduced"] == found["reproduced"]


def bench(name: str, tree: Path, tmp_path: Path) -> Any:
    command = ["make", *STAMPS, "bench", f"ONLY={name}"]
    run(command, tree, timeout_s=500, OPATLAS_LOCK=str(tmp_path / "lock"), **SHORT[name])
    found = json.loads((tree / "var/bench" / f"{name}.json").read_text())
    assert found
    return found
