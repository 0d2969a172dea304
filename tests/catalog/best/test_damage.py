"""What lies in the store and is not what was stored is served to nobody, until it is whole again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from django.utils import timezone

from catalog import models
from catalog.best import damage, scrubbing, vouching
from catalog.best.artifacts import artifact_files, store_artifact
from catalog.best.scrubbing import scrub
from catalog.conf import conf
from catalog.errors import StoreError
from opatlas.load import Manifest
from tests.catalog.making import write_file

pytestmark = pytest.mark.django_db


@pytest.fixture
def compiled(put: Any, tmp_path: Path) -> Callable[..., models.Artifact]:
    """``compiled(64, "tvm", 2.0)`` publishes what has a file; gives its artifact."""

    def make(length: int = 64, route: str = "tvm", ratio: float = 2.0) -> models.Artifact:
        folder = tmp_path / f"{route}-{length}"
        files = write_file(folder, "kernel.so", f"{route} {length}".encode())
        made = put(length, route, ratio, kind="c-abi", needs={}, files=files, folder=folder)
        artifact: models.Artifact = made.implementation.artifact
        return artifact

    return make


@pytest.fixture(autouse=True)
def a_pass_that_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step compares everything."""
    monkeypatch.setattr(scrubbing, "_elapsed", lambda row: 1.0)


def flip_a_byte(artifact: models.Artifact) -> None:
    (path,) = artifact_files(artifact).values()
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


def remove(artifact: models.Artifact) -> None:
    (path,) = artifact_files(artifact).values()
    path.unlink()


def change_the_manifest(artifact: models.Artifact) -> None:
    artifact.manifest = {**artifact.manifest, "alignment": 8}
    artifact.save()


harms = pytest.mark.parametrize("harm", [flip_a_byte, remove, change_the_manifest])


def url(artifact: models.Artifact, file: str = "") -> str:
    return f"artifacts/{artifact.sha256}" + (f"/files/{file}" if file else "")


class TestFetching:
    @pytest.mark.parametrize("harm", [flip_a_byte, remove])
    @pytest.mark.parametrize("asked_before", [False, True])
    def test_a_damaged_file_is_not_available(self, api, compiled, harm, asked_before):
        """Also where this process had found it whole: it was written since."""
        artifact = compiled()
        if asked_before:
            assert api.get(url(artifact, "kernel.so")).status_code == 200
        harm(artifact)
        answer = api.get(url(artifact, "kernel.so"))
        assert answer.status_code == 503 and answer["Retry-After"]
        assert "Not available: artifact is damaged: kernel.so" in answer.json()["error"]
        artifact.refresh_from_db()
        assert artifact.damaged_at is not None
        assert not models.Best.objects.exists(), "nobody is sent there again"

    @harms
    def test_a_damaged_artifacts_manifest_is_not_available(self, api, compiled, harm):
        artifact = compiled()
        harm(artifact)
        assert api.get(url(artifact)).status_code == 503

    def test_who_has_it_already_is_not_told_that_it_is_fine(self, api, compiled):
        artifact = compiled()
        etag = f'"{artifact.manifest["files"]["kernel.so"]}"'
        flip_a_byte(artifact)
        asked = api.client.get(
            f"/api/v1/{url(artifact, 'kernel.so')}", headers=api.headers | {"If-None-Match": etag}
        )
        assert asked.status_code == 503

    def test_an_unmounted_store_says_nothing_of_what_was_stored(self, api, compiled):
        artifact = compiled()
        conf().store.rename(conf().store.with_name("elsewhere"))
        answer = api.get(url(artifact, "kernel.so"))
        assert answer.status_code == 503 and "is it mounted?" in answer.json()["error"]
        artifact.refresh_from_db()
        assert artifact.damaged_at is None and models.Best.objects.exists()


class TestLookups:
    @harms
    def test_the_next_best_is_served_in_its_place(self, ask, put, compiled, harm):
        put(64, "eager", 1.0)
        harm(compiled())
        answer = ask(64, include=frozenset({"manifest"}))
        assert [(one.status, one.best.route) for one in answer.results] == [("hit", "eager")]
        assert [row.manifest["route"] for row in answer.artifacts] == ["eager"]

    def test_without_a_next_best_it_is_a_miss_with_the_reason(self, ask, compiled):
        flip_a_byte(compiled())
        for _ in range(2):
            (one,) = ask(64, include=frozenset({"manifest"})).results
            assert (one.status, one.state) == ("miss", "waiting")
            assert "artifact is damaged: kernel.so" in one.reason and "built again" in one.reason

    def test_what_was_found_damaged_by_others_is_served_by_nobody(self, ask, put, compiled):
        put(64, "eager", 1.0)
        artifact = compiled()
        flip_a_byte(artifact)
        assert scrub() == 2
        (one,) = ask(64).results
        assert one.best.route == "eager"

    def test_whole_ones_are_read_once_by_a_process(self, ask, compiled, django_assert_num_queries):
        compiled()
        first = ask(64, include=frozenset({"manifest"}))
        assert first.results[0].status == "hit"
        with django_assert_num_queries(0):
            assert vouching.find_damaged([row.sha256 for row in first.artifacts]) == set()

    def test_lookups_go_on_while_the_store_is_not_mounted(self, ask, compiled):
        compiled()
        conf().store.rename(conf().store.with_name("elsewhere"))
        assert ask(64, include=frozenset({"manifest"})).results[0].status == "hit"


