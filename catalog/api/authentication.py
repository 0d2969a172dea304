"""``Authorization: Bearer opk_…``, and what a key may do."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated, PermissionDenied
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from catalog import models
from catalog.api.warm.rows import ROWS, WarmRows
from catalog.people.addresses import client_address
from catalog.people.keys import KeyRefused, authenticate, has_scope, key_of_text
from catalog.viewing import viewer_of_key

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
            read = partial(self.key_of_text, request)
            key = authenticate(text.strip(), client_address(request._request), read)
        except KeyRefused as refused:
            raise AuthenticationFailed(str(refused)) from refused
        return key.organisation, key

    def key_of_text(self, request: Request, text: str) -> models.ApiKey:
        """The row, from the database each time; raises :class:`KeyRefused`. For lookups, of which there are
        thousands, one that was read within the look will do: whether it is revoked, has expired or is for
        elsewhere is asked of it each time."""
        rows: WarmRows | None = request._request.META.get(ROWS)
        if rows is None or not getattr(request.parser_context["view"], "takes_keys_of_the_look", False):
            return key_of_text(text)
        # No key lies in this memory: its digest does.
        shown = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        return rows.found(("key", shown), partial(key_of_text, text))

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="opatlas"'


@dataclass(frozen=True)
class Needs:
    """What an endpoint asks of a key: the one place where that stands.

    ``scope`` is needed, or for reading ``or_read_with``. ``everywhere``: what the key must be allowed in the
    whole service (``catalog.viewing``), since it concerns everybody; ``refusal`` says so.
    """

    scope: str
    or_read_with: str = ""
    everywhere: str = ""
    refusal: str = ""

    def scopes(self, method: str) -> list[str]:
        reading = method in SAFE_METHODS and self.or_read_with
        return [self.scope, self.or_read_with] if reading else [self.scope]


class MeetsNeeds(BasePermission):
    """The key has what the view ``needs``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if request.auth is None:
            raise NotAuthenticated(f"An API key is needed: {_EXAMPLE}")
        needs, key = getattr(view, "needs", Needs("lookup")), key_of(request)
        scopes = needs.scopes(request.method or "GET")
        if not any(has_scope(key, scope) for scope in scopes):
            wanted, has = " or ".join(map(repr, scopes)), ", ".join(key.scopes) or "none"
            raise PermissionDenied(f"This needs a key with the scope {wanted}; yours has: {has}.")
        if needs.everywhere and not viewer_of_key(key).may(needs.everywhere):
            raise PermissionDenied(needs.refusal)
        return True


def key_of(request: Request) -> models.ApiKey:
    """The API key that asks; views behind :class:`MeetsNeeds` always have one."""
    key: Any = request.auth
    assert isinstance(key, models.ApiKey)
    return key


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
