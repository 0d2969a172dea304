"""What is answered and kept while the disk of the journal, or of the store, is full."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog import models
from catalog.best.artifacts import artifact_files, store_artifact
from catalog.errors import StoreError
from catalog.usage import journal
from catalog.usage.draining import drain_journal
from opatlas.load import Manifest
from tests import disks
from tests.disks import fill

pytestmark = pytest.mark.django_db
SIZE_KIB = 256


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "small", SIZE_KIB) as folder:
        yield folder
        journal.close()


def test_a_hit_that_cannot_be_journalled_is_not_served_and_nothing_is_lost(
    small_disk: Path, api: Any, body: Any, put: Any, configure: Any
) -> None:
    configure(home=small_disk)
    put(9, "eager", 1.0)
    assert api.post("lookup", body(9)).status_code == 200
    filler = fill(small_disk)

    answers = [api.post("lookup", body(9)) for _ in range(200)]
    served = [answer for answer in answers if answer.status_code == 200]  # what still fits its last page
    refused = [answer for answer in answers if answer.status_code != 200]
    assert refused and {answer.status_code for answer in refused} == {503}
    assert all(one.json()["error"].startswith("The disk is full: the journal") for one in refused)

    filler.unlink()
    assert api.post("lookup", body(9)).status_code == 200
    journal.close()
    drain_journal()
    assert models.Usage.objects.count() == len(served) + 2


def test_an_artifact_that_does_not_fit_is_refused_whole_and_fits_later(
    small_disk: Path, tmp_path: Path, configure: Any
) -> None:
    configure(store=small_disk)
    folder = tmp_path / "build"
    folder.mkdir()
    code = b"c" * (SIZE_KIB * 1024 // 2)
    (folder / "kernel.so").write_bytes(code)
    digest = hashlib.sha256(code).hexdigest()
    manifest = Manifest(kind="c-abi", route="tvm", operator={}, setting={}, files={"kernel.so": digest})
    filler = fill(small_disk)

    with pytest.raises(StoreError, match=r"The disk is full: .*No space left"):
        store_artifact(manifest, folder)
    assert models.Artifact.objects.count() == 0
    assert [path for path in small_disk.rglob("*") if path.is_file()] == [filler]

    filler.unlink()
    row = store_artifact(manifest, folder)
    assert artifact_files(row)["kernel.so"].read_bytes() == code
