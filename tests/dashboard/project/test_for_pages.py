"""Programs pass pages' middleware by, and are answered as if they had not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import Client, RequestFactory, override_settings
from django.urls import URLPattern, URLResolver, get_resolver, path
from django.utils.module_loading import import_string

from catalog.models import AuditEntry
from dashboard.project import for_pages

pytestmark = pytest.mark.django_db

KEYS = "/api/v1/keys/"


def whole(name: str) -> str:
    """The middleware as it is for pages, for every request."""
    if not name.startswith(for_pages.__name__):
        return name
    one = import_string(name).__bases__[-1]
    return f"{one.__module__}.{one.__qualname__}"


WITH_ALL = override_settings(MIDDLEWARE=[whole(name) for name in settings.MIDDLEWARE])


def patterns(of: URLResolver, before: str = "") -> Iterator[tuple[str, URLPattern]]:
    for one in of.url_patterns:
        where = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from patterns(one, where)
        else:
            yield where, one


def test_each_address_of_the_api_says_itself_that_it_needs_neither_session_nor_token() -> None:
    below = [
        (where, one.callback)
        for where, one in patterns(get_resolver())
        if where.startswith(("api/", "^api/"))
    ]
    assert len(below) > 80
    assert [where for where, view in below if getattr(view, "login_required", True)] == []
    assert [where for where, view in below if not getattr(view, "csrf_exempt", False)] == []


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("/api/v1/lookup", True),
        ("/api/", True),
        ("/api/v1/docs/", False),  # people read it
        ("/api", False),
        ("//api/v1/lookup", False),
        ("/API/v1/lookup", False),
        ("/x/../api/v1/lookup", False),
        ("/admin/", False),
    ],
)
def test_who_counts_as_a_program(address: str, expected: bool) -> None:
    request = RequestFactory().get("/")
    request.path_info = address
    assert for_pages.is_for_programs(request) is expected


def forgotten(request: HttpRequest) -> HttpResponse:
    return HttpResponse("open")


urlpatterns = [path("api/v1/forgotten", forgotten), path("login/", forgotten, name="login")]


def test_a_view_below_api_that_forgot_to_say_so_is_refused(administrator: Any) -> None:
    """By the login, and by CSRF's check: a session opens nothing there either."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(administrator)
    with override_settings(ROOT_URLCONF=__name__, APPEND_SLASH=False):
        assert client.get("/api/v1/forgotten").status_code == 302
        assert client.post("/api/v1/forgotten").status_code == 302
        forgotten.login_required = False  # type: ignore[attr-defined]
        try:
            assert client.post("/api/v1/forgotten").status_code == 403
        finally:
            del forgotten.login_required  # type: ignore[attr-defined]


def test_a_session_opens_nothing_and_is_neither_read_nor_kept(
    administrator: Any, django_assert_num_queries: Any
) -> None:
    client = Client()
    client.force_login(administrator)
    with django_assert_num_queries(0):
        answers = [client.get(KEYS), client.post(KEYS, {"name": "mine"}, content_type="application/json")]
    for answer in answers:
        assert answer.status_code == 401 and not answer.cookies and not answer.has_header("Vary")
    assert not AuditEntry.objects.filter(action__contains="key").exists()


@pytest.mark.parametrize(
    "ask",
    [
        ("get", "/api/v1/targets/", {}),
        ("get", "/api/v1/targets", {}),
        ("head", "/api/v1/targets/", {}),
        ("options", "/api/v1/targets/", {}),
        ("delete", "/api/v1/targets/", {}),
        ("get", "/api/v1/targets/", {"HTTP_AUTHORIZATION": ""}),
        ("get", "/api/v1/targets/", {"HTTP_AUTHORIZATION": "Bearer opk_a_b"}),
        ("get", "/api/v1/targets/", {"HTTP_ACCEPT": "text/html"}),
        ("get", "/api/v1/targets/", {"HTTP_ACCEPT": "application/json"}),
        ("get", "/api/v1/targets/", {"HTTP_ACCEPT": "application/json;q=0.5, */*"}),
        ("get", "/api/v1/targets/", {"HTTP_ACCEPT": ""}),
        ("get", "/api/v1/targets/?format=xml", {}),
        ("get", "/api/v1/targets/?format=", {}),
        ("get", "/api/v1/nothing", {}),
        ("get", "/api/v1/operators/o1:7/best", {}),
        ("post", "/api/v1/lookup", {}),
        ("post", "/api/v1/lookup/", {}),
        ("get", "/api/v1/schema/", {}),
        ("get", "/api/v1/docs/", {}),
        ("get", "/api/v1/targets/", {"HTTP_HOST": "evil.example", "hosts": ["testserver"]}),
        ("get", "/api/v1/targets/", {"HTTP_HX_REQUEST": "true"}),
        ("get", "/api/v1/targets/", {"HTTP_COOKIE": "csrftoken=" + "a" * 32}),
        ("get", "/api/v1/targets/", {"wsgi.url_scheme": "https"}),
    ],
    ids=lambda ask: " ".join(map(str, ask)),
)
def test_the_same_answer_as_with_all_of_it(api_key: str, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, headers and body, with DRF's own negotiation too."""
    from rest_framework.views import APIView

    from catalog.api.endpoint import RestView

    method, address, given = ask
    given = {"HTTP_AUTHORIZATION": f"Bearer {api_key}", "HTTP_X_REQUEST_ID": "the-very-same-id"} | given
    hosts = given.pop("hosts", settings.ALLOWED_HOSTS)

    def said() -> tuple[int, dict[str, str], bytes]:
        with override_settings(ALLOWED_HOSTS=hosts):
            answer = getattr(Client(), method)(address, **given)
        headers = dict(answer.items())
        # Of sessions too, which no answer goes by.
        varies = {name.strip() for name in headers.pop("Vary", "").split(",")} - {"Cookie", ""}
        headers["Vary"] = ", ".join(sorted(varies))
        return answer.status_code, headers, answer.content

    spared = said()
    monkeypatch.setattr(RestView, "perform_content_negotiation", APIView.perform_content_negotiation)
    monkeypatch.setattr(RestView, "allowed_methods", APIView.allowed_methods)
    with WITH_ALL:
        assert said() == spared
