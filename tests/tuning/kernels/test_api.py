"""Kernels over REST: whose key may do what, one sentence for what is wrong, pages, and privacy."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Organisation
from catalog.people.keys import create_api_key
from catalog.registry import default_organisation
from tests.conftest import Api
from tests.tuning.kernels.conftest import PATTERN, SOURCE
from tuning.kernels.models import KernelEvaluation, KernelVersion, VersionState

pytestmark = pytest.mark.django_db

BODY = {"name": "softmax", "source": SOURCE, "pattern": PATTERN, "author": "Ada", "licence": "mit"}


@pytest.fixture
def as_(people: Any) -> Any:
    """``as_("ada", "kernels")``: the API, with a key of that user (or nobody's)."""

    def make(name: str, *scopes: str, organisation: Any = None) -> Api:
        owner = organisation or default_organisation()
        return Api(create_api_key(owner, "test", scopes, user=people.get(name))[1])

    return make


def test_a_kernel_is_submitted_read_and_decided(explored: Any, as_: Any) -> None:
    explored(64)
    ada, bob = as_("ada", "kernels"), as_("bob", "approve")
    answer = ada.post("kernels/", BODY)
    assert answer.status_code == 201, answer.json()
    made = answer.json()
    assert (made["name"], made["version"], made["state"], made["licence"]) == (
        "softmax",
        1,
        "submitted",
        "MIT",
    )
    (listed,) = bob.get("kernels/").json()["results"]
    assert (listed["name"], listed["version"], listed["state"]) == ("softmax", 1, "submitted")
    assert bob.get("kernels/", state="approved").json()["count"] == 0
    assert bob.get(f"kernels/{made['kernel']}").json()["created_by"] == "ada"
    version = f"kernels/versions/{made['id']}"
    assert bob.get(version).json()["source"] == SOURCE
    evidence = bob.get(f"{version}/evidence").json()
    assert evidence["evaluations"][0]["state"] == "queued" and evidence["diff"] == ""
    early = bob.post(f"{version}/approve", {"reason": "fine"})
    assert early.status_code == 409 and "awaiting" in early.json()["error"]
    KernelEvaluation.objects.update(state="done", status="ok")
    KernelVersion.objects.update(state=VersionState.AWAITING)
    bare = bob.post(f"{version}/approve", {"reason": "fine"})
    assert bare.status_code == 400 and "at least the source and the risk lines" in bare.json()["error"]
    digests = bob.get(f"{version}/evidence").json()["digests"]
    looked_at = {piece: digests[piece] for piece in ("source", "risks")}
    done = bob.post(f"{version}/approve", {"reason": "fine", "looked_at": looked_at})
    assert done.status_code == 200 and done.json()["decided_by"] == "bob"
    assert bob.get(f"kernels/{made['kernel']}/history").json()["results"][0]["looked_at"] == looked_at
    edited = ada.post(f"kernels/{made['kernel']}/versions", {**BODY, "source": SOURCE + "// new\n"})
    assert edited.status_code == 201 and edited.json()["version"] == 2
    versions = ada.get(f"kernels/{made['kernel']}/versions").json()
    assert [row["state"] for row in versions["results"]] == ["submitted", "superseded"]
    history = ada.get(f"kernels/{made['kernel']}/history", limit=2).json()
    assert history["count"] == 4 and len(history["results"]) == 2


def test_nobody_approves_his_own(awaiting: Any, as_: Any, people: Any) -> None:
    version = awaiting(by="bob")
    answer = as_("bob", "approve", "kernels", "admin").post(
        f"kernels/versions/{version.pk}/approve", {"reason": "mine"}
    )
    assert answer.status_code == 403 and "other than" in answer.json()["error"]
    version.refresh_from_db()
    assert version.state == VersionState.AWAITING


def test_keys_without_a_user_scope_or_permission_are_refused(awaiting: Any, as_: Any, people: Any) -> None:
    version = f"kernels/versions/{awaiting().pk}"
    nobody = as_("nobody", "admin")
    for path, body in (("kernels/", {**BODY, "name": "other"}), (f"{version}/approve", {"reason": "fine"})):
        answer = nobody.post(path, body)
        assert answer.status_code == 403 and "belongs to a user" in answer.json()["error"]
    assert as_("ada", "lookup").get("kernels/").status_code == 403
    assert as_("bob", "kernels").post(f"{version}/revoke", {"reason": "x"}).status_code == 403
    assert as_("bob", "approve").post("kernels/", BODY).status_code == 403
    lacking = as_("dan", "approve").post(f"{version}/approve", {"reason": "fine"})
    assert lacking.status_code == 403 and "approver" in lacking.json()["error"]
    people["bob"].is_active = False
    people["bob"].save()
    assert as_("bob", "approve").post(f"{version}/approve", {"reason": "fine"}).status_code == 403


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"name": "../x"}, "name"),
        ({"source": ""}, "source"),
        ({"source": None}, "source"),
        ({"source": "int x;"}, "source"),
        ({"flags": "-O3"}, "flags"),
        ({"flags": ["-fplugin=x"]}, "flags"),
        ({"pattern": {"op": "Softmax", "inputs": [{"dtype": "float31"}]}}, "pattern.inputs[0].dtype"),
        ({"pattern": "Softmax"}, "pattern"),
        ({"licence": "whatever"}, "licence"),
        ({"author": ""}, "author"),
        ({"language": "fortran"}, "language"),
    ],
)
def test_bad_submissions_are_one_sentence(as_: Any, change: Any, where: str) -> None:
    answer = as_("ada", "kernels").post("kernels/", {**BODY, **change})
    assert answer.status_code == 400
    assert answer.json()["where"].startswith(where) and len(answer.json()["error"]) < 900


