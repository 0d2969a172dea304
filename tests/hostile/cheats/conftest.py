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
from tuning.measure import bench
from tuning.measure.laboratory import Bench, Laboratory, Limits
from tuning.measure.outcome import Outcome
from tuning.measure.sandbox import tiers as sandbox
from tuning.measure.timing.timer import CONTEST
from tuning.routes.base import BuiltArtifact

LIMITS = Limits(memory_bytes=512 << 20, disk_bytes=64 << 20)
SHORT = replace(LIMITS, run_s=4.0)
"""For who is stopped by the clock."""

EFFORT = replace(CONTEST, seconds=0.1)

Measure = Callable[[Case, Limits], Outcome]


@pytest.fixture(scope="session")
def measure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measure]:
    """Compiles a case and measures it on its operator's bench."""
    if (reason := sandbox.why_not("T2")) is not None:
        pytest.skip(f"tier T2, the only one that runs submitted code: {reason}")
    folder = tmp_path_factory.mktemp("cheats")
    benches: dict[tuple[str, int], Bench] = {}
    with configured(lock=folder / "lock"), ExitStack() as stack:
        # Shorter races than a contest's: fewer looks at each, and a busy host is waited for less.
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(bench, "CONTEST", EFFORT)
        lab = stack.enter_context(Laboratory(folder / "lab", detect_target(), tier="T2"))
        lab.warm(())

        def run(case: Case, limits: Limits) -> Outcome:
            key = (case.operator, case.threads)
            operator, setting = operator_of(case.operator), Setting(threads=case.threads)
            if key not in benches:
                default = default_artifact(lab, operator, setting, folder / f"{case.operator}-{case.threads}")
                benches[key] = stack.enter_context(lab.bench(operator, setting, default))
                assert benches[key].default.ok, benches[key].default
            return benches[key].measure(compiled(case, folder), limits)

        yield run


def compiled(case: Case, folder: Path) -> BuiltArtifact:
    artifact = c_artifact(
        folder, case.name, operator_of(case.operator), Setting(threads=case.threads), case.text
    )
    return replace(artifact, manifest=replace(artifact.manifest, alignment=case.alignment))
