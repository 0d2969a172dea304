"""Answers are derived from the rows that selectors return; what a key needs stands on the view."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.exceptions import NotAuthenticated, PermissionDenied
from rest_framework.test import APIRequestFactory

from catalog.api.authentication import MeetsNeeds, Needs
from catalog.api.endpoint import RestView
from catalog.api.shapes import shape
from catalog.models import ApiKey, Operator, Organisation
from catalog.viewing import OPERATE


class Part(NamedTuple):
    name: str
    won: int


@dataclass(frozen=True)
class Inner:
    hits: int
    misses: int

    @property
    def rate(self) -> float | None:
        """Null while nobody asked."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None


@dataclass(frozen=True)
class Outer:
    operator: Operator
    inner: Inner
    parts: tuple[Part, ...] = ()
    workers: Annotated[int, "Live ones."] = 0


ROW = Outer(Operator(key="o1:ab"), Inner(3, 1), (Part("tvm", 2),))


def test_a_row_is_shown_by_its_fields_and_other_rows_by_their_key():
    made: Any = shape(Outer, parts=shape(Part)(many=True))
    assert made(ROW).data == {
        "operator": "o1:ab",
        "inner": {"hits": 3, "misses": 1},
        "parts": [{"name": "tvm", "won": 2}],
        "workers": 0,
    }


def test_properties_other_names_and_what_is_left_out():
    inner = shape(Inner, "rate", without=["misses"], found="hits")
    made: Any = shape(Outer, using=[inner], without=["operator", "parts", "workers"])
    assert made(ROW).data == {"inner": {"rate": 0.75, "found": 3}}


def test_every_field_is_promised_and_says_what_it_means():
    fields = shape(Outer, without=["parts"])().fields
    assert fields["workers"].required
    assert fields["workers"].help_text == "Live ones."
    rate = shape(Inner, "rate")().fields["rate"]
    assert (rate.help_text, rate.allow_null) == ("Null while nobody asked.", True)


def test_a_name_that_no_row_has_is_refused():
    with pytest.raises(ImproperlyConfigured, match="hit_rate"):
        assert shape(Inner, "hit_rate")().fields


def _asked(needs: Needs, method: str, key: ApiKey | None) -> bool:
    view = RestView()
    view.needs = needs
    request = APIRequestFactory().generic(method, "/")
    request.auth = key  # type: ignore[attr-defined]
    return MeetsNeeds().has_permission(request, view)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scopes", "method", "may"),
    [
        (["kernels"], "GET", True),
        (["approve"], "GET", True),
        (["approve"], "POST", False),
        (["kernels"], "POST", True),
        (["admin"], "POST", True),
        (["lookup"], "GET", False),
    ],
)
def test_a_key_needs_the_scope_or_to_read_the_other(scopes: list[str], method: str, may: bool):
    key = ApiKey(scopes=scopes, organisation=Organisation(name="acme"))
    needs = Needs("kernels", or_read_with="approve")
    if may:
        assert _asked(needs, method, key)
    else:
        with pytest.raises(PermissionDenied, match="yours has"):
            _asked(needs, method, key)


def test_without_a_key_nothing_is_shown():
    with pytest.raises(NotAuthenticated):
        _asked(Needs("lookup"), "GET", None)


@pytest.mark.parametrize("host", [True, False])
def test_what_concerns_everybody_takes_the_host(host: bool):
    key = ApiKey(scopes=["operate"], organisation=Organisation(pk=7, name="acme", host=host))
    needs = Needs("operate", everywhere=OPERATE, refusal="The host alone.")
    if host:
        assert _asked(needs, "POST", key)
    else:
        with pytest.raises(PermissionDenied, match="The host alone"):
            _asked(needs, "POST", key)


def _views(resolver: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for one in resolver.url_patterns:
        path = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _views(one, path)
        elif isinstance(one, URLPattern) and path.startswith("api/v1/"):
            yield path.removeprefix("api/v1/"), one.callback


def test_every_endpoint_says_what_it_needs_and_nothing_else_decides():
    views = dict(_views(get_resolver()))
    assert len(views) > 60
    without_key = {path for path, view in views.items() if not view.cls.permission_classes}
    without_key |= {path for path, view in views.items() if view.initkwargs.get("permission_classes") == []}
    assert without_key == {"schema/", "docs/", "billing/payments/<slug:provider>"}
    for path in views.keys() - without_key:
        view = views[path].cls
        assert issubclass(view, RestView) and view.permission_classes == [MeetsNeeds], path
        assert isinstance(view.needs, Needs), path
