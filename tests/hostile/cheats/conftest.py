"""One warm laboratory for the whole suite, and a bench for each operator and number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from opatlas.identity import Setting, detect_target
from tests.configuring import configured
from tests.hostile.cheats.table import Case, operator_of
from tests.tuning.measure.conftest import default_artifact
from tests.tuning.measure.kernels import c_artifact
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome
from tuning.routes.base import BuiltArtifact

LIMITS = Limits(run_s=4.0, memory_bytes=512 << 20, disk_bytes=64 << 20)

Measure = Callable[[Case], Outcome]


@pytest.fixture(scope="session")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measure]:
    """Compiles a case and measures it on its operator's bench."""
    folder = tmp_path_factory.mktemp("cheats")
    benches: dict[tuple[str, int], Bench] = {}
    with configured(lock=folder / "lock"), ExitStack() as stack:
        lab = stack.enter_context(Laboratory(folder / "lab", detect_target()))
        lab.warm(())

        def run(case: Case) -> Outcome:
            key = (case.operator, case.threads)
            operator, setting = operator_of(case.operator), Setting(threads=case.threads)
            if key not in benches:
                default = default_artifact(lab, operator, setting, folder / f"{case.operator}-{case.threads}")
                benches[key] = stack.enter_context(lab.bench(operator, setting, default))
                assert benches[key].default.ok, benches[key].default
            return benches[key].measure(compiled(case, folder), LIMITS)

        yield run


def compiled(case: Case, folder: Path) -> BuiltArtifact:
    artifact = c_artifact(
        folder, case.name, operator_of(case.operator), Setting(threads=case.threads), case.text
    )
    return replace(artifact, manifest=replace(artifact.manifest, alignment=case.alignment))
