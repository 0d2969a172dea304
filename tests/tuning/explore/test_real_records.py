"""A real search in a sandboxed child, its records in the database, and a neighbour that starts from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.routes.compiler.tvm_cases import ROUTE, TARGET, const, one, random_inputs, reference, run
from tuning.explore.records import keep_records, known_candidates, seed
from tuning.explore.workshop import ClaimedSlice, Workshop
from tuning.measure.laboratory import Laboratory
from tuning.models import Exploration, Stage, State, TuningRecord
from tuning.queue.claims import Claim
from tuning.routes.base import BuiltArtifact

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db,
    pytest.mark.skipif(not ROUTE.available(TARGET), reason="TVM is not installed as pinned"),
]


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    with Laboratory(tmp_path, TARGET) as made:
        made.warm((ROUTE,))
        yield made


@pytest.fixture
def slice_of(
    laboratory: Laboratory, target_row: Any, tmp_path: Path
) -> Callable[[Operator, int], ClaimedSlice]:
    """A claimed exploration of an operator."""
    from django.utils import timezone

    from catalog.registry import register_operator, register_setting

    def make(operator: Operator, stage: int) -> ClaimedSlice:
        row = Exploration.objects.create(
            operator=register_operator(operator), target=target_row,
            setting=register_setting(Setting(threads=2)), capability="cpu.here", asked_at=timezone.now(),
            stage=stage, state=State.RUNNING, fence=1,
        )  # fmt: skip
        workdir = tmp_path / f"work-{row.pk}"
        workdir.mkdir()
        workshop = Workshop(laboratory, (ROUTE,), lambda *_: None, TARGET, tmp_path, "w1", lambda claim: None)
        return ClaimedSlice(workshop, Claim(row.pk, 1), row, workdir)

    return make


def test_a_neighbours_contest_starts_from_what_a_real_search_stored(
    slice_of: Callable[[Operator, int], ClaimedSlice], laboratory: Laboratory, tmp_path: Path
) -> None:
    first = slice_of(one("MatMul", (48, 64), const(64, 96)), Stage.TUNE)
    folder = tmp_path / "state"
    folder.mkdir()
    seed(first, ROUTE, folder)
    kept = 0
    for _slice in range(4):  # one, but for a slow machine
        found = laboratory.tune(ROUTE, first.operator, first.setting, folder, 3.0)
        assert isinstance(found, list), found
        if kept := keep_records(first, ROUTE, list(ROUTE.learnt(folder))):
            break
    assert 0 < kept == TuningRecord.objects.count() <= 8
    again = keep_records(first, ROUTE, list(ROUTE.learnt(folder)))
    assert again == kept, "the same records are the same rows"

    other = slice_of(one("MatMul", (60, 32), const(32, 200)), Stage.CONTEST)
    candidates = list(known_candidates(other, ROUTE))
    assert candidates and candidates[0].label == "tuned for a neighbour (48×64, 64×96)"
    inputs = random_inputs(other.operator)
    artifact = other.build(ROUTE, candidates[0])
    assert isinstance(artifact, BuiltArtifact), artifact
    assert artifact.schedule and "def " in artifact.source and artifact.facts["compile_s"] > 0
    assert np.allclose(
        run(artifact, other.operator, inputs)[0], reference(other.operator, inputs)[0], atol=1e-3
    )

    stranger = slice_of(one("MatMul", (4, 60, 32), const(32, 200)), Stage.CONTEST)
    assert list(known_candidates(stranger, ROUTE)) == []
