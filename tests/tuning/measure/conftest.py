"""One warm laboratory for all tests of a worker, and a bench for Relu."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting, Target, detect_target
from tests.tuning.measure.kernels import c_artifact, relu_operator
from tuning.measure.laboratory import Bench, Laboratory
from tuning.routes.base import Artifact
from tuning.routes.registry import default_candidate

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def target() -> Target:
    return detect_target()


@pytest.fixture(scope="session")
def setting() -> Setting:
    return Setting(threads=1)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Laboratory]:
    """Its own machine lock: tests of other workers must not wait for ours."""
    folder = tmp_path_factory.mktemp("laboratory")
    before = os.environ.get("OPATLAS_LOCK")
    os.environ["OPATLAS_LOCK"] = str(folder / "lock")
    with Laboratory(folder, target, readable=[TESTS]) as laboratory:
        laboratory.warm(())
        yield laboratory
    if before is None:
        del os.environ["OPATLAS_LOCK"]
    else:
        os.environ["OPATLAS_LOCK"] = before


@pytest.fixture(scope="session")
def relu() -> Operator:
    return relu_operator()


def default_artifact(lab: Laboratory, operator: Operator, setting: Setting, folder: Path) -> Artifact:
    chosen = default_candidate(operator, lab.target, setting)
    assert chosen is not None
    route, candidate = chosen
    artifact = lab.build(route, operator, setting, candidate, folder)
    assert isinstance(artifact, Artifact), artifact
    return artifact


@pytest.fixture(scope="session")
def relu_bench(
    lab: Laboratory, relu: Operator, setting: Setting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("default")
    with lab.bench(relu, setting, default_artifact(lab, relu, setting, folder)) as bench:
        assert bench.default.ok, bench.default
        yield bench


@pytest.fixture
def kernel(tmp_path: Path, relu: Operator, setting: Setting) -> Callable[..., Artifact]:
    """``kernel("hang")`` compiles that kernel of Relu."""

    def make(name: str, source: str | None = None) -> Artifact:
        return c_artifact(tmp_path, name, relu, setting, source)

    return make
