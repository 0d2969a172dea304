"""What a lookup brings along: manifests, signers, and what is known of related operators."""

from __future__ import annotations

import pytest

from catalog.models import Artifact, Miss
from tests.catalog import making


@pytest.fixture
def look_up(api, target, setting):
    """``look_up([64], related=[65], include=[…])`` → the answer."""

    def post(lengths, related=(), status=200, **more):
        body = {"target": target.key, "setting": setting.key}
        body["operators"] = [{"key": making.relu(n).key, "graph": making.relu_json(n)} for n in lengths]
        body["related"] = [{"key": making.relu(n).key, "graph": making.relu_json(n)} for n in related]
        answer = api.post("lookup", body | more)
        assert answer.status_code == status, answer.json()
        return answer.json()

    return post


def test_manifests_come_along_but_those_known(put, look_up):
    for length in (64, 65):
        put(length, "torch", 2.0)
    plain = look_up([64])
    assert not {"manifests", "signers", "related"} & plain.keys()
    found = look_up([64, 65, 66], include=["manifest"])
    rows = {row.sha256: row for row in Artifact.objects.all()}
    assert found["manifests"].keys() == rows.keys() and len(rows) == 2
    for sha256, document in found["manifests"].items():
        row = rows[sha256]
        assert document == {"manifest": row.manifest, "signature": row.signature, "signer": row.signer}
    (known, other) = rows
    again = look_up([64, 65], include=["manifest"], known=[known])
    assert list(again["manifests"]) == [other] and again["unchanged"] == [known]
    assert "unchanged" not in found
    assert look_up([66], known=[known, "a" * 64])["unchanged"] == [], "what did not hit"


def test_why_a_hit_is_trusted_comes_along_where_it_is_asked_for(put, look_up):
    put(64, "torch", 2.0, versions={"torch": "2.13.0"})
    put(65, "numpy", 2.0, versions={"numpy": "2.4.6"})
    assert "evidence" not in look_up([64])["results"][0]["best"]
    found = look_up([64, 66], related=[65], include=["related", "evidence"])
    signer = Artifact.objects.values_list("signer", flat=True).distinct().get()
    evidence = {"max_error": 1e-7, "tolerance": 1e-5, "tier": "T2", "signer": signer}
    assert found["results"][0]["best"]["evidence"] == evidence | {"environment": {"torch": "2.13.0"}}
    assert found["related"][0]["best"]["evidence"] == evidence | {"environment": {"numpy": "2.4.6"}}
    assert "best" not in found["results"][1]


READ_FOR_A_WHILE = (
    'FROM "catalog_apikey"',
    'FROM "billing_pricerule"',
    '"catalog_implementation"."scope" AS',
)
"""Keys, prices and what is revoked: read by whoever comes when half a second has passed."""


def test_it_is_one_more_statement_for_all(put, look_up):
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    def statements(**more):
        with CaptureQueriesContext(connection) as captured:
            look_up(range(64, 72), **more)
        said = [query["sql"] for query in captured]
        return [one for one in said if not any(words in one for words in READ_FOR_A_WHILE)]

    for length in range(64, 72):
        put(length, "torch", 2.0)
    look_up(range(64, 72))
    assert len(statements(include=["evidence"])) == len(statements()) + 1


def test_what_is_known_of_related_ones_comes_along_and_the_rest_become_misses(put, look_up):
    put(64, "torch", 2.0)
    put(65, "torch", 2.0)
    found = look_up([64], related=[65, 66, 64], include=["related", "manifest"])
    assert [item["status"] for item in found["related"]] == ["hit", "miss", "hit"]
    assert [item["key"] for item in found["related"]] == [making.relu(n).key for n in (65, 66, 64)]
    assert len(found["manifests"]) == 2, "of the related ones too"
    assert [(miss.operator.key, miss.related) for miss in Miss.objects.all()] == [(making.relu(66).key, True)]


def test_a_whole_model_is_a_handful_of_statements(put, look_up, django_assert_max_num_queries):
    for length in range(64, 84):
        put(length, "torch", 2.0)
    look_up([64], related=range(65, 84), include=["related", "manifest"])
    with django_assert_max_num_queries(12):
        look_up([64], related=range(65, 84), include=["related", "manifest"])


def test_a_graph_beside_a_known_key_is_not_read(put, look_up, monkeypatch):
    put(64, "torch", 2.0)
    monkeypatch.setattr("catalog.api.lookup_json.parse_graph", None)
    assert look_up([64])["results"][0]["status"] == "hit"


def test_a_graph_that_is_not_its_keys_is_refused_and_nothing_recorded(api, target, setting):
    item = {"key": making.relu(64).key, "graph": making.relu_json(65)}
    body = {"target": target.key, "setting": setting.key, "operators": [item]}
    answer = api.post("lookup", body)
    assert answer.status_code == 400 and answer.json()["where"] == "operators[0].key"
    assert not Miss.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("include", ["all"], "include is a list of some of manifest, related, "),
        ("include", "manifest", "include is a list"),
        ("known", ["ab"], "64 hexadecimal digits"),
        ("known", [5], "64 hexadecimal digits"),
        ("known", ["a" * 64] * 2049, "at most 2048"),
    ],
)
def test_wrong_wishes_are_refused(look_up, field, value, sentence):
    answer = look_up([64], status=400, **{field: value})
    assert sentence in answer["error"] and answer["where"] == field
