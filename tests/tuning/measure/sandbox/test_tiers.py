"""What a child can reach in each tier."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dashboard.run.stack import ROOT
from opatlas.identity import Operator, Setting, Target
from tests import by_day
from tests.tuning.measure.conftest import TESTS, default_artifact
from tests.tuning.measure.kernels import c_artifact
from tests.tuning.measure.routes import Obedient
from tests.tuning.measure.test_building import wish
from tuning.measure import procfs
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox import programs
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.sandbox.layout import fixed_addresses

# A checkout below /tmp: its bare folder is made in the sandbox's own, private /tmp.
OWN_TMP = {ROOT.name} if ROOT.is_relative_to("/tmp") else set()


def reachable(lab: Laboratory, operator: Operator, setting: Setting, folder: Path) -> dict[str, object]:
    outcome = lab.build(Obedient(), operator, setting, wish("look_around"), folder)
    assert isinstance(outcome, Outcome)
    return json.loads(outcome.detail)


def needs(tier: str) -> None:
    reason = sandbox.why_not(tier)
    if reason:
        pytest.skip(f"tier {tier}: {reason}")


def test_t2_shows_no_network_no_processes_and_no_files(
    relu: Operator, setting: Setting, target: Target, tmp_path: Path
) -> None:
    needs("T2")
    os.environ["OPATLAS_TEST_SECRET"] = "not for children"
    try:
        with Laboratory(tmp_path / "home", target, tier="T2", readable=[TESTS]) as lab:
            seen = reachable(lab, relu, setting, tmp_path / "work")
    finally:
        del os.environ["OPATLAS_TEST_SECRET"]
    assert seen["network"] != "possible"
    assert seen["interfaces"] == ["lo"]
    assert set(seen["writable"]) - OWN_TMP == {"work"}  # type: ignore[call-overload]
    assert seen["shadow"] != "possible"
    assert seen["capabilities"] == "0000000000000000"
    assert seen["no_new_privileges"] == "1"
    # bubblewrap's own init, the zygote and the child.
    assert len(seen["processes"]) == 3  # type: ignore[arg-type]
    assert "OPATLAS_TEST_SECRET" not in seen["environment"]  # type: ignore[operator]
    assert "home" not in seen["root"]  # type: ignore[operator]


def test_t1_shows_no_network_and_no_processes_and_writes_nothing(
    relu: Operator, setting: Setting, target: Target, tmp_path: Path
) -> None:
    needs("T1")
    with Laboratory(tmp_path / "home", target, tier="T1", readable=[TESTS]) as lab:
        seen = reachable(lab, relu, setting, tmp_path / "work")
    assert seen["network"] != "possible"
    assert len(seen["processes"]) <= 3  # type: ignore[arg-type]
    assert set(seen["writable"]) - OWN_TMP == {"work"}  # type: ignore[call-overload]
    assert seen["shadow"] != "possible"
    assert not {"home", "var", "opt", "srv"} & set(seen["root"])  # type: ignore[call-overload]
    assert seen["capabilities"] == "0000000000000000"


@pytest.mark.parametrize("tier", by_day.only(["T2", "T0"], sandbox.TIERS))
def test_every_tier_builds_measures_and_records_itself(
    tier: str, relu: Operator, setting: Setting, target: Target, tmp_path: Path
) -> None:
    needs(tier)
    with Laboratory(tmp_path / "home", target, tier=tier, readable=[TESTS]) as lab:
        artifact = default_artifact(lab, relu, setting, tmp_path / "default")
        with lab.bench(relu, setting, artifact) as bench:
            assert bench.default.tier == tier
            honest = c_artifact(tmp_path, "honest", relu, setting)
            outcome = bench.measure(honest)
            assert outcome.timing is not None, outcome
            assert outcome.tier == tier
            assert bench.measure(c_artifact(tmp_path, "segfault", relu, setting)).status is Status.CRASHED
            assert bench.measure(honest).timing is not None


def test_the_best_tier_says_why_better_ones_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.shutil, "which", lambda program: None)
    forgotten = (sandbox.best_tier, programs.program, fixed_addresses)
    for function in forgotten:
        function.cache_clear()
    try:
        tier = sandbox.best_tier()
    finally:
        monkeypatch.undo()
        for function in forgotten:
            function.cache_clear()
    assert tier.name == "T0"
    missing = dict(tier.missing)
    assert missing["T2"] == "bwrap is not installed (apt-get install bubblewrap)"
    assert missing["T1"] == "unshare is not installed (apt-get install util-linux)"


@pytest.mark.parametrize("tier", by_day.only(["T2", "T0"], sandbox.TIERS))
def test_a_closed_laboratory_leaves_nothing(tier: str, target: Target, tmp_path: Path) -> None:
    needs(tier)
    before = set(procfs.family(os.getpid()))
    with Laboratory(tmp_path, target, tier=tier) as lab:
        lab.warm(())
        assert set(procfs.family(os.getpid())) > before
    assert set(procfs.family(os.getpid())) <= before
    assert list(tmp_path.iterdir()) == []
