"""The whole way: real worker, real laboratory, real libraries; and what a kill leaves behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import parse_operator
from tests.tuning.live import Live, look_up, measuring
from tuning.measure import procfs

pytestmark = pytest.mark.slow

MATMUL = parse_operator(
    {
        "op": "MatMul",
        "inputs": [
            {"shape": [64, 96], "dtype": "float32"},
            {"shape": [96, 80], "dtype": "float32", "role": "const"},
        ],
    }
)
RELU = parse_operator({"op": "Relu", "inputs": [{"shape": [1, 16, 8, 8], "dtype": "float32"}]})


@pytest.fixture
def service(tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    with django_db_blocker.unblock(), measuring(tmp_path) as running:
        yield running


@pytest.fixture
def whole_service(tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    with django_db_blocker.unblock(), measuring(tmp_path, compilers=True) as running:
        yield running


@pytest.mark.alone
@pytest.mark.nightly  # by day what `make run` runs, in tests/docs, and the whole service without compilers
def test_a_miss_becomes_a_verified_hit_that_loads_and_computes(whole_service: Live, tmp_path: Path) -> None:
    import numpy as np

    from catalog.models import Artifact, Best
    from opatlas.load import Manifest, load
    from tuning.explore.results import artifact_from_catalogue
    from tuning.models import Exploration, Trial

    service = whole_service
    service.start_worker()
    service.wait_warm()
    assert [result.status for result in look_up(MATMUL)] == ["miss"]
    service.wait_for(lambda: Best.objects.exists(), "a first result")
    row = Exploration.objects.get()
    service.wait_for(lambda: Trial.objects.filter(stage=1).exists(), "a contestant, whatever came of it")
    (hit,) = look_up(MATMUL)
    assert hit.status == "hit"
    assert (hit.best.stage, hit.best.final) == ("first", False), "the contest has begun, and not ended"
    assert Best.objects.get(is_default=True).route == "eager"
    assert row.first_result_at is not None
    artifact = artifact_from_catalogue(
        Artifact.objects.get(sha256=hit.best.artifact_sha256), tmp_path / "got"
    )
    assert isinstance(artifact.manifest, Manifest)
    kernel = load(artifact.manifest, artifact.folder)
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    b = np.random.default_rng(1).standard_normal((96, 80), dtype=np.float32)
    kernel.prepare({1: b})
    bound = kernel.bind({0: a})
    bound()
    np.testing.assert_allclose(bound.outputs()[0], a @ b, rtol=1e-4, atol=1e-4)
    kernel.close()


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def at_work(service: Live) -> tuple[Any, Any, list[int]]:
    """A worker that has begun to explore: its process, its row, and all of its processes."""
    from tuning.models import Exploration, State

    worker = service.start_worker(OPATLAS_LEASE_S="3")  # which the next one has to wait for
    row = service.wait_warm()
    look_up(MATMUL, RELU)
    work = Exploration.objects.filter(state=State.RUNNING, tries__gt=0)
    service.wait_for(work.first, "work", 120)
    family = procfs.family(worker.pid)
    assert len(family) >= 3, "the pool child and its zygotes"
    return worker, row, family


def test_a_stop_ends_everything_and_gives_the_work_back_and_a_kill_leaves_nothing_running(
    service: Live,
) -> None:
    """SIGKILL to one process only: zygotes, sandboxes and candidates must go by themselves."""
    from tuning.models import Exploration, State

    worker, _, family = at_work(service)
    worker.terminate()
    worker.wait(timeout=60)
    assert alive(family) == []
    assert not Exploration.objects.filter(state=State.RUNNING).exists()
    assert not Exploration.objects.exclude(tries=0).exists()

    worker, _, family = at_work(service)
    worker.kill()
    worker.wait()
    service.wait_for(lambda: not alive(family), "their ends", 60)


@pytest.mark.alone
@pytest.mark.nightly  # by day the one above, and who goes on in tests/dashboard/run/test_whole_service.py
@pytest.mark.parametrize("victim", ["worker", "pool child"])
def test_after_a_kill_the_work_goes_on(service: Live, victim: str) -> None:
    from tuning.models import Exploration

    worker, row, family = at_work(service)
    if victim == "worker":
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        remaining = family
    else:
        os.kill(row.pid, signal.SIGKILL)
        remaining = [pid for pid in family if pid == row.pid or pid in _below(row.pid, family)]
    service.wait_for(lambda: not alive(remaining), "their ends", 60)
    if victim == "worker":
        service.start_worker()
    service.wait_for(
        lambda: Exploration.objects.exclude(first_result_at=None).count() == 2, "both first results", 180
    )


def _below(pid: int, family: list[int]) -> list[int]:
    """Everything but Celery's own processes: those of the pool child."""
    return [member for member in family if member != pid]
