"""What a client refuses to load, each with its reason, through a real server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.best import revoked
from catalog.best.artifacts import file_path
from catalog.best.signers import retire_signer
from catalog.best.withdrawing import withdraw
from catalog.models import Artifact, Best, Implementation
from opatlas.client import Refused, Trust, fetch_and_load
from opatlas.errors import CallerError
from opatlas.load.signing import new_key, public_bytes
from tests.opatlas.load.kernels import add_operator


@pytest.fixture
def hit(publish_add, client):
    """The answer for a published addition."""

    def ask(**manifest):
        publish_add(**manifest)
        (answer,) = client.lookup([add_operator()])
        assert answer.hit
        return answer

    return ask


@pytest.fixture
def refused(client, tmp_path):
    """``refused(answer)``: why and how it was refused."""

    def load(answer, trust=None):
        with pytest.raises(Refused) as caught:
            fetch_and_load(client, answer, tmp_path / "fetched", trust)
        return caught.value.why, str(caught.value)

    return load


def test_an_answer_says_its_stage_and_how_long_it_may_be_used(hit, client):
    answer = hit()
    assert (answer.stage, answer.final, answer.is_default, answer.expires_s) == ("first", True, False, 300.0)
    Best.objects.update(final=False, is_default=True)
    (answer,) = client.lookup([answer.key], wait_s=0.2, wait_for="contest")
    assert (answer.stage, answer.final, answer.is_default, answer.expires_s) == ("first", False, True, 10.0)
    with pytest.raises(CallerError, match="wait_for is one of first, contest, tuned"):
        client.lookup([answer.key], wait_for="best")


def test_what_is_right_is_loaded_and_computes(hit, client, tmp_path, signing_key):
    answer = hit()
    for trust in (None, Trust.in_keys([public_bytes(signing_key)])):
        kernel = fetch_and_load(client, answer, tmp_path / "fetched", trust)
        x = np.arange(1000, dtype=np.float32)
        bound = kernel.bind({0: x, 1: 2 * x})
        bound()
        assert (bound.outputs()[0] == 3 * x).all()
        kernel.close()


def test_a_tampered_byte_in_a_file(hit, refused, careless):
    answer = hit()
    row = Artifact.objects.get()
    path = file_path(row.manifest["files"]["kernel.so"])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    why, sentence = refused(answer)
    assert why == "file"
    assert "kernel.so has the SHA-256" in sentence


@pytest.mark.parametrize("change", [{"alignment": 128}, {"route": "cpq"}, {"needs": {"numpy": "1.0"}}])
def test_a_tampered_manifest(hit, refused, careless, change):
    answer = hit()
    row = Artifact.objects.get()
    row.manifest = {**row.manifest, **change}
    row.save()
    why, sentence = refused(answer)
    assert why == "signature"
    assert "was changed" in sentence


def test_a_manifest_that_is_none(hit, refused, careless):
    answer = hit()
    Artifact.objects.update(manifest={"files": {}, "kind": "c-abi"})
    assert refused(answer)[0] == "manifest"


def test_a_tampered_signature(hit, refused, careless):
    answer = hit()
    row = Artifact.objects.get()
    row.signature = "00" + row.signature[2:]
    row.save()
    assert refused(answer)[0] == "signature"


def test_another_artifact_that_is_signed_as_well_in_its_place(hit, publish_add, refused, careless):
    answer = hit()
    other = publish_add(size=999).implementation.artifact
    Artifact.objects.filter(sha256=answer.best["artifact"]).update(
        manifest=other.manifest, signature=other.signature, signer=other.signer
    )
    why, sentence = refused(answer)
    assert why == "address"
    assert other.sha256[:12] in sentence


def test_an_unknown_signer(hit, refused, tmp_path):
    answer = hit()
    stranger = Trust.in_keys([public_bytes(new_key(tmp_path / "stranger.pem"))])
    why, sentence = refused(answer, stranger)
    assert why == "unknown-signer"
    assert "not trusted" in sentence


def test_no_signature_at_all(hit, refused):
    answer = hit()
    Artifact.objects.update(signature="", signer="")
    assert refused(answer) == ("unknown-signer", "The manifest is not signed.")


def test_a_retired_signer(hit, refused):
    answer = hit()
    retire_signer(Artifact.objects.get().signer)
    why, sentence = refused(answer)
    assert why == "retired-signer"
    assert "retired on 2" in sentence


def test_another_operator_than_asked_for(hit, refused):
    answer = replace(hit(), key=add_operator(5).key)
    why, sentence = refused(answer)
    assert why == "operator"
    assert answer.key in sentence


def test_another_setting_than_asked_for(hit, refused):
    assert refused(replace(hit(), setting="s1:" + "0" * 64))[0] == "setting"


def test_another_target_than_asked_for(hit, refused):
    why, sentence = refused(replace(hit(), target="t1:" + "0" * 64))
    assert why == "target"
    assert "not for t1:" in sentence


def test_an_entry_for_other_hardware_than_this(hit, refused, client):
    answer = hit()
    client.target = replace(client.target, isa="aarch64", arch="neoverse_v1", vendor="ARM")
    why, sentence = refused(replace(answer, target=client.target.key))
    assert why == "target"
    assert "neoverse_v1" in sentence


def test_a_cpu_feature_that_is_missing_here(hit, refused):
    why, sentence = refused(hit(features=("avx2", "amx_of_tomorrow")))
    assert why == "feature"
    assert "amx_of_tomorrow" in sentence


@pytest.mark.parametrize(
    ("needs", "said"), [({"numpy": "1.0.0"}, "is installed"), ({"no-such-thing": "1"}, "is not installed")]
)
def test_a_version_that_is_not_here(hit, refused, needs, said):
    why, sentence = refused(hit(needs=needs))
    assert why == "version"
    assert said in sentence


def test_what_was_revoked_meanwhile(hit, refused, client):
    answer = hit()
    withdraw(Implementation.objects.all(), "reads past its input")
    revoked.forget()
    client.lookup(["o1:" + "0" * 64])
    assert (client.entry_life_s, client.revoked) == (300.0, {answer.best["artifact"]})
    assert refused(answer)[0] == "revoked"


def test_a_miss_has_nothing_to_load(client, transactional_db, tmp_path):
    (answer,) = client.lookup([add_operator()])
    with pytest.raises(CallerError, match="nothing to load"):
        fetch_and_load(client, answer, tmp_path)


def test_every_signer_is_listed_page_by_page(client, transactional_db):
    from catalog.best.signers import register_signer

    for number in range(205):
        register_signer(number.to_bytes(32, "big"))
    assert len(client.signers()) == 205
    assert len(Trust.of_service(client).keys) == 205
