"""One warm laboratory for all tests of a worker, and a bench for Relu."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opatlas.identity import Operator, Setting, Target, detect_target
from tests.configuring import configured
from tests.tuning.measure.kernels import c_artifact, relu_operator
from tuning.measure.laboratory import Bench, Laboratory
from tuning.routes.base import BuiltArtifact
from tuning.routes.registry import default_candidate

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def target() -> Target:
    return detect_target()


@pytest.fixture(scope="session")
def setting() -> Setting:
    return Setting(threads=1)


@pytest.fixture(scope="session", autouse=True)
def own_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A lock of our own: a worker that runs on this machine must not wait for tests, nor they for it."""
    with configured(lock=tmp_path_factory.mktemp("lock") / "lock"):
        yield


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, target: Target) -> Iterator[Laboratory]:
    with Laboratory(tmp_path_factory.mktemp("laboratory"), target, readable=[TESTS]) as laboratory:
        laboratory.warm(())
        yield laboratory


@pytest.fixture(scope="session")
def relu() -> Operator:
    return relu_operator()


def default_artifact(lab: Laboratory, operator: Operator, setting: Setting, folder: Path) -> BuiltArtifact:
    chosen = default_candidate(operator, lab.target, setting)
    assert chosen is not None
    route, candidate = chosen
    artifact = lab.build(route, operator, setting, candidate, folder)
    assert isinstance(artifact, BuiltArtifact), artifact
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
def kernel(tmp_path: Path, relu: Operator, setting: Setting) -> Callable[..., BuiltArtifact]:
    """``kernel("hang")`` compiles that kernel of Relu."""

    def make(name: str, source: str | None = None) -> BuiltArtifact:
        return c_artifact(tmp_path, name, relu, setting, source)

    return make
