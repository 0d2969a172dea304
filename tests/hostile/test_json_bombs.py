"""JSON that says two things at once, or that wants more work than it is long: refused alike everywhere."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator

from catalog.api.parsers import parse_json
from catalog.errors import RequestError
from catalog.people.keys import SCOPES, create_api_key
from catalog.registry import default_organisation
from opatlas import quick_json


def bodies() -> list[tuple[str, str]]:
    """Every operation without arguments in its address that takes JSON, payments (signed) aside."""
    paths = SchemaGenerator().get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]
    return [
        (verb, path)
        for path, verbs in paths.items()
        for verb in ("post", "put", "patch")
        if "application/json" in verbs.get(verb, {}).get("requestBody", {}).get("content", {})
        and "{" not in path
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("installed", [True, False])
def test_a_key_twice_is_refused_by_every_operation(api_with, monkeypatch, installed):
    if not installed:
        monkeypatch.setattr(quick_json, "_quick", lambda: None)
    user = User.objects.create_superuser("root")
    asking = api_with(create_api_key(default_organisation(), "all", SCOPES, user=user)[1])
    asked = bodies()
    assert len(asked) > 15
    for verb, path in asked:
        answer = getattr(asking.client, verb)(
            path, b'{"a": [{"b": {"c": 1, "c": 2}}]}', content_type="application/json", headers=asking.headers
        )
        said = answer.json()["error"]
        assert (answer.status_code, said) == (
            400, 'The JSON has the key "c" twice in one object: send it once.',
        ), path  # fmt: skip


@pytest.mark.parametrize("body", [
    b'{%b, "0": 1}' % b", ".join(b'"%d": 1' % number for number in range(60_000)),
    b"[%b]" % b", ".join([b'{"a": 1, "b": [{"a": 1}]}'] * 20_000 + [b'{"a": 1, "a": 1}']),
    b'{"a": %b1%b, "b": 1, "b": 2}' % (b"[" * 200, b"]" * 200),
], ids=["many keys", "many objects", "deep"])  # fmt: skip
def test_finding_it_takes_no_longer_than_reading(body):
    began = time.thread_time()
    with pytest.raises(RequestError, match="twice in one object"):
        parse_json(body)
    assert time.thread_time() - began < 2  # comparing each key with each other one took a minute
