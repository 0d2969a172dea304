"""Telling an organisation that one of its endpoints was disabled."""

from __future__ import annotations

import logging

from django.core.mail import send_mail

from catalog.models import AuditEntry, Membership, Role
from dashboard.webhooks.models import Endpoint

logger = logging.getLogger(__name__)


def tell_disabled(endpoint_id: int) -> None:
    """An audit entry, a log line, and a mail to whoever may change it. A mail server that is away stops
    nothing: the page says it too."""
    endpoint = Endpoint.objects.select_related("organisation").filter(pk=endpoint_id).first()
    if endpoint is None or endpoint.disabled_at is None:
        return
    logger.warning("Webhook endpoint %s was disabled: %s", endpoint.pk, endpoint.disabled_reason)
    AuditEntry.objects.create(
        actor="webhooks",
        organisation=endpoint.organisation,
        action="webhook.disable",
        subject=endpoint.url[:300],
        detail={"endpoint": endpoint.pk, "reason": endpoint.disabled_reason},
    )
    people = Membership.objects.filter(
        organisation=endpoint.organisation, role__in=(Role.BILLING, Role.ADMIN), user__is_active=True
    ).exclude(user__email="")
    addresses = sorted(set(people.values_list("user__email", flat=True)))
    text = (
        f"Opatlas sends no more webhooks to {endpoint.url}.\n\n{endpoint.disabled_reason}\n\n"
        "Once it answers again, enable it on the Webhooks page and replay what it missed."
    )
    for address in addresses:
        try:
            send_mail("Opatlas: a webhook endpoint was disabled", text, None, [address])
        except OSError as error:  # smtplib's errors are of this kind
            logger.warning("The notice about endpoint %s could not be mailed: %s", endpoint.pk, error)