def test_a_source_that_is_too_large_or_an_unknown_example(as_: Any) -> None:
    ada = as_("ada", "kernels")
    large = ada.post("kernels/", {**BODY, "source": SOURCE + "/" * (128 << 10)})
    assert large.status_code == 413
    assert ada.post("kernels/", {**BODY, "example": "o1:" + "0" * 64}).status_code == 404
    assert ada.get("kernels/9999999999999999999").status_code == 404
    assert ada.get("kernels/versions/12/evidence").status_code == 404


def test_kernels_are_private_to_their_organisation_except_for_those_who_decide(as_: Any, people: Any) -> None:
    other = Organisation.objects.create(name="another")
    theirs = as_("dan", "kernels", organisation=other).post("kernels/", BODY).json()
    ada = as_("ada", "kernels")
    assert ada.get("kernels/").json()["count"] == 0
    assert ada.get(f"kernels/versions/{theirs['id']}").status_code == 404
    assert ada.post(f"kernels/{theirs['kernel']}/versions", BODY).status_code == 404
    assert ada.post("kernels/", BODY).json()["version"] == 1, "the same name is another kernel here"
    assert as_("bob", "approve").get("kernels/").json()["count"] == 2


def test_commands_make_keys_and_submit(people: Any, tmp_path: Any) -> None:
    import json
    from io import StringIO

    from django.core.management import CommandError, call_command

    out = StringIO()
    call_command(
        "create_api_key", "ada's", "--user", "ada", "--scopes", "kernels", stdout=out, stderr=StringIO()
    )
    assert Api(out.getvalue().strip()).post("kernels/", BODY).status_code == 201
    (tmp_path / "relu.c").write_text(SOURCE)
    document = {**BODY, "name": "relu", "file": "relu.c"}
    del document["source"]
    (tmp_path / "relu.json").write_text(json.dumps(document))
    call_command("submit_kernel", str(tmp_path / "relu.json"), "--user", "ada", stdout=out)
    assert "relu v1" in out.getvalue()
    for name, content, user in (
        ("relu.json", json.dumps(document), "nobody"),
        ("bad.json", "{", "ada"),
        ("bad.json", json.dumps({**document, "colour": 1}), "ada"),
        ("bad.json", json.dumps({**document, "licence": "?"}), "ada"),
        ("bad.json", json.dumps({**document, "file": "gone.c"}), "ada"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(CommandError):
            call_command("submit_kernel", str(tmp_path / name), "--user", user, stdout=out)
