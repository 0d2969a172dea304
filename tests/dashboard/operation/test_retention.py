"""What is kept no longer goes by rule, in batches; what is needed stays."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from catalog import models
from catalog.best.artifacts import artifact_files, file_path, store_artifact, store_file
from dashboard.operation import retention
from dashboard.operation.models import RetentionMark
from opatlas.load import Manifest
from tests.catalog.making import write_file
from tests.dashboard.factory import Factory
from tuning.models import Trial

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_store(configure: Any, tmp_path: Path) -> None:
    configure(home=tmp_path / "home", store=tmp_path / "store")


def stored(folder: Path, route: str, content: bytes = b"code") -> models.Artifact:
    """Of long ago, with one file, and of nothing."""
    files = write_file(folder, "kernel.so", content)
    row = store_artifact(Manifest(kind="c-abi", route=route, operator={}, setting={}, files=files), folder)
    models.Artifact.objects.filter(pk=row.pk).update(created_at=timezone.now() - 2 * retention.GRACE)
    long_ago = time.time() - 2 * retention.GRACE.total_seconds()
    for path in artifact_files(row).values():
        os.utime(path, (long_ago, long_ago))
    return row


def test_sessions_that_have_run_out_go_and_who_is_logged_in_stays(pages: Client, reader: Client) -> None:
    keys = [client.session.session_key for client in (pages, reader)]
    Session.objects.filter(pk=keys[1]).update(expire_date=timezone.now() - timedelta(seconds=1))
    assert retention.forget_sessions() == 1
    assert [row.pk for row in Session.objects.all()] == keys[:1]
    assert [row.session_key for row in models.SignIn.objects.all()] == keys[:1]
    assert retention.forget_sessions() == 0


def test_logs_of_old_trials_go_and_the_trials_stay(
    catalogue: Factory, configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH", 2)
    numbers = sorted(Trial.objects.values_list("pk", flat=True))
    Trial.objects.update(log_tail="it said much", created_at=timezone.now())
    Trial.objects.filter(pk__in=numbers[:3]).update(created_at=timezone.now() - timedelta(days=91))
    assert [retention.forget_trial_logs() for _ in range(3)] == [2, 1, 0]
    assert sorted(Trial.objects.filter(log_tail="").values_list("pk", flat=True)) == numbers[:3]
    assert RetentionMark.objects.get(name="trial logs").position == numbers[2], "it is not gone over again"
    Trial.objects.filter(pk=numbers[3]).update(created_at=timezone.now() - timedelta(days=91))
    assert retention.forget_trial_logs() == 1
    assert Trial.objects.count() == len(numbers)


def test_an_artifact_that_nothing_has_goes_with_its_file(tmp_path: Path) -> None:
    row = stored(tmp_path / "made", "tvm")
    (path,) = artifact_files(row).values()
    assert retention.forget_unreferenced() == 1
    assert not models.Artifact.objects.exists() and not path.exists()


def test_what_an_implementation_has_stays(catalogue: Factory) -> None:
    models.Artifact.objects.update(created_at=timezone.now() - 2 * retention.GRACE)
    used = models.Artifact.objects.filter(implementations__isnull=False).distinct().count()
    retention.forget_unreferenced()
    assert models.Artifact.objects.count() == used > 0


def test_what_was_stored_lately_stays(tmp_path: Path) -> None:
    """Its implementation is yet to be written."""
    row = stored(tmp_path / "made", "tvm")
    models.Artifact.objects.update(created_at=timezone.now())
    assert retention.forget_unreferenced() == 0
    assert artifact_files(row)


def test_a_file_that_another_artifact_names_stays(tmp_path: Path) -> None:
    gone, other = stored(tmp_path / "made", "tvm"), stored(tmp_path / "made", "halide")
    models.Artifact.objects.filter(pk=other.pk).update(created_at=timezone.now())
    assert retention.forget_unreferenced() == 1
    assert not models.Artifact.objects.filter(pk=gone.pk).exists() and artifact_files(other)


def test_a_file_that_somebody_stores_again_just_now_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though no row names it yet: its worker has found it there, and goes on to write its row."""
    row = stored(tmp_path / "made", "tvm")
    digest = row.manifest["files"]["kernel.so"]
    store_file(tmp_path / "made", "kernel.so", digest)
    assert retention.forget_unreferenced() == 1
    assert file_path(digest).exists()


def test_all_are_gone_over_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "BATCH", 1)
    for number in range(3):
        stored(tmp_path / str(number), "tvm", str(number).encode())
    models.Artifact.objects.filter(pk=models.Artifact.objects.first().pk).update(created_at=timezone.now())
    assert [retention.forget_unreferenced() for _ in range(4)] == [0, 1, 1, 0]
    models.Artifact.objects.update(created_at=timezone.now() - 2 * retention.GRACE)
    assert retention.forget_unreferenced() == 1


def test_one_batch_of_each_is_the_couriers_chore(pages: Client) -> None:
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    retention.forget_by_rule()
    assert not Session.objects.exists()
