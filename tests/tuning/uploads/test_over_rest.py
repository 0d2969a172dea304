"""Uploads over REST: 202 with an address, progress, cancelling, and who sees what."""

from __future__ import annotations

import time
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.graph import making
from tests.uploading import run_all
from tuning.api.uploads import SMALL_BYTES
from tuning.uploads import intake, storage
from tuning.uploads.models import Upload

pytestmark = pytest.mark.django_db

RELU = making.relu([4]).SerializeToString()


@pytest.fixture(autouse=True)
def own_folders(configure: Any, tmp_path: Path, target_row: Any) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home", store=tmp_path / "store")


def give(api: Any, data: Any = RELU, **query: Any) -> Any:
    text = "&".join(f"{name}={value}" for name, value in {"name": "m", **query}.items())
    kind = "application/octet-stream"
    return api.client.post(f"/api/v1/models/?{text}", data, content_type=kind, headers=api.headers)


def test_without_a_worker_it_is_202_at_once_with_where_to_ask(
    api: Any, uploads_at_once: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(intake, "ring", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", lambda seconds: pytest.fail("nobody is there to wait for"))
        answer = give(api, wait_s=30)
    body = answer.json()
    assert (answer.status_code, body["state"], body["model"]) == (202, "waiting", None)
    assert answer["Location"] == body["address"] == f"/api/v1/uploads/{body['id']}"
    assert api.client.get(body["page"]).status_code == 302, "people log in"
    run_all(tmp_path)
    done = api.get(f"uploads/{body['id']}").json()
    assert (done["state"], done["operators_done"]) == ("done", 1)
    assert api.get(f"models/{done['model']}").json()["totals"]["calls"] == 1


def test_a_worker_that_ends_it_in_time_makes_it_201(
    api: Any, live_worker: Any, uploads_at_once: None
) -> None:
    assert give(api).status_code == 201
    assert give(api).status_code == 200
    refused = give(api, b"rubbish")
    assert (refused.status_code, "no complete ONNX file" in refused.json()["error"]) == (400, True)


def test_waiting_requests_leave_threads_to_others(
    api: Any, live_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as may wait wait already: the next is answered at once."""
    import threading

    monkeypatch.setattr("catalog.lookup.lookups._waiters", threading.Semaphore(0))
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waited"))
    assert give(api, wait_s=30).status_code == 202


@pytest.mark.parametrize("wait_s", ["-1", "31", "x", "nan"])
def test_a_wait_that_cannot_be_is_refused(api: Any, wait_s: str) -> None:
    answer = give(api, wait_s=wait_s)
    assert answer.status_code == 400 and "from 0 to 30" in answer.json()["error"]
    assert not Upload.objects.exists()


def test_it_can_be_cancelled(api: Any) -> None:
    number = give(api).json()["id"]
    assert api.post(f"uploads/{number}/cancel").json()["state"] == "cancelled"
    assert api.post(f"uploads/{number}/cancel").json()["state"] == "cancelled"
    assert storage.kept() == []


def test_one_too_many_is_429_and_its_body_is_read_so_that_the_answer_arrives(
    api: Any, configure: Any
) -> None:
    configure(uploads_per_key=1)
    give(api)

    class Counting(BytesIO):
        left = property(lambda self: len(self.getbuffer()) - self.tell())

    body = Counting(bytes(3 * SMALL_BYTES))
    kind = "application/octet-stream"
    given = {"wsgi.input": body, "CONTENT_LENGTH": str(3 * SMALL_BYTES), "CONTENT_TYPE": kind}
    answer = api.client.generic("POST", "/api/v1/models/?name=m", b"", headers=api.headers, **given)
    assert answer.status_code == 429 and "which is the quota" in answer.json()["error"]
    assert body.left == 0


def test_a_key_without_models_sees_requests_for_plans_alone(api: Any, api_with: Any, make_key: Any) -> None:
    number = give(api).json()["id"]
    jobs = api_with(make_key("lookup"))
    assert jobs.get("uploads/").json()["count"] == 0
    assert jobs.get(f"uploads/{number}").status_code == 404
    assert jobs.post(f"uploads/{number}/cancel").status_code == 403
    assert api.get("uploads/").json()["count"] == 1


def test_another_organisations_uploads_are_not_there(api: Any, tenant: Any, api_with: Any) -> None:
    from catalog.people.keys import create_api_key

    number = give(api).json()["id"]
    stranger = api_with(create_api_key(tenant, "k", ["models"])[1])
    assert stranger.get(f"uploads/{number}").status_code == 404
    assert stranger.post(f"uploads/{number}/cancel").status_code == 404
    assert Upload.objects.get().is_open


def test_a_large_request_for_a_plan_is_not_read_by_the_web(
    api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from opatlas.graph.structure import ModelStructure

    monkeypatch.setattr(ModelStructure, "from_json", lambda _: pytest.fail("the web read a structure"))
    answer = api.post("plans", {"structure": {"structure": 1, "padding": "x" * SMALL_BYTES}})
    assert answer.status_code == 202


def test_shares_are_told_to_the_host_and_to_each_its_own(
    api: Any, tenant: Any, tenant_api: Any, organisation: Any
) -> None:
    from tuning.queue.shares import charge

    charge(tenant.pk, 30.0)
    charge(organisation.pk, 10.0)
    told = {row["name"]: row["portion"] for row in api.get("statistics/shares").json()}
    assert told == {"Tenant": pytest.approx(0.75, abs=0.01), organisation.name: pytest.approx(0.25, abs=0.01)}
    assert [row["name"] for row in tenant_api.get("statistics/shares").json()] == ["Tenant"]


def test_the_host_sets_weights_and_nobody_else(api: Any, tenant: Any, tenant_api: Any) -> None:
    sent = {"organisation": tenant.pk, "weight": 3}
    assert tenant_api.post("queues/weight", sent).status_code == 403
    assert api.post("queues/weight", sent).json()[0]["weight"] == 3.0
    assert api.post("queues/weight", sent | {"weight": 1e9}).status_code == 400
    assert api.post("queues/weight", sent | {"organisation": 99}).status_code == 404
