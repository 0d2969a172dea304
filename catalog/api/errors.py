"""Every error is JSON: ``{"error": "<one clear sentence>", "where": "operators[3].graph"}``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions
from rest_framework.response import Response

from catalog.context import log_fields
from catalog.errors import DISK_FULL, SystemFault, is_full
from opatlas.errors import CallerError

logger = logging.getLogger(__name__)

_RETRY_S = 2
_MOST_CHARACTERS, _LAST = 500, 120


def exception_handler(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's hook: the caller's errors become 4xx, the system's 503; unexpected ones are raised."""
    if isinstance(error, CallerError):
        status = getattr(error, "status", 400)
        view, request = context.get("view"), context.get("request")
        challenge = view.get_authenticate_header(request) if view and status == 401 else None
        return _answer(
            str(error),
            status,
            where=error.where,
            headers={"WWW-Authenticate": challenge} if challenge else None,
            details=getattr(error, "details", None),
        )
    if isinstance(error, Http404):
        return _answer(_sentence(error) or "There is nothing here.", 404)
    if isinstance(error, PermissionDenied):
        return _answer(_sentence(error) or "This is not allowed.", 403)
    if isinstance(error, exceptions.APIException):
        headers = {}
        if challenge := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = str(challenge)
        if isinstance(error, exceptions.Throttled):
            headers["Retry-After"] = str(max(1, math.ceil(getattr(error, "wait", None) or 0)))
        where, sentence = first_complaint(error.detail)
        return _answer(sentence, error.status_code, where=where, headers=headers)
    if isinstance(error, SystemFault | OperationalError | InterfaceError):
        logger.error("the service failed: %s", error, exc_info=error)
        sentence = str(error) if isinstance(error, SystemFault) else _of_database(error)
        return _answer(f"{sentence} Try again in a moment.", 503, headers={"Retry-After": str(_RETRY_S)})
    return None


@csrf_exempt
@login_not_required
def nothing_here(request: HttpRequest, rest: str = "") -> JsonResponse:
    """The answer for addresses below /api/ that no other URL takes."""
    return JsonResponse({"error": f"There is no {request.path}: see /api/v1/docs/."}, status=404)


def _answer(
    sentence: str,
    status: int,
    *,
    where: str = "",
    headers: dict[str, str] | None = None,
    details: Mapping[str, Any] | None = None,
) -> Response:
    sentence, where = _shortened(sentence), _shortened(where)
    body: dict[str, Any] = {"error": sentence, "where": where} if where else {"error": sentence}
    if number := log_fields().get("request_id"):
        body["request_id"] = number
    return Response(body | dict(details or {}), status=status, headers=headers)


def _shortened(sentence: str) -> str:
    """A sentence may quote what was sent; of a long quotation only the beginning is shown."""
    if len(sentence) <= _MOST_CHARACTERS:
        return sentence
    return f"{sentence[: _MOST_CHARACTERS - _LAST]}…{sentence[-_LAST:]}"


def _of_database(error: Exception) -> str:
    return f"{DISK_FULL}: nothing was changed." if is_full(error) else "The database does not answer."


def _sentence(error: Exception) -> str:
    return str(error.args[0]) if error.args else ""


def first_complaint(detail: Any, where: str = "") -> tuple[str, str]:
    """The first of a serializer's errors, and where it is."""
    if isinstance(detail, dict):
        name, inner = next(iter(detail.items()))
        return first_complaint(inner, f"{where}.{name}".lstrip(".") if name != "non_field_errors" else where)
    if isinstance(detail, list):
        return first_complaint(detail[0], where) if detail else (where, "The request is not valid.")
    return where, str(detail)
