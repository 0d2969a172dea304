"""API keys of an organisation: make one, shown once; see when it was last used; revoke it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.html import format_html, format_html_join
from django.views.decorators.http import require_POST, require_safe

from catalog.models import ApiKey, Organisation
from catalog.people import audit
from catalog.people.keys import (
    SCOPES,
    create_api_key,
    expiry_of,
    facts_of,
    open_keys_made_with,
    revoke_api_key,
)
from dashboard.templatetags.opatlas import ago
from dashboard.web.own_rows import administered
from dashboard.web.requests import ViewerRequest
from dashboard.web.tables import Column, Table, exported
from opatlas.errors import CallerError

MEANINGS = {
    "lookup": "ask for implementations and read the catalogue",
    "models": "upload models and read their reports",
    "operate": "steer queues and explorations",
    "kernels": "submit kernels; needs a person",
    "approve": "decide on kernels; needs a person",
    "billing": "prices, credit and the ledger",
    "admin": "all of it, and people and keys",
}
NAME_LENGTH = 200


def _scopes(key: ApiKey) -> str:
    return format_html_join(" ", '<span class="chip">{}</span>', ([scope] for scope in key.scopes))


def _short(key: ApiKey) -> str:
    return format_html("<code>opk_{}…</code>", key.prefix)


def _used(key: ApiKey) -> str:
    return ago(key.last_used_at) if key.last_used_at else "never"


def _end(key: ApiKey) -> str:
    return f"{key.expires_at:%Y-%m-%d %H:%M}" if key.expires_at else "never"


def _from(key: ApiKey) -> str:
    return ", ".join(key.addresses or ())


def _person(key: ApiKey) -> str:
    if key.user:
        return str(key.user.get_username())
    if key.made_by:
        return f"made by {key.made_by.get_username()}"
    return f"made with the key {key.made_by_key.prefix}" if key.made_by_key else ""


COLUMNS = (
    Column("prefix", "Key", "code", lambda key: f"opk_{key.prefix}", show=_short, css="lead"),
    Column("name", "What for"),
    Column("scopes", "Scopes", value=lambda key: ", ".join(key.scopes), show=_scopes),
    Column("person", "Person", value=_person),
    Column("made_at", "Made", "when", "created_at", css="muted"),
    Column("last_used_at", "Last used", "when", show=_used, css="muted"),
    Column("expires_at", "Expires (UTC)", "when", show=_end, css="muted"),
    Column("addresses", "From", "code", value=_from, show=lambda key: _from(key) or "anywhere", css="muted"),
    Column("revoked_at", "Actions", "actions", part="people/_key_actions.html", css="number"),
)


def name_of(given: QueryDict) -> str:
    """What a form says a key is for."""
    name = " ".join(given.get("name", "").split())
    if not 1 <= len(name) <= NAME_LENGTH or "\0" in name:
        raise CallerError(f"Say what the key is for, in 1 to {NAME_LENGTH} characters.")
    return name


@require_safe
def keys(request: ViewerRequest) -> HttpResponse:
    return _page(request, administered(request))


def _page(
    request: ViewerRequest, organisation: Organisation, made: str = "", wrong: str = "", status: int = 200
) -> HttpResponse:
    """The page; ``made`` is a new key's text, which is stored nowhere and only in this answer."""
    keys = organisation.api_keys.select_related("user", "made_by", "made_by_key")
    rows = list(keys.order_by("revoked_at", "-pk")[:500])
    empty = "There is no key yet: a job needs one to ask."
    table = Table("keys", f"API keys of {organisation}", COLUMNS, rows, empty, css="stacks")
    if (answer := exported(request, table)) is not None:
        return answer
    context = {
        "organisation": organisation,
        "table": table,
        "scopes": [(scope, MEANINGS.get(scope, "")) for scope in SCOPES],
        "made": made,
        "wrong": wrong,
        "given": request.POST,
        "chosen": request.POST.getlist("scopes") or ["lookup"],
        "host": request.build_absolute_uri("/").rstrip("/"),
    }
    answer = render(request, "people/keys.html", context, status=status)
    answer["Cache-Control"] = "no-store"
    return answer


@require_POST
def create(request: ViewerRequest) -> HttpResponse:
    """A new key: the answer shows its text, this once."""
    organisation, given = administered(request), request.POST
    user: Any = request.user if given.get("personal") else None
    try:
        key, text = create_api_key(
            organisation,
            name_of(given),
            given.getlist("scopes"),
            user=user,
            made_by=request.user,  # type: ignore[arg-type]
            expires_at=expiry_of(given.get("expires", "")),
            addresses=given.get("addresses", "").replace(",", " ").split(),
        )
    except CallerError as error:
        return _page(request, organisation, wrong=str(error), status=400)
    audit.note(
        request, action="key.create", subject=str(key), detail=facts_of(key), organisation=organisation
    )
    return _page(request, organisation, made=text)


def say_closed(request: ViewerRequest, key: ApiKey) -> None:
    """Report that a key is closed, and which keys made with it are still open."""
    messages.success(request, f"The key {key} is closed: whoever shows it is refused from now on.")
    if made := open_keys_made_with(key):
        some = ", ".join(str(one) for one in made[:10])
        more = f" and {len(made) - 10} more" if len(made) > 10 else ""
        messages.warning(request, f"Keys that were made with it stay open: {some}{more}.")


@require_POST
def revoke(request: ViewerRequest, pk: int) -> HttpResponse:
    """Close a key at once."""
    organisation = administered(request)
    key = get_object_or_404(ApiKey, pk=pk, organisation=organisation)
    revoke_api_key(key.prefix)
    audit.note(request, action="key.revoke", subject=str(key), organisation=organisation)
    say_closed(request, key)
    return redirect("keys")
