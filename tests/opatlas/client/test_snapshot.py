"""Pinned snapshots: the same choices byte for byte, whatever was found since."""

from __future__ import annotations

import zipfile

import numpy as np
import pytest

from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Implementation
from opatlas.client import Client, Snapshot, export_snapshot
from opatlas.errors import CallerError, LoadError
from opatlas.identity import Setting
from opatlas.load.signing import new_key, public_bytes
from tests.opatlas.load.kernels import add_operator

X = np.ones(1000, np.float32)


@pytest.fixture
def ours(tmp_path):
    return new_key(tmp_path / "ours.pem")


@pytest.fixture
def taken(publish_add, job, ours, tmp_path):
    """A snapshot of two additions."""
    publish_add()
    publish_add(999)
    return export_snapshot(job(), [add_operator(), add_operator(999)], tmp_path / "job.opatlas", ours)


@pytest.fixture
def elsewhere(tmp_path):
    """``elsewhere(snapshot)``: a client on a machine that never heard of the service."""
    made = []

    def make(snapshot, **options):
        given = {"cache": tmp_path / "elsewhere", "setting": Setting(threads=1), "snapshot": snapshot}
        made.append(Client("http://127.0.0.1:9", "no-key", **(given | options)))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_a_job_is_reproduced_without_the_service(taken, elsewhere, ours):
    Best.objects.all().delete()  # whatever has been found since
    client = elsewhere(Snapshot.open(taken.path, [public_bytes(ours)]))
    answer = client.lookup("Add", X, X)
    assert answer.source == "snapshot" and answer.best == taken.answers[add_operator().key].best
    assert (answer.load()(X, X) == 2).all()
    assert not client.lookup(add_operator(5)) and client.counts["requests"] == 0


def test_the_same_choices_are_the_same_bytes(taken, job, ours, tmp_path):
    again = export_snapshot(
        job(), [add_operator(999), add_operator(), add_operator()], tmp_path / "again", ours
    )
    assert again.path.read_bytes() == taken.path.read_bytes()


@pytest.mark.parametrize("part", ["snapshot.json", "signature"])
def test_a_changed_byte_is_refused(taken, ours, tmp_path, part):
    changed = tmp_path / "changed"
    with zipfile.ZipFile(taken.path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            content = bytearray(old.read(name))
            content[len(content) // 2] ^= name == part
            new.writestr(name, bytes(content))
    with pytest.raises(LoadError, match="signed by none of the trusted keys, or was changed"):
        Snapshot.open(changed, [public_bytes(ours)])


def test_a_changed_file_is_refused_when_it_is_loaded(taken, elsewhere, ours, tmp_path):
    changed = tmp_path / "changed"
    with zipfile.ZipFile(taken.path) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"another kernel" if name.startswith("files/") else old.read(name))
    client = elsewhere(Snapshot.open(changed, [public_bytes(ours)]))
    with pytest.raises(LoadError, match="has the SHA-256"):
        client.lookup(add_operator()).load()


def test_strangers_and_rubbish_are_refused(taken, tmp_path):
    with pytest.raises(LoadError, match="none of the trusted keys"):
        Snapshot.open(taken.path, [public_bytes(new_key(tmp_path / "stranger.pem"))])
    for content in (b"", b"PK rubbish", taken.path.read_bytes()[:200]):
        (tmp_path / "rubbish").write_bytes(content)
        with pytest.raises(LoadError, match="cannot be read"):
            Snapshot.open(tmp_path / "rubbish", [])


def test_what_was_revoked_since_does_not_run(taken, job):
    withdraw(Implementation.objects.filter(route="cpp"), "it is wrong")
    revoked.forget()
    job().lookup("Relu", (7,))  # this machine is told
    client = job(snapshot=taken)
    assert (
        client.lookup(add_operator()).reason == "What the snapshot has for this operator was revoked since."
    )


def test_another_target_or_setting_is_refused(taken, elsewhere):
    with pytest.raises(CallerError, match="for the setting"):
        elsewhere(taken, setting=Setting(threads=2))


def test_what_is_not_known_cannot_be_pinned_and_nothing_is_written(taken, job, ours, tmp_path):
    with pytest.raises(CallerError, match="is not known"):
        export_snapshot(job(), [add_operator(), add_operator(5)], tmp_path / "more", ours)
    assert not (tmp_path / "more").exists()


def test_a_damaged_archive_is_refused_whatever_it_was_compressed_with(tmp_path):
    for method in (zipfile.ZIP_LZMA, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "whole", "w", method) as archive:
            archive.writestr("snapshot.json", "{}" * 200)
            archive.writestr("signature", "x" * 64)
        whole = (tmp_path / "whole").read_bytes()
        for place in range(len(whole)):
            (tmp_path / "damaged").write_bytes(whole[:place] + b"\x80" + whole[place + 1 :])
            with pytest.raises(LoadError):
                Snapshot.open(tmp_path / "damaged", [b"k" * 32])


def test_a_snapshot_that_inflates_without_end_is_refused(ours, tmp_path, monkeypatch):
    from opatlas.client import snapshot

    monkeypatch.setattr(snapshot, "MOST_JSON_BYTES", 1 << 16)
    for name, size in (("snapshot.json", 1 << 20), ("signature", 1 << 20)):
        with zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("snapshot.json", b"{" * (size if name == "snapshot.json" else 1))
            archive.writestr("signature", b"0" * (size if name == "signature" else 64))
        with pytest.raises(LoadError, match="has more than"):
            Snapshot.open(tmp_path / "bomb", [public_bytes(ours)])


def test_with_a_snapshot_nobody_is_asked_whoever_waits(taken, elsewhere):
    client, told = elsewhere(taken), []
    client.when_known(told.append, add_operator())
    client.when_known(told.append, add_operator(5))
    assert [bool(answer) for answer in told] == [True, False]
    assert client.lookup(add_operator()).source == "snapshot" and client.counts["requests"] == 0


def test_a_damaged_file_in_the_cache_comes_from_the_snapshot_again(taken, elsewhere, tmp_path):
    client = elsewhere(taken)
    client.lookup(add_operator()).load()
    for kernel in (tmp_path / "elsewhere").rglob("kernel.so"):
        kernel.write_bytes(b"damaged")
    assert (client.lookup(add_operator()).load()(X, X) == 2).all()
