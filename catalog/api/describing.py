"""Parts of the OpenAPI schema that many views share."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from rest_framework import serializers

from catalog.timerange import RANGES

_MEANINGS = {
    400: "The request cannot be: the sentence says what would be right.",
    401: "No key, or one that is not known or was revoked.",
    402: "Withheld until it is paid: the body has the price and where to pay.",
    403: "The key lacks the scope that this needs.",
    404: "Nothing is known by that name.",
    408: "The body took too long to arrive.",
    406: "Only JSON is spoken here.",
    409: "Not in the state that it is in.",
    413: "The body is too large.",
    415: "The body must be JSON.",
    422: "The Idempotency-Key named another request before.",
    429: "Too many requests: Retry-After says when to try again.",
    503: "The service itself failed; try again in a moment.",
}


class ErrorSerializer(serializers.Serializer[Any]):
    error = serializers.CharField(help_text="One sentence: what is wrong, and what would be right.")
    where = serializers.CharField(required=False, help_text="Where in the request: operators[3].graph.")
    request_id = serializers.CharField(required=False, help_text="Names this request in the service's log.")


class AgreementSerializer(serializers.Serializer[Any]):
    """What further uses of a charged hit cost, given from the caller's own caches and reported."""

    id = serializers.CharField(help_text="agr_ and 32 hexadecimal digits: names it in `POST /usage`.")
    per_use_micros = serializers.IntegerField()
    uses = serializers.IntegerField(help_text="So many at this price; then look it up again.")
    left_micros = serializers.IntegerField(
        help_text="What the job may still spend, under all of its agreements together."
    )
    valid_until = serializers.DateTimeField()
    expires_s = serializers.FloatField(help_text="So much later, for clocks that differ.")


class PriceSerializer(serializers.Serializer[Any]):
    """What a hit costs. Amounts in millionths of the currency."""

    amount_micros = serializers.IntegerField()
    currency = serializers.CharField(help_text="ISO 4217: EUR.")
    rule = serializers.IntegerField(help_text="The price rule's number.")
    pay_url = serializers.CharField(help_text="The address where people read the price and pay.")
    due_micros = serializers.IntegerField(help_text="What the organisation owes in all; 0 within its credit.")
    sentence = serializers.CharField()
    agreement = AgreementSerializer(required=False, help_text="Of a charged hit, to a lookup with a limit.")


class PaymentRequiredSerializer(ErrorSerializer):
    price = PriceSerializer()


def errors(*statuses: int) -> dict[int, Any]:
    """Error responses to document beyond those that :func:`document_errors` adds to every operation."""
    return {
        status: OpenApiResponse(
            PaymentRequiredSerializer if status == 402 else ErrorSerializer, description=_MEANINGS[status]
        )
        for status in statuses
    }


def document_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """drf-spectacular's hook: every operation says which errors it can answer, whoever wrote its view."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for name, operations in result["paths"].items():
        for method, operation in operations.items():
            if not operation.get("security"):
                continue  # the schema and its page take no key and no input
            possible = {400, 401, 403, 429, 503}
            if "{" in name:
                possible.add(404)
            if method in ("post", "patch", "put"):
                possible |= {404, 409, 413, 415}
            for status in sorted(possible):
                operation["responses"].setdefault(
                    str(status), {"description": _MEANINGS[status], "content": content}
                )
    return result


def query(name: str, description: str, *, required: bool = False, **schema: Any) -> OpenApiParameter:
    """A query parameter that is a text."""
    return OpenApiParameter(
        name,
        {"type": "string", **schema} if schema else OpenApiTypes.STR,
        OpenApiParameter.QUERY,
        required=required,
        description=description,
    )


def in_path(name: str, pattern: str, description: str) -> OpenApiParameter:
    """A path parameter and the pattern it has."""
    return OpenApiParameter(
        name, {"type": "string", "pattern": pattern}, OpenApiParameter.PATH, description=description
    )


def header(name: str, description: str) -> OpenApiParameter:
    """A request header that is a text."""
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=description)


def time_range(default: str) -> list[OpenApiParameter]:
    """The parameters that ``catalog.timerange.parse_range`` reads."""
    return [
        query("range", f"One of {', '.join(RANGES)}; {default} if left out.", enum=list(RANGES)),
        query("since", "Instead of a range: from then on, ISO 8601."),
        query("until", "With since: up to then, not included; now if left out."),
    ]


OPERATOR = in_path("key", "^o1:[0-9a-f]{64}$", "The operator's key.")
