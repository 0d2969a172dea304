"""REST keeps what its schema promised at 7fa76a5 and, of what came since, at 4919cdc0. CHANGELOG.md lists the
exceptions between its marks, each with its reason."""

import copy
import gzip
import json
from pathlib import Path

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.compatibility.promises import broken, is_listed, listed

ROOT = Path(__file__).resolve().parents[2]


def schema_of(commit):
    """As ``SchemaGenerator`` gave it there, that of 4919cdc0 without its descriptions."""
    return json.loads(gzip.decompress((ROOT / f"tests/data/openapi_{commit}.json.gz").read_bytes()))


BEFORE = schema_of("7fa76a5")


def test_rest_promises_what_it_did_or_the_changelog_says_so():
    today = json.loads(json.dumps(SchemaGenerator().get_schema(request=None, public=True)))
    breaches = broken(BEFORE, today) | broken(schema_of("4919cdc0"), today)
    entries = listed((ROOT / "CHANGELOG.md").read_text())
    unlisted = {place: how for place, how in breaches.items() if not is_listed(place, entries)}
    assert not unlisted, "\n".join(f"{place}: {how}" for place, how in unlisted.items())
    stale = [entry for entry in entries if not any(is_listed(place, [entry]) for place in breaches)]
    assert not stale, f"CHANGELOG.md lists changes of REST that are none: {stale}"


@pytest.fixture
def after():
    return copy.deepcopy(BEFORE)


def _schemas(document):
    return document["components"]["schemas"]


def _lookup(document):
    return document["paths"]["/api/v1/lookup"]["post"]


def _request(document):
    return _schemas(document)["LookupRequest"]


def test_a_renamed_component_and_new_words_are_no_change(after):
    text = json.dumps(after).replace("#/components/schemas/LookupAnswer", "#/components/schemas/Answered")
    after = json.loads(text)
    _schemas(after)["Answered"] = _schemas(after).pop("LookupAnswer")
    _lookup(after)["description"] = "Other words."
    assert broken(BEFORE, after) == {}


def test_a_component_written_in_place_is_no_change(after):
    _lookup(after)["requestBody"]["content"]["application/json"]["schema"] = _schemas(after)["LookupRequest"]
    assert broken(BEFORE, after) == {}


def test_additions_are_fine(after):
    _schemas(after)["LookupAnswer"]["properties"]["extra"] = {"type": "string"}
    _schemas(after)["LookupAnswer"]["required"].append("extra")
    _request(after)["properties"]["wish"] = {"type": "string"}
    _schemas(after)["PriorityEnum"]["enum"].append("tomorrow")
    after["paths"]["/api/v1/new"] = {"get": _lookup(after)}
    assert broken(BEFORE, after) == {}


def _remove_path(document):
    del document["paths"]["/api/v1/lookup"]


def _remove_method(document):
    document["paths"]["/api/v1/lookup"]["get"] = document["paths"]["/api/v1/lookup"].pop("post")


def _remove_parameter(document):
    operation = document["paths"]["/api/v1/operators/"]["get"]
    operation["parameters"] = [each for each in operation["parameters"] if each["name"] != "limit"]


def _require_a_parameter(document):
    parameters = document["paths"]["/api/v1/operators/"]["get"]["parameters"]
    next(each for each in parameters if each["name"] == "limit")["required"] = True


def _add_a_required_parameter(document):
    parameters = document["paths"]["/api/v1/operators/"]["get"]["parameters"]
    parameters.append({"in": "query", "name": "why", "required": True, "schema": {"type": "string"}})


def _remove_a_field_of_an_answer(document):
    del _schemas(document)["LookupAnswer"]["properties"]["results"]


def _rename_a_field_of_a_request(document):
    properties = _request(document)["properties"]
    properties["where"] = properties.pop("target")


def _require_a_new_field(document):
    _request(document)["properties"]["why"] = {"type": "string"}
    _request(document).setdefault("required", []).append("why")


def _let_a_field_be_left_out(document):
    _schemas(document)["LookupAnswer"]["required"].remove("results")


def _other_type(document):
    _schemas(document)["LookupAnswer"]["properties"]["results"]["type"] = "object"


def _null(document):
    _schemas(document)["LookupAnswer"]["properties"]["results"]["nullable"] = True


def _tighter(document):
    _request(document)["properties"]["operators"]["maxItems"] = 1


def _no_bound_to_a_bound(document):
    document["paths"]["/api/v1/operators/"]["get"]["parameters"][0]["schema"]["maxLength"] = 1


def _fewer_values(document):
    _schemas(document)["PriorityEnum"]["enum"].pop()


def _no_status(document):
    del _lookup(document)["responses"]["404"]


def _other_kind(document):
    content = _lookup(document)["responses"]["200"]["content"]
    content["text/plain"] = content.pop("application/json")


def _no_key(document):
    _lookup(document)["security"] = []


@pytest.mark.parametrize(
    "change",
    [
        _remove_path, _remove_method, _remove_parameter, _require_a_parameter, _add_a_required_parameter,
        _remove_a_field_of_an_answer, _rename_a_field_of_a_request, _require_a_new_field,
        _let_a_field_be_left_out, _other_type, _null, _tighter, _no_bound_to_a_bound, _fewer_values,
        _no_status, _other_kind, _no_key,
    ],
)  # fmt: skip
def test_a_change_that_callers_would_notice_is_found(after, change):
    change(after)
    assert broken(BEFORE, after)


def test_the_changelog_lists_places_and_what_is_below_them(after):
    changelog = "<!-- rest-changes -->\n- `GET /a › answers 200`: renamed, since …\n<!-- /rest-changes -->\n"
    assert listed(changelog + "- `GET /b`: not between the marks\n") == ["GET /a › answers 200"]
    assert is_listed("GET /a › answers 200 › key", listed(changelog))
    assert not is_listed("GET /a › answers 2001", listed(changelog))
