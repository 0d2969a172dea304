"""Models over REST."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Model
from catalog.registry import register_target
from opatlas.identity import Target
from tests.catalog.making import row_counts
from tests.tuning.graph import making
from tuning.api import models as models_api
from tuning.uploads import storage
from tuning.uploads.models import Upload

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_folders(configure: Any, tmp_path: Path) -> None:
    from catalog.usage import journal

    journal.close()
    configure(home=tmp_path / "home")


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None, db: None) -> None:
    """Uploads are taken apart as they come."""


@pytest.fixture
def give(api: Any, target_row: Any) -> Any:
    """``give(bytes, name="m", dims="batch:1")``: POST of an ONNX file."""

    def post(data: Any, kind: str = "application/octet-stream", **query: Any) -> Any:
        text = "&".join(f"{key}={value}" for key, value in query.items())
        return api.client.post(f"/api/v1/models/?{text}", data, content_type=kind, headers=api.headers)

    return post


def _relu(shape: list[Any]) -> bytes:
    return making.relu(shape).SerializeToString()


def test_an_onnx_file_is_taken_apart(give: Any, api: Any) -> None:
    answer = give(_relu(["batch", 3]), name="small", dims="batch:2")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["model"]["name"], body["model"]["form"], body["totals"]["calls"]) == ("small", "onnx", 1)
    row = body["rows"][0]
    assert (row["status"], row["calls"], row["operator"][:3]) == ("miss", 1, "o1:")
    assert (body["coverage"]["by_calls"], body["saved_us"]) == (0.0, 0.0)
    assert [(one["operators"], one["calls"]) for one in body["coverage"]["missing"]] == [(1, 1.0)]
    again = give(_relu(["batch", 3]), name="small", dims="batch:2")
    assert (again.status_code, again.json()["model"]["id"]) == (200, body["model"]["id"])
    listed = api.get("models/").json()
    assert [(model["id"], model["operators"]) for model in listed["results"]] == [(body["model"]["id"], 1)]
    assert api.get(f"models/{body['model']['id']}").json() == again.json()


def test_a_sample_and_an_operator_list_are_given_as_json(give: Any) -> None:
    sample = give({"sample": "resnet50"}, "application/json")
    assert sample.status_code == 201
    assert (sample.json()["totals"]["calls"], sample.json()["totals"]["operators"]) == (176, 56)
    records = [{"op": "aten.relu.default", "inputs": [{"shape": [4], "dtype": "float16"}], "count": 7}]
    listed = give(json.dumps(records), "application/json", name="list", as_float32="true").json()
    assert (listed["model"]["form"], listed["totals"]["calls"]) == ("operator-list-f32", 7)
    assert "float32" in listed["rows"][0]["summary"]


def test_a_target_is_named_by_its_key(give: Any, target_row: Any) -> None:
    answer = give(_relu([4]), name="m", target=target_row.key).json()
    assert answer["model"]["target"] == target_row.key


def test_here_is_the_target_whose_worker_was_seen_last(give: Any, target_row: Any) -> None:
    other = register_target(replace(Target.from_json(target_row.description), arch="zen4"))
    now = timezone.now()
    for row, minutes in ((target_row, 9), (other, 1)):
        type(row).objects.filter(pk=row.pk).update(served_until=now - timedelta(minutes=minutes))
    answer = give(_relu([4]), name="m", target="here")
    assert answer.status_code == 201 and answer.json()["model"]["target"] == other.key


def test_here_is_nowhere_before_any_worker_was_seen(give: Any, target_row: Any) -> None:
    type(target_row).objects.update(served_until=None)
    answer = give(_relu([4]), name="m", target="here")
    assert answer.status_code == 404 and "No worker was ever here" in answer.json()["error"]


@pytest.mark.parametrize(
    ("data", "kind", "query", "status", "words"),
    [
        (b"", "application/octet-stream", {"name": "m"}, 400, "empty"),
        (b"rubbish", "application/octet-stream", {"name": "m"}, 400, "no complete ONNX file"),
        (_relu([4]), "application/octet-stream", {}, 400, "needs a name"),
        (_relu([4]), "application/octet-stream", {"name": "a%00b"}, 400, "printable"),
        (_relu(["n"]), "application/octet-stream", {"name": "m"}, 400, "dimensions n are symbolic"),
        (_relu(["n"]), "application/octet-stream", {"name": "m", "dims": "n"}, 400, "name and a size"),
        (_relu(["n"]), "application/octet-stream", {"name": "m", "dims": "n:-1"}, 400, "name and a size"),
        (_relu(["n"]), "application/octet-stream", {"name": "m", "dims": "n%00:1"}, 400, "printable"),
        (_relu(["n"]), "application/octet-stream", {"name": "m", "dims": "n:٣"}, 400, "name and a size"),
        (
            _relu([4]),
            "application/octet-stream",
            {"name": "m", "target": "t1:no"},
            404,
            "target is not known",
        ),
        (_relu([4]), "application/octet-stream", {"name": "m", "setting": "s1:no"}, 400, "needs a target"),
        (_relu([4]), "application/octet-stream", {"name": "m", "as_float32": "maybe"}, 400, "true or false"),
        (b"[]", "application/octet-stream", {"name": "m"}, 400, "send it as application/json"),
        (b"[", "application/json", {"name": "m"}, 400, "not JSON"),
        (b"[NaN]", "application/json", {"name": "m"}, 400, "NaN"),
        (b"3", "application/json", {"name": "m"}, 400, "operator list"),
        (b"[]", "application/json", {"name": "m"}, 400, "list of records"),
        (b"\xff\xfe", "application/json", {"name": "m"}, 400, "UTF-8"),
        (b'{"sample": "../x"}', "application/json", {}, 400, "there are resnet50"),
        (b'{"sample": 3}', "application/json", {}, 400, "asked for as"),
        (b'{"sample": "resnet50", "also": 1}', "application/json", {}, 400, "asked for as"),
        (b"x=1", "text/plain", {"name": "m"}, 415, "text/plain"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    give: Any, data: bytes, kind: str, query: dict[str, str], status: int, words: str
) -> None:
    before = row_counts()
    answer = give(data, kind, **query)
    assert answer.status_code == status
    assert words in answer.json()["error"]
    Upload.objects.filter(state="refused").delete()  # its row tells whoever asks later why
    assert row_counts() == before
    assert storage.kept() == []


def test_a_body_beyond_the_limit_is_refused(give: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_api.RawModelParser, "max_bytes", 1000)
    answer = give(b"\x08" * 1001, name="m")
    assert (answer.status_code, "larger than" in answer.json()["error"]) == (413, True)
    assert Model.objects.count() == Upload.objects.count() == 0


def test_keys_and_scopes(api_with: Any, make_key: Any, give: Any) -> None:
    made = give(_relu([4]), name="m").json()["model"]["id"]
    assert api_with(None).get("models/").status_code == 401
    assert api_with(make_key("lookup")).get("models/").status_code == 403
    assert api_with(make_key("models")).get(f"models/{made}").status_code == 200
    assert api_with(make_key("models")).get("models/999999").status_code == 404
    assert api_with(make_key("models")).get(f"models/{10**30}").status_code == 404


def test_another_organisations_models_are_not_seen(give: Any, api_with: Any, db: None) -> None:
    from catalog.models import Organisation
    from catalog.people.keys import create_api_key

    made = give(_relu([4]), name="m").json()["model"]["id"]
    other = Organisation.objects.create(name="other")
    stranger = api_with(create_api_key(other, "k", ["models"])[1])
    assert stranger.get("models/").json()["count"] == 0
    assert stranger.get(f"models/{made}").status_code == 404


def test_a_keys_quota_bounds_what_a_model_queues(api_with: Any, make_key: Any, target_row: Any) -> None:
    from catalog.models import Miss

    client = api_with(make_key("models", max_queued_misses=5))
    answer = client.post("models/", {"sample": "alexnet"})
    assert answer.status_code == 201
    assert Miss.objects.count() == 5
    assert {row["status"] for row in answer.json()["rows"]} == {"miss"}


def test_the_schema_describes_it(api: Any) -> None:
    import yaml

    schema = yaml.safe_load(api.client.get("/api/v1/schema/", headers=api.headers).content)
    post = schema["paths"]["/api/v1/models/"]["post"]
    assert {"application/octet-stream", "application/json"} <= set(post["requestBody"]["content"])
    assert {"200", "201", "202", "400", "413", "429"} <= set(post["responses"])
