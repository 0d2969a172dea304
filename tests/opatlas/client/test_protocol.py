"""docs/protocol.md, held against what the client keeps: by its own rules, hashlib and sqlite3 alone."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import time
from contextlib import closing

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from opatlas.identity import Setting, detect_target
from tests.docs.reading import blocks
from tests.opatlas.load.kernels import add_operator

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = {block.language: block.text for block in blocks() if block.page == "docs/protocol.md"}


@pytest.fixture(scope="module")
def rules():
    """The page's functions."""
    names = {}
    exec(PAGE["python"], names)
    return type("Rules", (), {name: staticmethod(rule) for name, rule in names.items() if callable(rule)})


@pytest.fixture
def kept(publish_add, job):
    """A client that was told something, and its file."""
    publish_add()
    client = job(job="run", accepts={"kinds": ["c-abi"]})
    assert client.lookup("Add", (1000,), (1000,)) and client.lookup(add_operator())
    client._write_uses()
    with closing(sqlite3.connect(client.store.path)) as database:
        yield client, database


def rows(database, sql, *given):
    return database.execute(sql, given).fetchall()


def test_tables_and_marks_are_those_of_the_page(kept):
    _, database = kept
    for name, value in re.findall(r"PRAGMA (\w+) = (\w+)", PAGE["sql"]):
        assert rows(database, f"PRAGMA {name}") == [(int(value, 0),)]
    told = dict(re.findall(r"CREATE TABLE (\w+) \((.*)\);", PAGE["sql"]))
    made = [name for (name,) in rows(database, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert sorted(told) == sorted(made)
    for table, columns in told.items():
        found = rows(database, f"SELECT name, type FROM pragma_table_info('{table}')")
        assert columns == ", ".join(f"{name} {kind}" for name, kind in found)


def test_the_journal_is_rolled_back_not_written_ahead(kept):
    """Debian's SQLite 3.40.1 damages files that are written ahead (WAL)."""
    client, database = kept
    assert rows(database, "PRAGMA journal_mode") == [("delete",)]
    assert not list(client.store.path.parent.glob("*-wal"))


def test_every_digest_is_what_the_page_says(kept, rules):
    client, database = kept
    service = rules.service_of(client._address["url"], client._address["key"])
    target, setting = detect_target().to_json(), Setting(threads=1).to_json()
    place = rules.place_of(service, target, setting, {"kinds": ["c-abi"]})
    key = rules.key_of("o1", add_operator().to_json())
    sql = "SELECT body, digest, stored_at, until FROM entries WHERE place = ? AND key = ?"
    ((body, digest, stored_at, until),) = rows(database, sql, place, key)
    assert digest == rules.entry_digest(place, key, body)
    entry = json.loads(body)
    assert (entry["target"], entry["setting"]) == (rules.key_of("t1", target), rules.key_of("s1", setting))
    assert until == pytest.approx(stored_at + entry["expires_s"]) and stored_at <= time.time() < until

    alias = rules.alias_of({"op": "Add", "inputs": [{"shape": [1000], "dtype": "float32"}] * 2})
    ((body, digest),) = rows(database, "SELECT body, digest FROM aliases WHERE alias = ?", alias)
    assert digest == rules.alias_digest(alias, body)
    assert json.loads(body) == {"key": key, "places": [0, 1]}

    sql = "SELECT document FROM manifests WHERE service = ? AND artifact = ?"
    ((document,),) = rows(database, sql, service, entry["best"]["artifact"])
    signed = json.loads(document)
    assert rules.artifact_of(signed["manifest"]) == entry["best"]["artifact"]
    sql = "SELECT document FROM signers WHERE service = ? AND sha256 = ?"
    ((document,),) = rows(database, sql, service, signed["signer"])
    public_key = bytes.fromhex(json.loads(document)["public_key"])
    assert hashlib.sha256(public_key).hexdigest() == signed["signer"]
    message = b"opatlas manifest 1\n" + rules.canonical(signed["manifest"])
    Ed25519PublicKey.from_public_bytes(public_key).verify(bytes.fromhex(signed["signature"]), message)

    ((name, body),) = rows(database, "SELECT name, body FROM reports WHERE service = ?", service)
    report = json.loads(body)
    assert name == f"{report['client']}-{report['sequence']}" and report["job"] == "run"
    assert report["used"] == [{"implementation": entry["best"]["implementation"], "calls": 1.0, "lookups": 1}]
    assert rows(database, "SELECT until FROM told WHERE service = ?", service)


def test_what_another_client_keeps_by_the_page_is_found(kept, rules, job):
    client, database = kept
    service = rules.service_of(client._address["url"], client._address["key"])
    place = rules.place_of(service, detect_target().to_json(), None, {}, neighbours=())
    ((body,),) = rows(database, "SELECT body FROM entries WHERE key = ?", add_operator().key)
    key, now = add_operator(7).key, time.time()
    body = json.dumps(json.loads(body) | {"key": key, "reason": "µ"}, indent=1).encode()
    row = place, key, body, rules.entry_digest(place, key, body), now, now + 60, now
    with database:
        database.execute("INSERT INTO entries VALUES (?,?,?,?,?,?,?)", row)
    other = job(accepts={}, setting=None, neighbours=False)
    assert other.lookup(add_operator(7)).source == "cache"
    with database:
        sql = "INSERT INTO revoked VALUES (?,?,?)"
        database.execute(sql, (b"another service", json.loads(body)["best"]["artifact"], now))
    assert not job(accepts={}, setting=None, neighbours=False, offline=True).lookup(add_operator(7))


def test_a_job_with_a_limit_has_a_place_of_its_own(kept, rules, job):
    client, _ = kept
    service = rules.service_of(client._address["url"], client._address["key"])
    other = job(job="run", accepts={}, spend_limit="2.50 EUR")
    agreed = ["run", {"amount_micros": 2_500_000, "currency": "EUR"}]
    machine, setting = detect_target().to_json(), Setting(threads=1).to_json()
    assert other._memory.place == rules.place_of(service, machine, setting, {}, agreed)


def test_numbers_are_written_as_the_page_says(rules):
    from opatlas.identity.operator import canonical_json

    document = {"b": [1.0, 1e-5, 1e16, -0.5, 10**20], "a": "µ"}
    assert rules.canonical(document) == canonical_json(document)
    assert canonical_json(document) == b'{"a":"\\u00b5","b":[1.0,1e-05,1e+16,-0.5,100000000000000000000]}'
