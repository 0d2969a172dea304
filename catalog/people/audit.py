"""Who did what: one row for each thing done, written beside it and never changed.

No secrets and no bodies: an action's name, what it was done to, and a few chosen facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest

from catalog.models import ApiKey, AuditEntry, Organisation
from catalog.people.addresses import client_address

NOTE = "_audit_note"
SYSTEM = "the service"


@dataclass(frozen=True)
class Note:
    """What a view says of what it does; the middleware writes it when the answer is a success."""

    action: str = ""
    subject: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    organisation: Organisation | int | None = None
    skip: bool = False  # written already, or nothing was done


def note(
    request: HttpRequest,
    *,
    action: str = "",
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
    organisation: Organisation | int | None = None,
    skip: bool = False,
) -> None:
    """Say what this request does, in better words than its address. Takes Django's request or DRF's."""
    setattr(_plain(request), NOTE, Note(action, subject, dict(detail or {}), organisation, skip))


def note_of(request: HttpRequest) -> Note:
    return getattr(request, NOTE, Note())


def record(
    action: str,
    *,
    subject: str = "",
    user: Any = None,
    api_key: ApiKey | None = None,
    organisation: Organisation | int | None = None,
    detail: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
    actor: str = "",
) -> AuditEntry:
    """Add one row. ``request`` gives its id and the address that it came from; without an actor it was the
    service itself (a command, a worker)."""
    if user is not None and not getattr(user, "pk", None):
        user = None
    name = actor or (user.get_username() if user else "") or (f"key {api_key}" if api_key else SYSTEM)
    owner = organisation.pk if isinstance(organisation, Organisation) else organisation
    return AuditEntry.objects.create(
        action=action[:80],
        subject=_line(subject, 300),
        user_id=user.pk if user else None,
        api_key=api_key,
        actor=_line(name, 200),
        organisation_id=owner if owner is not None else (api_key.organisation_id if api_key else None),
        detail=dict(detail or {}),
        request_id=str(getattr(request, "request_id", "") or "")[:64],
        address=address_of(request)[:64],
    )


def address_of(request: HttpRequest | None) -> str:
    """Where a request came from."""
    return "" if request is None else client_address(request)


def _plain(request: Any) -> HttpRequest:
    return getattr(request, "_request", request)


def _line(text: str, most: int) -> str:
    return " ".join(str(text).replace("\0", "").split())[:most]