class TestScrubbing:
    @harms
    def test_it_finds_what_nobody_asks_for(self, compiled, harm):
        whole, harmed = compiled(8), compiled(64)
        harm(harmed)
        scrub()
        assert [row.pk for row in damage.damaged()] == [harmed.pk]
        assert models.Best.objects.get().implementation.artifact_id == whole.pk
        assert "artifact is damaged" in models.BestChange.objects.order_by("pk").last().reason

    def test_a_changed_signature_is_found(self, put):
        made = put(64, "eager", 1.0, signing_key=Ed25519PrivateKey.generate())
        artifact = made.implementation.artifact
        artifact.signature = "0" * len(artifact.signature)
        artifact.save()
        scrub()
        assert "signature" in damage.damaged().get().damaged_reason

    def test_what_is_put_back_is_served_again_as_it_was(self, compiled):
        artifact = compiled()
        (path,) = artifact_files(artifact).values()
        content = path.read_bytes()
        before = models.Best.objects.values_list("route", "artifact_sha256", "median_us").get()
        path.unlink()
        scrub()
        assert not models.Best.objects.exists()
        path.write_bytes(content)
        scrub()
        assert models.Best.objects.values_list("route", "artifact_sha256", "median_us").get() == before
        assert not damage.damaged().exists()
        assert models.Miss.objects.get().state == "explored"

    def test_an_empty_store_is_an_error_and_empties_no_catalogue(self, compiled):
        compiled()
        shutil.rmtree(conf().store)
        conf().store.mkdir()
        with pytest.raises(StoreError, match="is it mounted"):
            scrub()
        with pytest.raises(CommandError, match="scrub --lost"):
            call_command("scrub")
        assert models.Best.objects.exists() and not damage.damaged().exists()

    def test_a_disk_that_is_lost_for_good_is_said_to_be(self, compiled, capsys):
        compiled(8), compiled(64)
        shutil.rmtree(conf().store)
        call_command("scrub", "--lost")
        assert "2 artifacts were compared, 2 are damaged." in capsys.readouterr().out
        assert not models.Best.objects.exists()

    def test_a_best_that_was_seated_meanwhile_loses_its_seat(self, compiled):
        artifact = compiled()
        flip_a_byte(artifact)
        models.Artifact.objects.update(damaged_at=timezone.now(), damaged_reason="artifact is damaged")
        scrub()
        assert not models.Best.objects.exists()

    def test_revoked_ones_are_no_damage_that_anybody_waits_for(self, compiled):
        flip_a_byte(compiled())
        models.Implementation.objects.update(revoked_at=timezone.now())
        scrub()
        assert not damage.damaged().exists() and models.Artifact.objects.get().damaged_at


class TestPasses:
    def test_a_pass_is_spread_over_its_time_and_goes_on_after_a_restart(self, compiled, monkeypatch):
        artifacts = [compiled(length) for length in range(8, 18)]
        first = artifacts[0].pk
        share = (first + 4) / artifacts[-1].pk
        monkeypatch.setattr(scrubbing, "_elapsed", lambda row: share)
        assert scrub() == 5
        assert scrub() == 0, "the rest has its time"
        monkeypatch.setattr(scrubbing, "_elapsed", lambda row: 1.0)
        assert scrub() == 5, "where it was: the row says so"
        assert scrubbing.scrub_pass().ended_at is None
        assert scrub() == 10, "and the next pass begins"
        assert scrubbing.scrub_pass().ended_at is not None

    def test_a_step_is_bounded_and_the_next_goes_on(self, compiled):
        for length in range(8, 14):
            compiled(length)
        assert [scrub(step_s=-1.0) for _ in range(3)] == [1, 1, 1]
        assert scrub() == 3

    def test_time_that_has_gone_is_a_share_of_a_pass(self, monkeypatch):
        monkeypatch.undo()
        row = models.ScrubPass(began_at=timezone.now() - timedelta(hours=6))
        assert scrubbing._elapsed(row) == pytest.approx(0.25, abs=0.01)
        row.began_at = timezone.now() + timedelta(days=300)  # a clock that went wrong
        assert scrubbing._elapsed(row) == 1.0


@harms
def test_the_same_build_makes_it_whole_at_its_address(compiled, tmp_path, harm):
    artifact = compiled()
    manifest = Manifest.from_json(artifact.manifest)
    before = models.Best.objects.values_list("route", "artifact_sha256").get()
    harm(artifact)
    scrub()
    assert not models.Best.objects.exists()
    again = store_artifact(manifest, tmp_path / "tvm-64")
    assert again.pk == artifact.pk and again.damaged_at is None
    assert models.Best.objects.values_list("route", "artifact_sha256").get() == before
    scrub()
    assert not damage.damaged().exists()


def test_an_artifact_that_cannot_be_compared_holds_up_no_other(compiled, monkeypatch):
    first, bad, last = (compiled(length) for length in (64, 65, 66))
    for one in (first, last):
        flip_a_byte(one)
    real = scrubbing.damage_of

    def breaks(artifact, keys):
        if artifact == bad:
            raise KeyError("files")
        return real(artifact, keys)

    monkeypatch.setattr(scrubbing, "damage_of", breaks)
    scrub(step_s=60)
    found = dict(models.Artifact.objects.values_list("pk", "damaged_at"))
    assert [bool(found[one.pk]) for one in (first, bad, last)] == [True, False, True]
    assert models.StepFailure.objects.get().row == bad.pk
