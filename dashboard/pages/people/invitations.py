"""Invitations by e-mail, where the service is set up to send any."""

from __future__ import annotations

import logging
import smtplib

from django.conf import settings
from django.core.mail import send_mail

from catalog.models import Invitation

_log = logging.getLogger(__name__)


def sends_mail() -> bool:
    """Whether a mail server was set (OPATLAS_EMAIL or Django's EMAIL_* settings); consoles send nothing."""
    backend = settings.EMAIL_BACKEND.rsplit(".", 2)[-2]
    if backend == "smtp":
        return settings.EMAIL_HOST not in ("", "localhost")
    return backend == "locmem"


def send_invitation(invitation: Invitation, link: str) -> bool:
    """Send the link; False where there is no address, no mail server, or the server refused."""
    if not invitation.email or not sends_mail():
        return False
    by = invitation.invited_by.get_username() if invitation.invited_by else "An administrator"
    text = (
        f"{by} invites you to {invitation.organisation} on Opatlas, as {invitation.role}.\n\n"
        f"Open this link within a week; it works once:\n{link}\n"
    )
    try:
        return send_mail(f"Invitation to {invitation.organisation}", text, None, [invitation.email]) == 1
    except (OSError, smtplib.SMTPException):
        _log.warning("an invitation could not be sent", exc_info=True)
        return False
