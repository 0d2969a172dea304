"""What an OpenAPI document promises its callers, flattened, so that two documents are compared by meaning.

References are followed, so a component's name means nothing; descriptions, examples and summaries neither.
What only one direction can carry (read-only fields in a request, bounds of a response) is left out of the
other. oasdiff is the well-kept tool for this; it is a Go program, and the Python packages for it stop short
of what is asked here: any change of a field, with ``$ref`` followed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Place = tuple[str, ...]
"""Where a promise stands: ``("GET /api/v1/operators", "answers 200", "results", "[]", "key")``."""

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_BOUNDS = (
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength",
    "pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "default",
)  # fmt: skip
_LISTED = re.compile(r"^- `([^`]+)`: \S", re.MULTILINE)
_SECTION = re.compile(r"<!-- rest-changes -->(.*?)<!-- /rest-changes -->", re.DOTALL)


def promises(document: Mapping[str, Any]) -> dict[Place, str]:
    """Every promise of a document and what is promised there."""
    found: dict[Place, str] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = (f"{method.upper()} {path}",)
                found.update(_of_operation(methods[method], operation, _Reader(document)))
    return found


def broken(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Each place where ``after`` does not keep what ``before`` promised, and how. Additions are no breach,
    unless old callers would have to send them."""
    old, new = promises(before), promises(after)
    breaches = {}
    for place, promise in old.items():
        if place not in new:
            if place[:-1] not in old or place[:-1] in new:  # else the place above says it
                breaches[_text(place)] = f"gone; was: {promise}"
        elif new[place] != promise:
            breaches[_text(place)] = f"was: {promise}; is: {new[place]}"
    for place, promise in new.items():
        asked = place not in old and place[:-1] in old and place[1].startswith("takes")
        if asked and promise.startswith("required"):
            breaches[_text(place)] = f"callers must send it now: {promise}"
    return breaches


def listed(changelog: str) -> list[str]:
    """The places which the changelog says have changed: the code at the head of each item of its list
    between ``<!-- rest-changes -->`` and ``<!-- /rest-changes -->``. Each stands for what is below it too."""
    return [place for section in _SECTION.findall(changelog) for place in _LISTED.findall(section)]


def is_listed(place: str, entries: list[str]) -> bool:
    return any(place == entry or place.startswith(f"{entry} › ") for entry in entries)


def _text(place: Place) -> str:
    return " › ".join(place)


def _of_operation(operation: Mapping[str, Any], place: Place, read: _Reader) -> Iterator[tuple[Place, str]]:
    schemes = sorted(name for scheme in operation.get("security", ()) for name in scheme)
    yield place, f"{operation['operationId']}, with {' or '.join(schemes) or 'no key'}"
    for parameter in map(read.resolved, operation.get("parameters", ())):
        named = (*place, f"takes {parameter['in']} {parameter['name']}")
        yield from read.schema(parameter["schema"], named, required=parameter.get("required", False))
    body = read.resolved(operation.get("requestBody", {}))
    for kind, content in body.get("content", {}).items():
        yield from read.schema(
            content["schema"], (*place, f"takes {kind}"), required=body.get("required", False)
        )
    for code, response in operation["responses"].items():
        answered = (*place, f"answers {code}")
        yield answered, "a response"
        for kind, content in read.resolved(response).get("content", {}).items():
            yield from _Reader(read.document, answer=True).schema(content["schema"], (*answered, kind))


class _Reader:
    """Reads schemas of one direction: of requests, or of answers."""

    def __init__(self, document: Mapping[str, Any], *, answer: bool = False) -> None:
        self.document, self.answer = document, answer

    def resolved(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        """The part without a reference at its head, and with the parts of an ``allOf`` made one."""
        if "$ref" in part:
            target: Any = self.document
            for step in part["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            return self.resolved({**target, **{key: value for key, value in part.items() if key != "$ref"}})
        if "allOf" in part:
            merged: dict[str, Any] = {"required": [], "properties": {}}
            for one in (*part["allOf"], {key: value for key, value in part.items() if key != "allOf"}):
                one = self.resolved(one)
                both = {
                    "required": [*merged["required"], *one.get("required", ())],
                    "properties": {**merged["properties"], **one.get("properties", {})},
                }
                merged = {**merged, **one, **both}
            return merged
        return part

    def schema(
        self, schema: Mapping[str, Any], place: Place, *, required: bool = False
    ) -> Iterator[tuple[Place, str]]:
        schema = self._with_alternatives(self.resolved(schema))
        words = ["required" if required else "optional", schema.get("type", "anything")]
        words += [schema["format"]] if "format" in schema else []
        words += ["or null"] if schema.get("nullable") else []
        if not self.answer:
            words += [f"{bound} {json.dumps(schema[bound])}" for bound in _BOUNDS if bound in schema]
            words += ["of a list"] if "enum" in schema else []
        yield place, " ".join(words)
        for value in schema.get("enum", ()):
            yield (*place, f"= {json.dumps(value)}"), "a value"
        for alternative in schema.get("oneOf", ()):
            yield from self.schema(alternative, (*place, f"as {alternative.get('type', 'anything')}"))
        for name, field in schema.get("properties", {}).items():
            if not self.resolved(field).get("writeOnly" if self.answer else "readOnly"):
                yield from self.schema(field, (*place, name), required=name in schema.get("required", ()))
        if "items" in schema:
            yield from self.schema(schema["items"], (*place, "[]"))
        if schema.get("additionalProperties", True) not in (True, False, {}):
            yield from self.schema(schema["additionalProperties"], (*place, "{}"))

    def _with_alternatives(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Several enumerations for one field are one: null and the empty string come as such."""
        alternatives = [self.resolved(one) for one in schema.get("oneOf", ())]
        if not alternatives or not all("enum" in one for one in alternatives):
            return {**schema, **({"oneOf": alternatives} if alternatives else {})}
        values = [value for one in alternatives for value in one["enum"]]
        rest = {key: value for key, value in schema.items() if key != "oneOf"}
        return {**alternatives[0], **rest, "enum": values}
