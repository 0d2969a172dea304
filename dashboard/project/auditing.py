"""Audits every request: what was done through pages, the API and Django's admin, and who logged in or failed
to. Views describe it better with :func:`catalog.people.audit.note`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.contrib.messages import constants
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse

from catalog.models import ApiKey
from catalog.people import audit, sessions
from catalog.people.secret_links import without_secret_links

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

MACHINE_TRAFFIC = frozenset({"lookup", "csp-report"})
"""Routes that programs call all day: their actions have rows of their own."""

WRITTEN_BY_SIGNALS = frozenset({"login", "logout", "admin:login", "admin:logout"})


class AuditMiddleware:
    """One row of the audit log for each request that changed something and was not refused."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        logged_before = _last_admin_entry(request)
        response = self.get_response(request)
        if request.method not in SAFE and response.status_code < 400:
            _write(request, response, logged_before)
        return response


def _write(request: HttpRequest, response: HttpResponse, logged_before: int) -> None:
    match, said = request.resolver_match, audit.note_of(request)
    if match is None or said.skip or match.view_name in MACHINE_TRAFFIC | WRITTEN_BY_SIGNALS:
        return
    key = getattr(request, "auth", None)
    user = getattr(request, "user", None)
    if not isinstance(key, ApiKey) and not getattr(user, "is_authenticated", False) and not said.action:
        return  # sent to the login
    detail: dict[str, Any] = dict(said.detail)
    subject = said.subject or without_secret_links(request.path)
    if "admin" in match.app_names:
        if response.status_code == 200:
            return  # a form that was refused, or a question before deleting
        subject = _admin_subject(request, logged_before) or subject
    elif _refused(request):
        return
    audit.record(
        said.action or _action(request),
        subject=subject,
        user=user if isinstance(key, ApiKey) is False else key.user,  # type: ignore[union-attr]
        api_key=key if isinstance(key, ApiKey) else None,
        organisation=said.organisation if said.organisation is not None else _organisation(request, key),
        detail=detail,
        request=request,
        actor=f"key {key}" if isinstance(key, ApiKey) else "",
    )


def _action(request: HttpRequest) -> str:
    """The route's name, or its pattern if it has none, with a verb in the address."""
    match = request.resolver_match
    assert match is not None
    if "admin" in match.app_names:
        return f"admin.{match.url_name}"
    name = match.view_name or f"{request.method} {match.route}".replace("<int:", "<")
    verb = match.kwargs.get("verb")
    return f"{name}: {verb}" if verb else name


def _organisation(request: HttpRequest, key: Any) -> int | None:
    if isinstance(key, ApiKey):
        return key.organisation_id
    viewer = getattr(request, "viewer", None)
    return viewer.focus if viewer is not None else None


def _refused(request: HttpRequest) -> bool:
    """Whether a page refused with a message and redirected back."""
    queued = getattr(getattr(request, "_messages", None), "_queued_messages", ())
    levels = {message.level for message in queued}
    return constants.ERROR in levels and constants.SUCCESS not in levels


def _last_admin_entry(request: HttpRequest) -> int:
    if request.method in SAFE or not request.path.startswith("/admin/"):
        return 0
    return LogEntry.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _admin_subject(request: HttpRequest, logged_before: int) -> str:
    rows = LogEntry.objects.filter(pk__gt=logged_before, user=request.user.pk).select_related("content_type")
    return "; ".join(f"{row.content_type}: {row.object_repr}" for row in rows[:5])


@receiver(user_logged_in)
def logged_in(sender: Any, request: HttpRequest, user: Any, **more: Any) -> None:
    sessions.note_sign_in(request, user)
    audit.record("login", subject=user.get_username(), user=user, organisation=_home(user), request=request)


@receiver(user_logged_out)
def logged_out(sender: Any, request: HttpRequest, user: Any, **more: Any) -> None:
    if user is not None:
        sessions.forget_session(request.session.session_key)
        audit.record(
            "logout", subject=user.get_username(), user=user, organisation=_home(user), request=request
        )


@receiver(user_login_failed)
def login_failed(sender: Any, credentials: Any, request: HttpRequest | None = None, **more: Any) -> None:
    name = str(credentials.get("username", ""))[:150]
    audit.record("login failed", subject=name, actor="nobody", request=request)


def _home(user: Any) -> int | None:
    """A person's first organisation: its log has the person's logins."""
    return user.memberships.order_by("pk").values_list("organisation", flat=True).first()
