"""JSON by orjson says and reads what Python's own does, or leaves it to that."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import pytest

from opatlas import quick_json
from opatlas.quick_json import json_bytes, read_quickly

READ_BY_BOTH = [
    b'{"a": [1, -0, -0.0, 1.5e-7, true, null, "\\u00b5\\ud83d\\ude00"]}', b" \n1\t",
    b'{"a:": ":", "b": {"a": [{":": "::"}, {}]}}',
    b"123456789012345678", b'"\\u0000"', "\"µ\"".encode(),
]  # fmt: skip
LEFT_TO_JSON = [
    b"NaN", b"[-Infinity]", b"18446744073709551616", b"-9223372036854775809", b"1e400", b'"\\ud800"', b"",
    b"\xef\xbb\xbf1", b"[1,]", b'"\xed\xa0\x80"', b"[" * 300 + b"]" * 300, b"[" * 2000, b'"\x01"', b"01",
    b'{"a": 1, "a": 2}', b'[{"b": {"a": {"x": 1}, "c": 2, "\\u0061": {"x": 1}}}]',
    b'{"a": "\\u003a", "a": ":"}',
    b'{"a": "\\u003A", "a": 1}',
]  # fmt: skip
WRITTEN = [
    {"a": [1, 0.1, 1e16, 1e-05, True, None, "µ", 2**64, -(2**70)], "b": (1, 2)}, {1: 2}, 2**63,
    json.loads("[" * 300 + "]" * 300), "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("text", READ_BY_BOTH)
def test_what_is_read_quickly_is_what_json_reads(text: bytes) -> None:
    assert repr(read_quickly(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", LEFT_TO_JSON, ids=lambda text: text[:20])
def test_what_would_be_read_otherwise_is_left_to_json(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_quickly(text)


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("document", WRITTEN, ids=lambda document: repr(document)[:20])
def test_what_is_written_says_the_same(
    document: Any, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(quick_json, "_quick", lambda: None)
    assert json.loads(json_bytes(document)) == json.loads(json.dumps(document))


def test_a_nan_is_written_as_one() -> None:
    assert math.isnan(json.loads(json_bytes([math.nan, 1.0]))[0])


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("moment", ["2026-11-24T23:54:13.120000+00:00", "2026-11-24T23:54:13+00:00"])
@pytest.mark.parametrize("beside", [1, None])  # null has all of it written by json
def test_a_moment_is_written_as_isoformat_has_it(
    moment: str, beside: object, installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not installed:
        monkeypatch.setattr(quick_json, "_quick", lambda: None)
    assert json.loads(json_bytes([datetime.fromisoformat(moment), beside])) == [moment, beside]


def test_what_json_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        json_bytes({"a": {1}})


def test_without_orjson_nothing_is_read_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_json, "_quick", lambda: None)
    with pytest.raises(ValueError):
        read_quickly(b"1")
