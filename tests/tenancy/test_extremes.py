"""Extreme numbers and texts in every field that the REST API's schema, the pages' addresses and their forms
take: each is a right answer or a refusal in one sentence, soon, and nothing stored breaks a later page.

The fields are found, not listed: by the schema and the bodies that the table of examples posts, and by what
views read of a request, so that a new one cannot be forgotten.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pytest
from django.db import transaction
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from drf_spectacular.generators import SchemaGenerator

from catalog.rollups.rollups import refresh_rollups
from catalog.usage.draining import drain_journal
from tests.extremes import LONG, SLOWEST_S, form_values, json_values, leaves, with_value
from tests.tenancy import addresses
from tests.tenancy.examples import BODIES, EXAMPLES
from tests.tenancy.test_matrix import browser
from tests.tenancy.world import World

pytestmark = pytest.mark.django_db

OFTEN = 4
"""By day so many pages for a name: what more of them read (sort, page, export), one piece of code reads."""
FAILS_HERE = ("logout", "readyz", "operator-file")
"""Without a worker, and without a store that has the files."""
MOST_WORDS = 600
"""Characters of the sentence that refuses."""
NOT_AGAIN = (
    "revoke", "end", "discard", "delete", "disable", "remove", "switch", "password", "role", "members",
    "account", "rotate", "cancel", "pause", "mute",
)  # fmt: skip
"""In an address: what is accepted there takes away what the others are tried on."""


@dataclass(frozen=True)
class Asked:
    """One request: where, and which of its fields has which value, as it is written there."""

    name: str
    method: str
    path: str
    field: str
    value: str
    body: str | None = None
    api: bool = False

    def __str__(self) -> str:
        value = self.value if len(self.value) < 40 else f"{self.value[:20]!r} ({len(self.value)})"
        return f"{self.method} {self.name} {self.field}={value!r}"


@dataclass
class Found:
    """What was wrong, and what was accepted."""

    wrong: list[str] = field(default_factory=list)
    accepted: list[Asked] = field(default_factory=list)
    fields: set[tuple[str, str, str]] = field(default_factory=set)


# --- REST ---


def described() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]


def sample(schema: dict[str, Any], whole: dict[str, Any], deep: int = 0) -> Any:
    """Something that this schema describes, with every property."""
    if ref := schema.get("$ref"):
        return sample(whole["components"]["schemas"][ref.rpartition("/")[2]], whole, deep + 1)
    for name in ("allOf", "oneOf", "anyOf"):
        if name in schema:
            return sample(schema[name][0], whole, deep)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    if kind == "object":
        properties = schema.get("properties", {})
        return {} if deep > 6 else {name: sample(one, whole, deep + 1) for name, one in properties.items()}
    if kind == "array":
        return [sample(schema.get("items", {}), whole, deep + 1)]
    return {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": False}.get(kind, "x")


def merged(sample: Any, given: Any) -> Any:
    if isinstance(sample, dict) and isinstance(given, dict):
        return {
            name: merged(sample[name], given[name]) if name in sample and name in given
            else given.get(name, sample.get(name))
            for name in {**sample, **given}
        }  # fmt: skip
    if isinstance(sample, list) and isinstance(given, list) and given and sample:
        return [merged(sample[0], one) for one in given]
    return given


GRAPH = {
    "op": "Softmax", "attributes": {"axis": -1}, "inputs": [{"shape": [8, 64], "dtype": "float32"}],
}  # fmt: skip
PLACE = {
    "target": {"kind": "cpu", "arch": "x86_64", "features": ["avx2"], "cores": 2, "l1d_bytes": 32768},
    "setting": {"threads": 2, "cache": "warm", "numerics": "default"},
}  # fmt: skip


def richer(name: str, rows: dict[str, Any]) -> Any:
    """What the table of examples posts, with the documents that are free in the schema spelled out."""
    given = BODIES[name](rows) if name in BODIES else {}
    if name in ("lookup", "explain"):
        asked = {"key": rows["operator"].key, "graph": GRAPH, "calls": 1.0}
        given = {**given, **PLACE, "operators": [asked], "operator": asked}
    return given


def of_rest(rows: dict[str, Any], most: int) -> Iterator[Asked]:
    whole = described()
    for address in addresses.api():
        examples = EXAMPLES[address.name](rows) if address.arguments else [{}]
        for method in address.methods:
            operation = whole["paths"][address.path][method.lower()]
            path = address.filled(examples[0])
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            document = merged(sample(body["schema"], whole), richer(address.name, rows)) if body else None
            sent = None if document is None else json.dumps(document)
            queried = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
            for name in queried:
                for value in form_values(f"{address.name}?{name}", most, 20_000):
                    query = f"{path}?{name}={quote(value, errors='surrogatepass')}"
                    yield Asked(address.name, method, query, f"?{name}", value, sent, api=True)
            for name in address.arguments:
                for value in form_values(f"{address.name}/{name}", most, 3_000):
                    filled = {**examples[0], name: quote(value, safe="", errors="surrogatepass") or "%20"}
                    yield Asked(address.name, method, address.filled(filled), name, value, sent, api=True)
            for way in leaves(document) if document is not None else ():
                said = ".".join(map(str, way))
                for value in json_values(f"{address.name}:{said}", most):
                    changed = with_value(document, way, value)
                    yield Asked(address.name, method, path, said, value, changed, api=True)


# --- pages ---


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names that views read of a request's query string and form."""
    names: set[str] = set()

    def watched(method: str) -> None:
        known = getattr(MultiValueDict, method)

        def reading(self: Any, name: Any, *args: Any) -> Any:
            if isinstance(self, QueryDict) and isinstance(name, str):
                names.add(name)
            return known(self, name, *args)

        monkeypatch.setattr(QueryDict, method, reading)

    for method in ("__getitem__", "get", "getlist"):
        watched(method)
    contains = MultiValueDict.__contains__

    def within(self: Any, name: Any) -> bool:
        names.add(str(name))
        return contains(self, name)

    monkeypatch.setattr(QueryDict, "__contains__", within)
    return names


