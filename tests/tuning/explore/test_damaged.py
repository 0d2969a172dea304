"""What lies in the store and is not what was stored: no worker loads it, times it or leaves it at the top."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.best.artifacts import artifact_files
from catalog.best.damage import damaged
from catalog.best.scrubbing import scrub_all
from catalog.models import Artifact, Best, Implementation, Miss
from opatlas.load import Manifest
from tests.tuning.fakes import FakeBench, FakeLaboratory, FakeRoute
from tuning.environments.rebuilding import ask_for_rebuilds, settle_rebuilds
from tuning.models import Exploration, State
from tuning.queue import steering
from tuning.routes.base import BuiltArtifact

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The fake laboratory's artifacts have a file each. Gives the folders of timed incumbents."""
    build, line_up, timed = FakeLaboratory.build, FakeBench.line_up, []

    def with_file(lab: Any, route: Any, *rest: Any) -> Any:
        built = build(lab, route, *rest)
        code = f"{route.name} {rest[2].label}".encode()
        built.folder.mkdir(exist_ok=True, parents=True)
        (built.folder / "kernel.so").write_bytes(code)
        files = {"kernel.so": hashlib.sha256(code).hexdigest()}
        return BuiltArtifact(replace(built.manifest, files=files), built.folder)

    def noting(bench: Any, artifacts: Any, **more: Any) -> Any:
        timed.extend(one.folder for one in artifacts if one.folder.name.startswith("held-"))
        return line_up(bench, artifacts, **more)

    monkeypatch.setattr(FakeLaboratory, "build", with_file)
    monkeypatch.setattr(FakeBench, "line_up", noting)
    return timed


def artifact_of(route: str) -> Artifact:
    return Implementation.objects.get(route=route).artifact


def flip_a_byte(route: str) -> None:
    (path,) = artifact_files(artifact_of(route)).values()
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def scrub_and_build_again(worker: Any) -> None:
    """What the courier, the leader and a worker do, one after the other."""
    scrub_all()
    assert ask_for_rebuilds() == 1 and ask_for_rebuilds() == 0, "each is asked for once"
    assert settle_rebuilds() == 0, "its round has yet to begin"
    worker.run_until_idle()
    settle_rebuilds()


def explore_again(worker: Any) -> None:
    steering.retry(Exploration.objects.get().pk)
    worker.run_until_idle()
    assert Exploration.objects.get().state == State.DONE


def test_a_damaged_incumbent_is_not_timed_and_loses_its_place(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    assert Best.objects.get(rank=0).route == "good"
    compiled.clear()
    flip_a_byte("good")
    explore_again(worker_with(FakeRoute("newer", offers=[{"ratio": 2.5}])))
    assert compiled == [], "nothing that does not verify was loaded"
    assert Best.objects.get(rank=0).route == "newer"
    fallen = artifact_of("good")
    assert fallen.damaged_at and "artifact is damaged: kernel.so has the SHA-256" in fallen.damaged_reason
    assert not Best.objects.filter(route="good").exists(), "it is served no longer"
    assert "artifact is damaged" in caplog.text
    explore_again(worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])))
    fallen.refresh_from_db()
    assert fallen.damaged_at is None and Best.objects.filter(route="good").exists(), "built again it is whole"
    (path,) = artifact_files(artifact_of("good")).values()
    assert path.read_bytes() == b"good variant 0"


def test_a_changed_recipe_is_not_timed(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path]
) -> None:
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    row = artifact_of("good")
    row.manifest = {**row.manifest, "recipe": {"library": "fake", "ratio": 99.0}}
    row.sha256 = Manifest.from_json(row.manifest).sha256
    row.save()
    compiled.clear()
    explore_again(worker_with(FakeRoute("newer", offers=[{"ratio": 2.5}])))
    assert compiled == []
    assert "signature" in artifact_of("good").damaged_reason


def test_under_a_retired_key_nothing_is_loaded_and_nothing_is_taken_from_anybody(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path]
) -> None:
    """Whoever retires a key signs again afterwards: until then the stored figures decide alone."""
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    compiled.clear()
    Artifact.objects.update(signer="0" * 64)
    explore_again(worker_with(FakeRoute("newer", offers=[{"ratio": 2.5}])))
    assert Best.objects.get(rank=0).route == "newer"
    assert Implementation.objects.get(route="good").failed_at is None
    assert compiled == []


def test_a_damaged_artifact_is_built_again_and_served_at_its_address(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path]
) -> None:
    """Though its route would not offer it by itself: what a search has found is not among that."""
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    before = artifact_of("good").sha256
    flip_a_byte("good")
    scrub_all()
    assert Best.objects.get(rank=0).route == "eager", "the next best is served meanwhile"
    scrub_and_build_again(worker_with(FakeRoute("good", offers=[])))
    assert Best.objects.get(rank=0).artifact_sha256 == before
    assert not damaged().exists() and Exploration.objects.get().state == State.DONE
    (path,) = artifact_files(artifact_of("good")).values()
    assert path.read_bytes() == b"good variant 0"


def test_a_build_that_differs_is_served_as_another_artifact(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    before = artifact_of("good").sha256
    flip_a_byte("good")
    build = FakeLaboratory.build

    def otherwise(lab: Any, route: Any, *rest: Any) -> Any:
        built = build(lab, route, *rest)
        (built.folder / "kernel.so").write_bytes(b"otherwise")
        files = {"kernel.so": hashlib.sha256(b"otherwise").hexdigest()}
        return BuiltArtifact(replace(built.manifest, files=files), built.folder)

    monkeypatch.setattr(FakeLaboratory, "build", otherwise)
    scrub_and_build_again(worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])))
    assert Best.objects.get(rank=0).route == "good"
    assert Best.objects.get(rank=0).artifact_sha256 != before
    assert not damaged().exists(), "nobody waits for the old one"


def test_what_cannot_be_built_again_fails_until_evidence_says_else(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path]
) -> None:
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    flip_a_byte("good")
    scrub_and_build_again(worker_with(FakeRoute("other", offers=[{"ratio": 1.5}])))
    fallen = Implementation.objects.get(route="good")
    assert "built again it was not the same" in fallen.failed_reason
    assert not damaged().exists()
    assert not Best.objects.filter(route="good").exists()


def test_what_was_imported_has_an_exploration_made_for_it(
    make_miss: Callable[..., Any], worker_with: Any, compiled: list[Path]
) -> None:
    make_miss()
    worker_with(FakeRoute("good", offers=[{"ratio": 2.0}])).run_until_idle()
    Exploration.objects.all().delete()
    Miss.objects.all().delete()
    flip_a_byte("good")
    scrub_all()
    assert ask_for_rebuilds() == 1
    row = Exploration.objects.get()
    assert row.pending_routes == "good" and row.round_reason.startswith("artifact is damaged: kernel.so")
