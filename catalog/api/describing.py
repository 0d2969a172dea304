"""Parts of the OpenAPI schema that many views share."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from catalog.api.serializers import ErrorSerializer, PaymentRequiredSerializer

_MEANINGS = {
    400: "The request cannot be: the sentence says what would be right.",
    401: "No key, or one that is not known or was revoked.",
    402: "Withheld until it is paid: the body has the price and where to pay.",
    403: "The key lacks the scope that this needs.",
    404: "Nothing is known by that name.",
    406: "Only JSON is spoken here.",
    409: "Not in the state that it is in.",
    413: "The body is too large.",
    415: "The body must be JSON.",
    429: "Too many requests: Retry-After says when to try again.",
    503: "The service itself failed; try again in a moment.",
}


def errors(*statuses: int) -> dict[int, Any]:
    """Error responses to document; those of every view (401, 403, 429, 503) come with them."""
    return {
        status: OpenApiResponse(
            PaymentRequiredSerializer if status == 402 else ErrorSerializer, description=_MEANINGS[status]
        )
        for status in sorted({401, 403, 429, 503, *statuses})
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


def path(name: str, pattern: str, description: str) -> OpenApiParameter:
    """A path parameter and the pattern it has."""
    return OpenApiParameter(
        name, {"type": "string", "pattern": pattern}, OpenApiParameter.PATH, description=description
    )


def header(name: str, description: str) -> OpenApiParameter:
    """A request header that is a text."""
    return OpenApiParameter(name, OpenApiTypes.STR, OpenApiParameter.HEADER, description=description)