def form(given: dict[str, Any], name: str, value: str) -> str:
    pairs = [(one, text) for one, texts in given.items() if one != name
             for text in (texts if isinstance(texts, list) else [texts])]  # fmt: skip
    return "&".join(
        f"{quote(one)}={quote(str(text), errors='surrogatepass')}" for one, text in [*pairs, (name, value)]
    )


def of_pages(client: Any, rows: dict[str, Any], read: set[str], most: int) -> Iterator[Asked]:
    times: Counter[str] = Counter()
    for address in addresses.pages():
        if address.name in FAILS_HERE:
            continue
        examples = EXAMPLES[address.name](rows) if address.arguments else [{}]
        path = address.filled(examples[0])
        for method in ("GET", *(("POST",) if address.name in BODIES else ())):
            given = BODIES[address.name](rows) if method == "POST" else {}
            longest = [LONG] if method == "POST" else []
            read.clear()
            with undone():
                client.generic(method, path, form(given, "", ""), "application/x-www-form-urlencoded")
            for name in sorted({*read, *given} - {"csrfmiddlewaretoken"}):
                times[name] += method == "GET"
                if most == 1 and times[name] > OFTEN and method == "GET":
                    continue
                for value in form_values(f"{address.name} {name}", most, *longest):
                    text = form(given, name, value)
                    if method == "GET":
                        yield Asked(address.name, method, f"{path}?{text}", f"?{name}", value)
                    else:
                        yield Asked(address.name, method, path, name, value, text)
            for name in address.arguments:
                for value in form_values(f"{address.name}/{name}", most, 3_000):
                    filled = {**examples[0], name: quote(value, safe="", errors="surrogatepass") or "%20"}
                    yield Asked(
                        address.name, method, address.filled(filled), name, value, form(given, "", "")
                    )


class undone:
    """What happens within is taken back."""

    def __enter__(self) -> None:
        self.block = transaction.atomic()
        self.block.__enter__()

    def __exit__(self, *raised: Any) -> None:
        transaction.set_rollback(True)
        self.block.__exit__(*raised)


def send(client: Any, key: str, one: Asked) -> Any:
    if one.api:
        return client.generic(
            one.method,
            one.path,
            one.body or "",
            "application/json",
            headers={"Authorization": f"Bearer {key}"},
        )
    kind = "application/x-www-form-urlencoded"
    return client.generic(one.method, one.path, one.body or "" if one.method == "POST" else "", kind)


def tried(client: Any, key: str, requests: Iterator[Asked]) -> Found:
    found = Found()
    for one in requests:
        found.fields.add((one.name, one.method, one.field))
        began = time.thread_time()
        with undone():
            response = send(client, key, one)
            content = b"".join(response.streaming_content) if response.streaming else response.content
        took = time.thread_time() - began
        status = response.status_code
        if status >= 500 and one.name not in FAILS_HERE:
            found.wrong.append(f"{one}: {status}: {content[-300:]!r}")
        elif took > SLOWEST_S:
            found.wrong.append(f"{one}: {took:.1f} s, {status}")
        elif status >= 400 and one.api and status != 404:
            said = json.loads(content).get("error")
            if not isinstance(said, str) or not 0 < len(said) <= MOST_WORDS:
                found.wrong.append(f"{one}: {status} says {content[:300]!r}")
        elif status < 300 and one.method != "GET":
            found.accepted.append(one)
        if one.api and len(content) > LONG:
            found.wrong.append(f"{one}: gives {len(content)} bytes back")
    return found


def stored(client: Any, key: str, world: World, accepted: Sequence[Asked]) -> list[str]:
    """What breaks once all that was accepted is stored, and counted."""
    for one in accepted:
        if not any(word in one.name for word in NOT_AGAIN):
            send(client, key, one)
    drain_journal()
    refresh_rollups()
    wrong = []
    for address in [*addresses.pages(), *addresses.api()]:
        if "GET" not in address.methods or address.name in FAILS_HERE:
            continue
        for arguments in EXAMPLES[address.name](world.rows)[:1] if address.arguments else [{}]:
            asked = Asked(address.name, "GET", address.filled(arguments), "", "", api=address.api)
            began = time.thread_time()
            response = send(client, key, asked)
            if response.status_code >= 500 or time.thread_time() - began > SLOWEST_S:
                wrong.append(f"afterwards {address.name}: {response.status_code}")
    return wrong


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        ("rest", 1),
        ("pages", 1),
        *(
            pytest.param(kind, 99, marks=[pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(3600)])
            for kind in ("rest", "pages")
        ),
    ],
)
def test_no_value_breaks_anything(world: World, read: set[str], kind: str, most: int) -> None:
    client, key = browser(world.host.users["admin"]), world.host.key
    rest = kind == "rest"
    requests = of_rest(world.rows, most) if rest else of_pages(client, world.rows, read, most)
    found = tried(client, key, requests)
    assert len(found.fields) > 300, sorted(found.fields)
    wrong = found.wrong + stored(client, key, world, found.accepted)
    assert not wrong, "\n".join(wrong)
