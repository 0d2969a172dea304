"""``make bench ONLY=…`` as a short smoke run, of those that can be short: it measures and writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.databases import ROOT
from tests.distribution.tree import copy_everything, run
from tests.docs.service import STAMPS

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(400)]

SAMPLE = {"SAMPLE": "small.json"}
SHORT: dict[str, dict[str, str]] = {
    "coverage": SAMPLE,
    "sandbox": {"BUDGET_S": "20", "SITTINGS": "1"},
    "trials": {"BUDGET_S": "20"},
}
"""What makes a bench short. `contest`, `lookup` and `pages` start services and are not tried here."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = copy_everything(tmp_path_factory.mktemp("benches") / "tree")
    calls = json.loads((ROOT / "bench/data/contest_sample.json").read_text())
    (tree / "small.json").write_text(json.dumps(calls[:2]))
    return tree


@pytest.mark.parametrize("name", SHORT)
def test_a_bench_measures_and_writes(name: str, tree: Path, tmp_path: Path) -> None:
    command = ["make", *STAMPS, "bench", f"ONLY={name}"]
    run(command, tree, timeout_s=300, OPATLAS_LOCK=str(tmp_path / "lock"), **SHORT[name])
    assert json.loads((tree / "var/bench" / f"{name}.json").read_text())
