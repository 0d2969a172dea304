"""Bests get their machine code: new ones first, then all that there are, in steps that give way to work."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.best import machine_code
from catalog.best.machine_code import code_of
from catalog.best.publishing import publish
from catalog.models import Artifact, Best, Implementation, MachineCode
from catalog.registry import register_operator, register_setting
from opatlas.identity import Setting
from tests.catalog.making import new_result, write_file
from tests.tuning import fakes
from tuning.explore.signing import signing_key
from tuning.measure.reading import CodeListing
from tuning.worker import turns

pytestmark = pytest.mark.django_db(transaction=True)


class Reads:
    """What a laboratory was given to read, and answers."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.answer = CodeListing("opatlas_run:\n    1000:\tret", 2, "objdump")

    def __call__(self, laboratory: Any, artifact: Any) -> CodeListing:
        (name,) = artifact.manifest.files
        self.seen.append((Path(artifact.folder) / name).read_bytes())
        return self.answer


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    found = Reads()
    monkeypatch.setattr(fakes.FakeLaboratory, "list_code", lambda *given: found(*given))
    return found


@pytest.fixture
def put(target_row: Any, setting: Setting, configure: Any, tmp_path: Path) -> Callable[..., Implementation]:
    """``put(3)``: a best whose artifact is a library that says so."""
    configure(home=tmp_path, store=tmp_path / "artifacts")

    def make(size: int, content: bytes = b"", kind: str = "c-abi", **changes: Any) -> Any:
        place = {
            "operator": register_operator(fakes.operator("Relu", size)),
            "target": target_row,
            "setting": register_setting(setting),
        }
        content = content or f"library {size}".encode()
        files = write_file(tmp_path / f"built{size}", "kernel.so", content) if kind == "c-abi" else {}
        changes = {"needs": {}, "signing_key": signing_key(), "folder": tmp_path / f"built{size}"} | changes
        return publish(new_result(place, "tvm", 2.0, kind=kind, files=files, **changes)).implementation

    return make


def test_all_that_were_there_are_read_once(worker_with: Any, put: Any, reads: Reads) -> None:
    rows = [put(size) for size in (1, 2, 3)]
    Best.objects.update(published_at=timezone.now() - timedelta(days=1))
    worker = worker_with()
    worker.run_until_idle()
    assert reads.seen == [b"library 3", b"library 2", b"library 1"], "the newest first"
    kept = code_of(Implementation.objects.get(pk=rows[0].pk))
    assert (kept.text, kept.lines, kept.lines_kept, kept.tool) == (reads.answer.text, 2, 2, "objdump")
    worker.run_until_idle()
    worker_with(name="w2").run_until_idle()
    assert len(reads.seen) == 3


def test_a_new_best_is_read_before_old_ones(worker_with: Any, put: Any, reads: Reads) -> None:
    worker = worker_with()
    worker.run_until_idle()
    for size in (1, 2):
        put(size)
    assert worker._code.step(worker._workshop()) and reads.seen == [b"library 2"]


def test_windows_of_bests_are_gone_through(
    worker_with: Any, put: Any, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_code, "WINDOW", 2)
    for size in range(1, 6):
        put(size, kind="recipe" if size in (3, 4) else "c-abi")
    Best.objects.update(published_at=timezone.now() - timedelta(days=1))
    worker_with().run_until_idle()
    assert len(reads.seen) == 3 and MachineCode.objects.count() == 3


def test_library_calls_are_not_looked_at(worker_with: Any, put: Any, reads: Reads) -> None:
    row = put(1, kind="recipe")
    worker_with().run_until_idle()
    assert not reads.seen and not MachineCode.objects.exists()
    assert "no code of its own" in code_of(row).why_not


def test_what_xla_makes_where_it_is_loaded_is_not_looked_at(worker_with: Any, put: Any, reads: Reads) -> None:
    row = put(1, needs={"jax": "0.10.2"})
    worker_with().run_until_idle()
    assert not reads.seen and "where it is loaded" in code_of(row).why_not


def test_one_that_is_built_anew_is_read_anew(worker_with: Any, put: Any, reads: Reads) -> None:
    put(1)
    worker = worker_with()
    worker.run_until_idle()
    row = put(1, b"another build")
    assert "Not read yet" in code_of(Implementation.objects.get(pk=row.pk)).why_not
    worker.run_until_idle()
    assert reads.seen == [b"library 1", b"another build"] and MachineCode.objects.count() == 1


def test_what_could_not_be_read_is_tried_by_the_next_process_and_not_by_this(
    worker_with: Any, put: Any, reads: Reads
) -> None:
    row = put(1)
    able, reads.answer = reads.answer, CodeListing(why_not="objdump is not installed")
    worker = worker_with()
    for _ in range(2):
        worker.run_until_idle()
    assert len(reads.seen) == 1
    assert (
        code_of(Implementation.objects.get(pk=row.pk)).why_not == "A worker tried: objdump is not installed."
    )
    reads.answer = able
    worker_with(name="w2").run_until_idle()
    assert not code_of(Implementation.objects.get(pk=row.pk)).why_not
    machine_code.keep_code(row, "", 0, "", "no tool")  # a worker without tools comes last
    assert code_of(Implementation.objects.get(pk=row.pk)).text


def test_a_damaged_artifact_holds_nobody_up(worker_with: Any, put: Any, reads: Reads) -> None:
    put(1)
    Artifact.objects.update(damaged_at=timezone.now())
    worker_with().run_until_idle()
    assert not reads.seen


def test_one_that_does_not_verify_says_so(worker_with: Any, put: Any, reads: Reads) -> None:
    row = put(1)
    Artifact.objects.update(signature="00")
    worker_with().run_until_idle()
    assert not reads.seen and "does not verify" in code_of(Implementation.objects.get(pk=row.pk)).why_not


def test_it_gives_way_to_work(
    worker_with: Any, put: Any, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 2, 3):
        put(size)
    monkeypatch.setattr(turns, "work_waits", lambda *_: True)
    worker_with().run_until_idle()
    assert len(reads.seen) == 1


def test_a_busy_worker_reads_one_after_a_turn_that_is_no_first_result(
    worker_with: Any, put: Any, reads: Reads, make_exploration: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = worker_with()
    monkeypatch.setattr(type(worker), "_read_code", lambda self: None)  # never idle
    put(1), put(2)
    make_exploration(size=8)
    worker.run_until_idle()
    assert 0 < len(reads.seen) <= 2


def test_it_goes_with_its_implementation(worker_with: Any, put: Any, reads: Reads) -> None:
    row = put(1)
    worker_with().run_until_idle()
    Best.objects.all().delete()
    Implementation.objects.get(pk=row.pk).delete()
    assert not MachineCode.objects.exists()
