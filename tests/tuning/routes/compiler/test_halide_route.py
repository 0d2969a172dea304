"""What the Halide route says about itself without importing Halide, and how it behaves in the laboratory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.routes.compiler.tvm_cases import TARGET, const, one, typed
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Status
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No
from tuning.routes.compiler.halide import HalideRoute
from tuning.routes.compiler.halide.table import used_levels
from tuning.routes.registry import ROUTES, default_candidate

ROUTE = HalideRoute()
installed = pytest.mark.skipif(not ROUTE.available(TARGET), reason="Halide is not installed as pinned")


def test_it_is_registered_after_tvm() -> None:
    names = [route.name for route in ROUTES]
    assert names.index("halide") == names.index("tvm") + 1


def test_it_is_unavailable_where_halide_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    answer = ROUTE.available(TARGET)
    assert isinstance(answer, No)
    assert answer.reason == "halide is not installed: pip install halide==21.0.0"
    assert ROUTE.versions() == {}


def test_another_version_makes_it_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: "19.0.0")
    answer = ROUTE.available(TARGET)
    assert isinstance(answer, No) and "here it is 19.0.0" in answer.reason


def test_it_compiles_for_x86_only() -> None:
    assert not ROUTE.available(replace(TARGET, isa="aarch64"))


@pytest.mark.parametrize(
    ("operator", "word"),
    [
        (lambda: one("TopK", (4, 9), {"shape": [1], "dtype": "int64", "data": [3]}), "TopK"),
        (lambda: one("Identity", typed("float8_e5m2", 4, 8)), "float8_e5m2"),
        (lambda: one("Add", (1 << 16, 1 << 14), (1,)), "2 GiB"),
    ],
)
def test_it_says_in_a_sentence_what_it_lacks(operator: Callable[[], Operator], word: str) -> None:
    answer = ROUTE.supports(operator(), Setting())
    assert isinstance(answer, No) and word in answer.reason and "\n" not in answer.reason


def test_all_three_autoschedulers_are_candidates() -> None:
    for operator in (one("Relu", (8, 8)), one("Conv", (1, 8, 9, 9), const(16, 8, 3, 3))):
        found = ROUTE.candidates(operator, TARGET, Setting(), Budget(seconds=5))
        assert {c.parameters["scheduler"] for c in found} >= {"Adams2019", "Mullapudi2016", "Li2018"}


def test_asking_imports_no_halide() -> None:
    code = (
        "import sys\n"
        "from opatlas.identity import Setting, detect_target, parse_operator\n"
        "from tuning.routes.base import Budget\n"
        "from tuning.routes.compiler.halide import HalideRoute\n"
        "values = [{'shape': [4], 'dtype': 'float32'}]\n"
        "operator = parse_operator({'op': 'Relu', 'attrs': {}, 'inputs': values})\n"
        "route, target = HalideRoute(), detect_target()\n"
        "route.available(target), route.supports(operator, Setting()), route.versions()\n"
        "list(route.candidates(operator, target, Setting(), Budget(1)))\n"
        "assert 'halide' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


def test_features_come_from_the_raw_set() -> None:
    without = replace(TARGET, features=tuple(set(TARGET.features) - {"bmi2", "avx512f"}))
    names, used = used_levels(without)
    assert "AVX2" not in names and "AVX512" not in names, "Haswell's code may use BMI2"
    assert set(used) <= set(without.features)
    assert used_levels(replace(TARGET, features=())) == ((), ())


@installed
def test_the_laboratory_builds_and_checks_it(tmp_path: Path) -> None:
    operator, setting = one("MatMul", (64, 48), const(48, 80)), Setting(threads=2)
    default = default_candidate(operator, TARGET, setting)
    assert default is not None
    with Laboratory(tmp_path / "home", TARGET) as laboratory:
        built = laboratory.build(default[0], operator, setting, default[1], tmp_path / "default")
        assert isinstance(built, BuiltArtifact)
        with laboratory.bench(operator, setting, built) as bench:
            for number, candidate in enumerate(
                ROUTE.candidates(operator, TARGET, setting, Budget(5, candidates=2))
            ):
                folder = tmp_path / str(number)
                artifact = laboratory.build(ROUTE, operator, setting, candidate, folder)
                assert isinstance(artifact, BuiltArtifact), artifact
                # The machine may be busy: only what was computed is judged here, not how fast.
                assert bench.measure(artifact).status in (Status.OK, Status.NOISY, Status.SLOWER)
        wrong = Candidate("halide", {"scheduler": "nobody's", "layout": "sideways"}, "nonsense")
        refused = laboratory.build(ROUTE, operator, setting, wrong, tmp_path / "wrong")
        assert not isinstance(refused, BuiltArtifact) and refused.status is Status.BUILD_FAILED
        zygote = laboratory.zygotes["halide"].ready
        assert zygote["threads"] == 1 and not zygote["failed"]
