"""A member's own API keys: make one within the role, shown once; see when it was last used; revoke it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from catalog.models import ApiKey, Organisation
from catalog.people import audit
from catalog.people.keys import expiry_of, facts_of, revoke_api_key
from catalog.people.own_keys import MOST_OWN_KEYS, make_own_key, own_scopes
from dashboard.pages.people.keys import COLUMNS, MEANINGS, name_of, say_closed
from dashboard.web.own_rows import own_organisation
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported
from opatlas.errors import CallerError

_WITHOUT = ("person", "revoked_at")  # it is one's own, and closed at another address
_COLUMNS = (
    *(column for column in COLUMNS if column.key not in _WITHOUT),
    Column("revoked_at", "Actions", "actions", part="people/_own_key_actions.html", css="number"),
)


def place_of(request: ViewerRequest) -> Organisation | None:
    """Where this person's own keys are: the organisation looked at, if they may have one there, else the
    first that they are a member of."""
    user: Any = request.user
    looked_at = own_organisation(request)
    if looked_at is not None and own_scopes(user, looked_at):
        return looked_at
    row = user.memberships.select_related("organisation").order_by("pk").first()
    return row.organisation if row else None


def _place(request: ViewerRequest) -> Organisation:
    if (place := place_of(request)) is None:
        raise PermissionDenied("You belong to no organisation: its members make keys of their own.")
    return place


@require_safe
def own_keys(request: ViewerRequest) -> HttpResponse:
    return _page(request, _place(request))


def _page(
    request: ViewerRequest, place: Organisation, made: str = "", wrong: str = "", status: int = 200
) -> HttpResponse:
    """The page; ``made`` is a new key's text, which is stored nowhere and only in this answer."""
    user: Any = request.user
    rows = list(place.api_keys.filter(user=user.pk).order_by("revoked_at", "-pk")[:100])
    empty = "You have no key yet: a job needs one to ask."
    table = Table("keys", "Your API keys", _COLUMNS, rows, empty, css="stacks")
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "organisation": place,
        "table": table,
        "scopes": [(scope, MEANINGS.get(scope, "")) for scope in own_scopes(user, place)],
        "made": made,
        "wrong": wrong,
        "given": request.POST,
        "chosen": request.POST.getlist("scopes") or ["lookup"],
        "most": MOST_OWN_KEYS,
    }
    answer = render(request, "people/own_keys.html", context, status=status)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
def create(request: ViewerRequest) -> HttpResponse:
    """A new key: the answer shows its text, this once."""
    user: Any = request.user
    place, given = _place(request), request.POST
    try:
        key, text = make_own_key(
            user,
            place,
            name_of(given),
            given.getlist("scopes"),
            expires_at=expiry_of(given.get("expires", "")),
            addresses=given.get("addresses", "").replace(",", " ").split(),
        )
    except CallerError as error:
        return _page(request, place, wrong=str(error), status=getattr(error, "status", 400))
    audit.note(request, action="key.create", subject=str(key), detail=facts_of(key), organisation=place)
    return _page(request, place, made=text)


@require_POST
def revoke(request: ViewerRequest, pk: int) -> HttpResponse:
    """Close one of one's own keys at once, whichever organisation is looked at."""
    key = get_object_or_404(ApiKey.objects.select_related("organisation"), pk=pk, user=request.user.pk)
    revoke_api_key(key.prefix)
    audit.note(request, action="key.revoke", subject=str(key), organisation=key.organisation)
    say_closed(request, key)
    return redirect("own-keys")
