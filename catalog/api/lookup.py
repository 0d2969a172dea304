"""``POST /lookup`` and ``GET /operators/{key}/best``: what jobs call."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from catalog.api import lookup_json
from catalog.api.authentication import key_of
from catalog.api.describing import errors, path, query
from catalog.api.parsers import BoundedJSONParser
from catalog.api.serializers import BestAnswerSerializer, LookupAnswerSerializer, LookupRequestSerializer
from catalog.best.revoked import Revocations, recently_revoked
from catalog.best.served import Accepts, scopes_of
from catalog.errors import RequestError
from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
from catalog.models import ApiKey
from catalog.selectors import known


class LookupView(APIView):
    """Ask for the best implementations of up to 1,024 operators on a target."""

    parser_classes = [BoundedJSONParser]

    @extend_schema(
        operation_id="lookup",
        tags=["lookup"],
        summary="Ask for the best implementations of many operators",
        description=(
            "A hit carries the fastest implementation that the request accepts, with its evidence. A miss is "
            "answered at once and explored in the background; it is committed before the answer leaves, and "
            "asking twice is one exploration with a count. An operator whose graph the service never saw "
            "is answered `need_graph`: send it once. Misses beyond the key's quota are answered `refused`, "
            "item by item; the request itself succeeds. An unknown target or setting key is a 404. "
            "A hit may be used for `entry_life_s` without asking again; `revoked` names artifacts that must "
            "no longer be used from now on, whoever holds them."
        ),
        request=LookupRequestSerializer,
        responses={200: LookupAnswerSerializer, **errors(400, 404, 413, 415)},
    )
    def post(self, request: Request) -> HttpResponse:
        key = key_of(request)
        parsed = lookup_json.parse_lookup(request.data)
        target, setting = lookup_json.resolve(parsed.target, parsed.setting)
        answer = lookup(
            LookupRequest(
                target=target,
                setting=setting,
                operators=parsed.operators,
                related=parsed.related,
                organisation=key.organisation,
                api_key=key,
                job=parsed.job,
                accepts=parsed.accepts,
                wait_s=parsed.wait_s,
            )
        )
        return _json(lookup_json.answer_json(answer, _revocations(key)))


class OperatorBestView(APIView):
    """Ask for one operator that is known, by its key."""

    @extend_schema(
        operation_id="operator_best",
        tags=["lookup"],
        summary="Ask for the best implementation of one operator",
        description="The same as a lookup of this one operator: a miss is recorded and will be explored.",
        parameters=[
            path("key", "^o1:[0-9a-f]{64}$", "The operator's key."),
            query(
                "target",
                "The target's t1: key, or `here`: that of the live worker seen last.",
                required=True,
                pattern="^(t1:[0-9a-f]{64}|here)$",
            ),
            query("setting", "The setting's s1: key; all cores if left out.", pattern="^s1:[0-9a-f]{64}$"),
            query("kinds", "Artifact kinds that can be loaded: c-abi,recipe."),
            query("versions", "What is installed: torch==2.13.0,onnxruntime==1.31.1."),
            query("job", "The run that asks, by its name.", maxLength=200),
        ],
        responses={200: BestAnswerSerializer, **errors(400, 404)},
    )
    def get(self, request: Request, key: str) -> HttpResponse:
        api_key = key_of(request)
        given = request.query_params
        if "target" not in given:
            raise RequestError(
                "Name the target: ?target=t1:… (GET /api/v1/targets/ lists them).", where="target"
            )
        parsed_target = lookup_json.parse_target(given["target"])
        parsed_setting = lookup_json.parse_setting(given.get("setting") or None)
        accepts = _accepts(given.get("kinds", ""), given.get("versions", ""))
        job = lookup_json.parse_job(given.get("job", ""))
        row = known.operator(key)
        target, setting = lookup_json.resolve(parsed_target, parsed_setting)
        answer = lookup(
            LookupRequest(
                target=target,
                setting=setting,
                operators=[AskedOperator(row.key)],
                organisation=api_key.organisation,
                api_key=api_key,
                job=job,
                accepts=accepts,
            )
        )
        body = lookup_json.answer_json(answer, _revocations(api_key))
        (result,) = body.pop("results")
        return _json(result | body)


def _revocations(key: ApiKey) -> Revocations:
    """Read after the lookup: what was revoked while it ran is told as well."""
    return recently_revoked(scopes_of(key.organisation))


def _accepts(kinds: str, versions: str) -> Accepts | None:
    if not kinds and not versions:
        return None
    pairs = dict(_pair(item) for item in versions.split(",")) if versions else None
    return Accepts(
        kinds=lookup_json.parse_kinds(kinds.split(","), "kinds") if kinds else None, versions=pairs
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, version = text.partition("==")
    if not (name and equals and version):
        raise RequestError("versions looks like torch==2.13.0,numpy==2.4.6.", where="versions")
    return name.strip(), version.strip()


def _json(body: dict[str, Any]) -> HttpResponse:
    """Straight to bytes: a renderer that negotiates costs more than the answer."""
    return HttpResponse(json.dumps(body, separators=(",", ":")), content_type="application/json")
