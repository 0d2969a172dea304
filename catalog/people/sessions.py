"""People's sessions: noted when they begin, ended or renewed when what somebody may do changes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.http import HttpRequest

from catalog.models import SignIn
from catalog.people.audit import address_of

if TYPE_CHECKING:
    from django.contrib.auth.models import User

RENEW = "renew"
"""Marks a session whose key is to be changed with its next request."""


def note_sign_in(request: HttpRequest, user: User) -> SignIn:
    """Remember that this session is this person's."""
    session: Any = request.session
    if not session.session_key:
        session.save()
    return SignIn.objects.update_or_create(
        session_key=session.session_key,
        defaults={
            "user": user,
            "address": address_of(request)[:64],
            "agent": str(request.META.get("HTTP_USER_AGENT", "")).replace("\0", "")[:200],
        },
    )[0]


def forget_session(session_key: str | None) -> None:
    """The session has ended by itself."""
    SignIn.objects.filter(session_key=session_key or "").delete()


def end_sessions(user_id: int, *, but: str | None = None) -> int:
    """Log a person out everywhere, except in the session ``but``; gives how many sessions were ended."""
    rows = SignIn.objects.filter(user=user_id).exclude(session_key=but or "")
    keys = list(rows.values_list("session_key", flat=True))
    store = _store()
    for key in keys:
        store(key).delete()
    rows.filter(session_key__in=keys).delete()
    return len(keys)


def renew_sessions(user_id: int) -> None:
    """Change the keys of a person's sessions with their next requests: what was known of them is void."""
    store = _store()
    for key in SignIn.objects.filter(user=user_id).values_list("session_key", flat=True):
        session = store(key)
        if session.exists(key):
            session[RENEW] = True
            session.save()


def renew_if_marked(request: HttpRequest) -> None:
    """Done for every page: gives a marked session another key, and notes it."""
    session: Any = request.session
    if session.get(RENEW):
        move_session(request, lambda: (session.pop(RENEW), session.cycle_key()))


def move_session(request: HttpRequest, move: Any) -> None:
    """Do what changes the session's key, and keep its sign-in."""
    before = request.session.session_key
    move()
    if not request.session.session_key:
        request.session.save()
    SignIn.objects.filter(session_key=before or "").update(session_key=request.session.session_key)


def _store() -> Any:
    return import_module(settings.SESSION_ENGINE).SessionStore
