"""Reading JSON bodies within bounds."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser

from catalog.conf import MAX_BODY_BYTES
from catalog.errors import RequestError, TooLarge
from opatlas.quick_json import read_quickly

# What JSON can say and no database or answer can carry: NUL, and halves of surrogate pairs.
_SUSPECT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


class BoundedParser(BaseParser):
    """The body as it is; one that is larger is refused before it is read."""

    max_bytes: int

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        self.check_announced(parser_context)
        body = stream.read(self.max_bytes + 1)
        if len(body) > self.max_bytes:
            raise self.too_large()
        return body

    def check_announced(self, parser_context: Mapping[str, Any] | None) -> None:
        """Raises TooLarge where the request says that its body is."""
        request = (parser_context or {}).get("request")
        announced = str(request.META.get("CONTENT_LENGTH") or "0") if request is not None else "0"
        if announced.isdigit() and int(announced) > self.max_bytes:
            raise self.too_large()

    def too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self.max_bytes >> 10} KiB: split the request.")


class BoundedJSONParser(BoundedParser):
    """JSON of at most 1 MiB."""

    media_type = "application/json"
    max_bytes = MAX_BODY_BYTES

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        _check_charset(str((parser_context or {}).get("encoding") or "utf-8"))
        return parse_json(super().parse(stream, media_type, parser_context))


def parse_json(body: bytes) -> Any:
    """Strict JSON (UTF-8, no NaN, no key twice); raises :class:`RequestError` that says where it is none."""
    try:
        document = read_quickly(body)
    except ValueError:
        document = _read_slowly(body)
    if _SUSPECT.search(body):
        _check_characters(document)
    return document


def _read_slowly(body: bytes) -> Any:
    try:
        return json.loads(
            body.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_with_each_key_once
        )
    except UnicodeDecodeError as error:
        raise RequestError(f"The body is not UTF-8 at byte {error.start}.") from error
    except json.JSONDecodeError as error:
        raise RequestError(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    except RecursionError as error:
        raise RequestError("The JSON is nested too deeply.") from error
    except ValueError as error:  # a number of thousands of digits
        raise RequestError("The JSON has a number that is too long.") from error


def _check_characters(document: Any) -> None:
    text = json.dumps(document, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError(
            "The JSON has half of a surrogate pair (\\ud800 to \\udfff) in a string."
        ) from error
    # json.dumps writes a NUL as an escape; an escaped backslash before "u0000" is no NUL.
    if re.search(r"(?<!\\)(?:\\\\)*\\u0000", text):
        raise RequestError("The JSON has a NUL character (\\u0000) in a string.")


def _with_each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Which of two would count is not for us to guess: a proxy or a signer may have read the other."""
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RequestError(
            f"The JSON has the key {json.dumps(twice[:100])} twice in one object: send it once."
        )
    return members


def _refuse_constant(name: str) -> Any:
    raise RequestError(f"The body is not JSON: {name} is no JSON number.")


def _check_charset(name: str) -> None:
    try:
        known = codecs.lookup(name).name
    except (LookupError, ValueError):
        known = ""
    if known not in ("utf-8", "ascii"):
        raise UnsupportedMediaType(name, "The body must be UTF-8 JSON.")
