"""Whose signatures count, and signing anew after a key was retired."""

import io

import pytest
from django.core.management import CommandError, call_command

from catalog import models
from catalog.best.artifacts import store_artifact
from catalog.best.signers import counts, retire_signer
from catalog.errors import RequestError, StoreError
from opatlas.load import Manifest
from opatlas.load.signing import new_key, public_bytes, verify

pytestmark = pytest.mark.django_db


def manifest_of(route):
    return Manifest(kind="recipe", route=route, operator={}, setting={}, recipe={})


def run(*arguments):
    said = io.StringIO()
    call_command(*arguments, stdout=said, stderr=io.StringIO())
    return said.getvalue()


def test_who_signs_is_listed_by_its_public_key(api, tmp_path):
    key = new_key(tmp_path / "a.pem")
    row = store_artifact(manifest_of("a"), tmp_path, key)
    (signer,) = api.get("signers/").json()["results"]
    assert (signer["sha256"], signer["public_key"]) == (row.signer, public_bytes(key).hex())
    assert signer["retired_at"] is None


def test_a_retired_key_signs_no_more_and_another_signs_anew(api, tmp_path):
    old, new = new_key(tmp_path / "old.pem"), new_key(tmp_path / "new.pem")
    row = store_artifact(manifest_of("a"), tmp_path, old)
    assert "is retired" in run("retire_signer", row.signer[:10])
    assert not counts(row.signer)
    assert api.get("signers/").json()["results"][0]["retired_at"]
    with pytest.raises(StoreError, match="retired"):
        store_artifact(manifest_of("b"), tmp_path, old)
    assert not models.Artifact.objects.filter(manifest__contains='"b"').exists()
    again = store_artifact(manifest_of("a"), tmp_path, new)
    verify(manifest_of("a"), bytes.fromhex(again.signature), [public_bytes(new)])


def test_a_signature_that_counts_stays_whoever_stores_it_again(tmp_path):
    first = store_artifact(manifest_of("a"), tmp_path, new_key(tmp_path / "one.pem"))
    second = store_artifact(manifest_of("a"), tmp_path, new_key(tmp_path / "two.pem"))
    assert second.signature == first.signature


def test_everything_is_signed_anew_by_command(tmp_path, configure):
    configure(signing_key=tmp_path / "old.pem")
    from tuning.explore.signing import signing_key

    for route in "abc":
        store_artifact(manifest_of(route), tmp_path, signing_key())
    store_artifact(manifest_of("unsigned"), tmp_path)
    retired = retire_signer(models.Signer.objects.get().sha256)
    with pytest.raises(CommandError, match="move it away first"):
        run("sign_artifacts")
    configure(signing_key=tmp_path / "new.pem")
    assert run("sign_artifacts").startswith("4 artifacts")
    assert run("sign_artifacts").startswith("0 artifacts")
    for row in models.Artifact.objects.all():
        assert row.signer != retired.sha256
        verify(Manifest.from_json(row.manifest), bytes.fromhex(row.signature), [public_bytes(signing_key())])


def test_retiring_names_one_signer():
    from catalog.best.signers import register_signer

    for number in range(17):  # so that at least two begin with the same digit
        register_signer(bytes([number]) * 32)
    first = [row.sha256[0] for row in models.Signer.objects.all()]
    shared = next(digit for digit in first if first.count(digit) > 1)
    for beginning in ("", "zz", shared):
        with pytest.raises(RequestError, match="begins"):
            retire_signer(beginning)
    assert not models.Signer.objects.exclude(retired_at=None).exists()
