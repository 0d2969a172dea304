"""The base of every endpoint below /api/v1/, and the helpers that describe it in the schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, wraps
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http.response import HttpResponseBase
from django.urls import register_converter
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.exceptions import PermissionDenied
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer
from rest_framework.views import APIView

from catalog.api.authentication import Needs, key_of
from catalog.api.describing import errors
from catalog.errors import RequestError, Unknown
from catalog.models import ApiKey
from catalog.viewing import Viewer, viewer_of_key

MAX_ID = 2**63 - 1

M = TypeVar("M", bound=Model)


class RestView(APIView):
    """Base of every view. Only ``needs`` on the class says what a key needs."""

    needs: Needs = Needs("lookup")

    def perform_content_negotiation(self, request: Request, force: bool = False) -> tuple[Any, str]:
        """DRF's, with a shortcut for clients that accept anything or JSON. Most do, and parsing headers takes
        longer than reading the catalogue."""
        first = self.renderer_classes[0]
        accepted = request.META.get("HTTP_ACCEPT", "*/*")
        plain = getattr(self, "format_kwarg", None) is None and "format" not in request.query_params
        if plain and accepted in ("*/*", first.media_type):
            return first(), str(first.media_type)
        found: tuple[Any, str] = super().perform_content_negotiation(request, force)
        return found

    @property
    def allowed_methods(self) -> list[str]:
        view: Any = type(self)
        return _methods_of(view)

    @property
    def key(self) -> ApiKey:
        return key_of(self.request)

    @cached_property
    def viewer(self) -> Viewer:
        """The caller: which rows the key sees, and what it may do."""
        return viewer_of_key(self.key)

    def person(self, why: str) -> User:
        """The key's person; 403 for a key without one."""
        user = self.key.user
        if user is None:
            raise PermissionDenied(f"This needs a key that belongs to a user: {why}")
        if not user.is_active:
            raise PermissionDenied("The user whose key this is was switched off.")
        return user

    def text(self, name: str, most: int = 100) -> str:
        """A query parameter; empty if it is not given."""
        text = self.request.query_params.get(name, "")
        if len(text) > most or "\0" in text:
            raise RequestError(f"{name} is at most {most} characters, without NUL.", where=name)
        return text

    def sent(self, kind: type[Serializer[Any]]) -> dict[str, Any]:
        """The checked body."""
        serializer = kind(data=self.request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)


@cache
def _methods_of(view: type[APIView]) -> list[str]:
    """The methods in each answer's Allow. A view with GET has HEAD, on the instance alone."""
    return [
        name.upper()
        for name in view.http_method_names
        if hasattr(view, "get" if name == "head" and not hasattr(view, "head") else name)
    ]


class Listing(RestView, ListAPIView[M]):
    """Base of paginated lists: ``get_queryset`` gives the rows, :func:`listing` their shape."""


def operation(
    answers: type[Serializer[Any]] | None = None,
    *,
    many: bool = False,
    status: int = 200,
    **described: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Describe a view's method, and answer with its result in the described shape. Its docstring is the
    description in the schema; ``described``: see :func:`_described`. A method may also return a response
    itself."""

    def decorate(method: Callable[..., Any]) -> Any:
        @wraps(method)
        def answered(self: RestView, request: Request, **arguments: Any) -> HttpResponseBase:
            row = method(self, request, **arguments)
            if isinstance(row, HttpResponseBase):
                return row
            data = answers(row, many=many, context={"request": request}).data if answers else None
            return Response(data, status=status)

        own = described.get("responses") if answers is None else None
        shown = answers(many=True) if many and answers else answers
        return _described(method, {} if own else {status: shown}, **described)(answered)

    return decorate


def listing(row: type[Serializer[Any]], **described: Any) -> Callable[[type], Any]:
    """Describe a :class:`Listing` by its docstring; ``row`` is the shape of its rows."""

    def decorate(view: Any) -> Any:
        view.serializer_class = row
        return extend_schema_view(get=_described(view, {200: row(many=True)}, **described))(view)

    return decorate


def _described(
    what: Any,
    answers: Mapping[int, Any],
    *,
    name: str = "",
    takes: Any = None,
    fails: Sequence[int] = (),
    tag: str = "",
    responses: Mapping[Any, Any] | None = None,
    **more: Any,
) -> Any:
    """A short form of ``extend_schema``. ``name``: the operation's, made of its address if left out;
    ``takes``: the body; ``fails``: statuses beyond those of every operation (``describing.document_errors``);
    ``tag``: its chapter, the first part of the address if left out."""
    summary, _, description = (inspect.getdoc(what) or "").partition("\n\n")
    return extend_schema(
        operation_id=name or None,
        summary=" ".join(summary.split()).rstrip("."),
        description=" ".join(description.split()),
        request=takes,
        responses={**answers, **(responses or {}), **errors(*fails)},
        tags=[tag] if tag else None,
        **more,
    )


def one(rows: QuerySet[M], number: int, missing: str) -> M:
    """The visible row with this number; raises :class:`Unknown` with the sentence."""
    row = rows.filter(pk=number).first() if number <= MAX_ID else None
    if row is None:
        raise Unknown(missing)
    return row


class _Text:
    """A part of an address that matches its pattern; anything else is a 404."""

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


class OperatorKeyConverter(_Text):
    regex = "o1:[0-9a-f]{64}"


class Sha256Converter(_Text):
    regex = "[0-9a-f]{64}"


class PlainNameConverter(_Text):
    regex = "[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}"


class RowIdConverter:
    """A row's number; nineteen digits hold every number that a row can have."""

    regex = "[0-9]{1,19}"

    def to_python(self, value: str) -> int:
        return int(value)

    def to_url(self, value: int) -> str:
        return str(value)


register_converter(OperatorKeyConverter, "operator_key")
register_converter(Sha256Converter, "sha256")
register_converter(PlainNameConverter, "plain_name")
register_converter(RowIdConverter, "row_id")
