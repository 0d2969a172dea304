"""``Authorization: Bearer opk_…``, and what a key may do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from catalog import models
from catalog.people.keys import KeyRefused, authenticate, has_scope

if TYPE_CHECKING:
    from rest_framework.views import APIView  # it imports this module by its settings

_EXAMPLE = "send the header Authorization: Bearer opk_…"


class ApiKeyAuthentication(BaseAuthentication):
    """``request.user`` becomes the key's organisation, ``request.auth`` the key."""

    def authenticate(self, request: Request) -> tuple[Any, models.ApiKey] | None:
        header = get_authorization_header(request).decode("latin-1").strip()
        if not header:
            return None
        scheme, _, text = header.partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise AuthenticationFailed(f"The API takes Bearer keys: {_EXAMPLE}")
        try:
            key = authenticate(text.strip())
        except KeyRefused as refused:
            raise AuthenticationFailed(str(refused)) from refused
        return key.organisation, key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="opatlas"'


class HasScope(BasePermission):
    """The key must have the view's ``required_scope``: a name, or names by HTTP method; else ``lookup``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.auth is None:
            raise NotAuthenticated(f"An API key is needed: {_EXAMPLE}")
        scope = required_scope(view, request.method or "GET")
        key = key_of(request)
        if not has_scope(key, scope):
            has = ", ".join(key.scopes) or "none"
            raise PermissionDenied(f"This needs a key with the scope {scope!r}; yours has: {has}.")
        return True


def key_of(request: Request) -> models.ApiKey:
    """The API key that asks; views behind :class:`HasScope` always have one."""
    key: Any = request.auth
    assert isinstance(key, models.ApiKey)
    return key


def required_scope(view: APIView, method: str) -> str:
    given: str | Mapping[str, str] = getattr(view, "required_scope", "lookup")
    return given if isinstance(given, str) else given.get(method, "lookup")


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """How the schema describes it."""

    target_class = "catalog.api.authentication.ApiKeyAuthentication"
    name = "apiKey"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "opk_<prefix>_<secret>",
            "description": "An API key; `manage.py create_api_key` makes one.",
        }
