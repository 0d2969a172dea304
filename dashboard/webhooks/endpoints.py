"""Making and changing receivers: what is written."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from django.db import IntegrityError, transaction

from catalog.errors import RequestError
from catalog.models import Organisation
from dashboard.webhooks import clock, guard, signing
from dashboard.webhooks.models import BodyForm, Endpoint, EventType, Message, Secret
from dashboard.webhooks.sending import send_to

OVERLAP = timedelta(hours=24)
"""How long an old secret signs along after a rotation."""

MAX_ENDPOINTS = 50
_ROUTING_KEY = re.compile(r"[A-Za-z0-9_-]{8,64}")
SUBSCRIBABLE = tuple(kind.value for kind in EventType if kind is not EventType.ENDPOINT_TEST)


class EndpointRefused(RequestError):
    """Not in the state that it is in."""

    status = 409


def create(
    organisation: Organisation,
    url: str,
    *,
    description: str = "",
    event_types: Sequence[str] = (),
    form: str = BodyForm.STANDARD,
    routing_key: str = "",
) -> tuple[Endpoint, str]:
    """A new endpoint and its secret, which cannot be had a second time. No ``event_types``: all of them."""
    url = url.strip()
    _check(url, description, event_types, form)
    sealed_key = _sealed_key(form, routing_key.strip())
    if Endpoint.objects.filter(organisation=organisation).count() >= MAX_ENDPOINTS:
        raise EndpointRefused(f"An organisation has at most {MAX_ENDPOINTS} endpoints: delete one first.")
    secret = signing.new_secret()
    with _new_address():
        endpoint = Endpoint.objects.create(
            organisation=organisation,
            url=url,
            description=description.strip(),
            event_types=sorted(set(event_types)),
            form=form,
            sealed_key=sealed_key,
        )
        Secret.objects.create(endpoint=endpoint, sealed=signing.seal(secret))
    return endpoint, secret


@contextmanager
def _new_address() -> Iterator[None]:
    """A transaction that may write an address which there is already."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        raise EndpointRefused("There is an endpoint with this address already.", where="url") from error


def change(
    endpoint: Endpoint,
    *,
    url: str | None = None,
    description: str | None = None,
    event_types: Sequence[str] | None = None,
    form: str | None = None,
    routing_key: str | None = None,
) -> Endpoint:
    """Another address, description, subscription, form or routing key; what is None stays."""
    url = endpoint.url if url is None else url.strip()
    description = endpoint.description if description is None else description.strip()
    kinds = endpoint.event_types if event_types is None else sorted(set(event_types))
    form = endpoint.form if form is None else form
    _check(url, description, kinds, form)
    sealed_key = _sealed_key(form, (routing_key or "").strip(), endpoint.sealed_key)
    with _new_address():
        changed = {
            "url": url,
            "description": description,
            "event_types": kinds,
            "form": form,
            "sealed_key": sealed_key,
        }
        Endpoint.objects.filter(pk=endpoint.pk).update(**changed)
    endpoint.refresh_from_db()
    return endpoint


def rotate(endpoint: Endpoint) -> str:
    """A new secret, valid at once; the old one signs along for 24 hours more."""
    secret = signing.new_secret()
    now = clock.now()
    with transaction.atomic():
        Endpoint.objects.select_for_update().get(pk=endpoint.pk)  # two rotations take turns
        Secret.objects.filter(endpoint=endpoint, expires_at__lte=now).delete()
        Secret.objects.filter(endpoint=endpoint, expires_at=None).update(expires_at=now + OVERLAP)
        Secret.objects.create(endpoint=endpoint, sealed=signing.seal(secret))
    return secret


def valid_secrets(endpoint: Endpoint) -> list[str]:
    """The secrets that sign now, the newest first."""
    now = clock.now()
    rows = Secret.objects.filter(endpoint=endpoint).order_by("-pk")
    return [signing.unseal(row.sealed) for row in rows if row.expires_at is None or row.expires_at > now]


def routing_key(endpoint: Endpoint) -> str:
    """What PagerDuty knows the receiver by; empty for other forms. Raises signing.Unreadable."""
    return signing.unseal(endpoint.sealed_key) if endpoint.sealed_key else ""


def _sealed_key(form: str, given: str, known: str = "") -> str:
    """As it is kept: of an endpoint that had one, that one stays where none is given."""
    if form != BodyForm.PAGERDUTY:
        if given:
            raise RequestError("Only the form pagerduty takes a routing key.", where="routing_key")
        return ""
    if not given and known:
        return known
    if not _ROUTING_KEY.fullmatch(given):
        raise RequestError(
            "PagerDuty's form needs the routing key of an integration: 8 to 64 letters and digits.",
            where="routing_key",
        )
    return signing.seal(given)


def disable(endpoint: Endpoint, reason: str) -> bool:
    """Stop sending; what waits is kept. False where it was disabled already."""
    enabled = Endpoint.objects.filter(pk=endpoint.pk, disabled_at=None)
    return enabled.update(disabled_at=clock.now(), disabled_reason=reason[:300]) == 1


def enable(endpoint: Endpoint) -> None:
    """Send again, what waits first; earlier failures are forgotten."""
    Endpoint.objects.filter(pk=endpoint.pk).update(
        disabled_at=None, disabled_reason="", failing_since=None, failures_in_a_row=0
    )


def test(endpoint: Endpoint) -> Message:
    """Send an ``endpoint.test`` to this endpoint alone."""
    if endpoint.disabled_at is not None:
        raise EndpointRefused("The endpoint is disabled: enable it first.")
    data = {"endpoint": endpoint.pk, "text": "This is a test of Opatlas webhooks."}
    key = f"test:{endpoint.pk}:{secrets.token_hex(8)}"
    message = send_to(endpoint, EventType.ENDPOINT_TEST, data, key=key)
    assert message is not None  # the key is new
    return message


def _check(url: str, description: str, event_types: Sequence[str], form: str) -> None:
    if form not in BodyForm.values:
        raise RequestError(f"The form is one of {', '.join(BodyForm.values)}.", where="form")
    _, host, port = guard.check_url(url)
    if not guard.allowed(host, port):
        # A literal address is known now; a name is checked whenever something is sent to it.
        guard.check_literal(host)
    if len(description) > 200:
        raise RequestError("A description has at most 200 characters.", where="description")
    unknown = sorted(set(event_types) - set(SUBSCRIBABLE))
    if unknown:
        raise RequestError(
            f"Event types are some of {', '.join(SUBSCRIBABLE)}; not {unknown[0][:40]!r}.",
            where="event_types",
        )
