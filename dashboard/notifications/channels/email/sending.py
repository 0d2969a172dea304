"""E-mail: plain text, with the headers that let a mailbox unsubscribe by one click (RFC 8058)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from smtplib import SMTPException, SMTPRecipientsRefused, SMTPResponseException
from urllib.parse import urlsplit

from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend

from dashboard.notifications.channels.email import unsubscribing
from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.write.letters import LINES_SHOWN, Letter, absolute
from opatlas.conf import conf

_EVERY = {"at_once": "", "hourly": " once an hour", "daily": " once a day"}


def send_all(letters: Sequence[Letter], until: float) -> dict[int, SendResult]:
    """Message → what came of it. Opens one connection; asks no database. What is left at ``until``
    (monotonic seconds), and what comes after a server that is away, is untried."""
    outcomes: dict[int, SendResult] = {}
    ready = [letter for letter in letters if letter.user_email]
    for letter in letters:
        if not letter.user_email:
            outcomes[letter.message_id] = SendResult(error="The account has no e-mail address.", final=True)
    if not ready:
        return outcomes
    connection = get_connection()
    try:
        connection.open()
    except (OSError, SMTPException) as error:
        return outcomes | {letter.message_id: SendResult(error=_sentence(error)) for letter in ready}
    for letter in ready:
        if time.monotonic() >= until:
            outcomes[letter.message_id] = SendResult(untried=True)
            continue
        try:
            compose(letter, connection).send()
            outcomes[letter.message_id] = SendResult(ok=True)
        except (OSError, SMTPException) as error:
            outcomes[letter.message_id] = SendResult(error=_sentence(error), final=_is_final(error))
    connection.close()
    return outcomes


def compose(letter: Letter, connection: BaseEmailBackend | None = None) -> EmailMessage:
    """The mail. Its Message-ID is the message's own, so that one sent twice after a crash is known as one."""
    host = urlsplit(conf().service_url).hostname or "localhost"
    link = absolute(unsubscribing.path_for(letter.user_id, letter.subscriptions))
    return EmailMessage(
        letter.subject,
        body(letter, link),
        None,
        [letter.user_email],
        headers={
            "Message-ID": f"<notification-{letter.message_id}@{host}>",
            "List-Unsubscribe": f"<{link}>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "List-Id": f"Opatlas notifications <notifications.{host}>",
            "Auto-Submitted": "auto-generated",
        },
        connection=connection,
    )


def body(letter: Letter, unsubscribe_url: str) -> str:
    """A sentence and its address a paragraph; then why it came and how it ends."""
    parts = [f"{line.text}\n{line.url}" for line in letter.lines[:LINES_SHOWN]]
    if (rest := len(letter.lines) - LINES_SHOWN) > 0:
        parts.append(f"And {rest} more: {absolute('/notifications/')}")
    titles = ", ".join(letter.titles[:5]) + (" and others" if len(letter.titles) > 5 else "")
    parts.append(
        f"--\nYou watch {titles}{_EVERY.get(letter.digest, '')}.\n"
        f"Change it: {absolute('/notifications/subscriptions/')}\nNo more of these mails: {unsubscribe_url}"
    )
    return "\n\n".join(parts) + "\n"


def _is_final(error: Exception) -> bool:
    """5xx: the server will never take this one."""
    if isinstance(error, SMTPRecipientsRefused):
        return all(500 <= code < 600 for code, _ in error.recipients.values())
    return isinstance(error, SMTPResponseException) and 550 <= error.smtp_code < 560


def _sentence(error: Exception) -> str:
    if isinstance(error, SMTPRecipientsRefused):
        return f"The mail server refused the address: {next(iter(error.recipients.values()))[0]}."
    if isinstance(error, SMTPResponseException):
        said = error.smtp_error.decode(errors="replace") if isinstance(error.smtp_error, bytes) else ""
        return f"The mail server answered {error.smtp_code} {said}"[:280]
    return f"The mail server is away: {error}"[:280]
