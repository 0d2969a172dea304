"""The courier's chore that sends what is due: claimed atomically, sent side by side, failures kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from dashboard.notifications.models import (
    Channel,
    MessageState,
    Notification,
    NotificationMessage,
    PushDevice,
)
from dashboard.notifications.send.channels import mail, push, webhook
from dashboard.notifications.send.outcome import SendResult, retry_in
from dashboard.notifications.write.bundling import bundle
from dashboard.notifications.write.letters import Letter, letters

logger = logging.getLogger(__name__)

BUDGET_S = 8.0
"""No new message is begun after that; one that is under way has a limit of its own."""

CLAIM_S = 180
"""How long a message is its courier's: longer than any round. One that died leaves it to the next."""

MESSAGES_AT_A_TIME = 50
"""Of each channel, so that one that is behind does not hold up the others."""

PUSHES_AT_A_TIME = 8

KEPT = timedelta(days=90)
FORGET_EVERY = timedelta(hours=1)
_forgotten_at: datetime | None = None


def deliver(budget_s: float = BUDGET_S) -> int:
    """Send every message that is due; gives how many have arrived. May be killed anywhere: at worst a mail
    or a push is sent again, under the same name."""
    now = timezone.now()
    bundle(now)
    _forget_now_and_then(now)
    return _hand_over(now) + _send(now, time.monotonic() + budget_s)


def _hand_over(now: datetime) -> int:
    """Webhooks: into their outbox, in one transaction with our own mark."""
    arrived = 0
    claimed = _claim(Channel.WEBHOOK, now)
    for letter in letters(claimed):
        message = next(one for one in claimed if one.pk == letter.message_id)
        try:
            with transaction.atomic():
                outcome = webhook.send(letter) if letter.lines else SendResult(dropped=True)
                _end(message, outcome, now)
        except Exception as error:
            logger.exception("A webhook could not be handed over.")
            outcome = SendResult(error=f"{type(error).__name__}: {error}"[:280])
            _end(message, outcome, now)
        arrived += outcome.ok
    return arrived


def _send(now: datetime, until: float) -> int:
    """Mail and push, all at the same time: neither waits for the other's servers. Threads only send; rows
    are read before and written after."""
    claimed = {
        message.pk: message for channel in (Channel.EMAIL, Channel.PUSH) for message in _claim(channel, now)
    }
    ready = letters(list(claimed.values()))
    for letter in ready:
        if not letter.lines:
            _end(claimed[letter.message_id], SendResult(dropped=True), now)
    by_channel: dict[str, list[Letter]] = {Channel.EMAIL: [], Channel.PUSH: []}
    for letter in ready:
        if letter.lines:
            by_channel[claimed[letter.message_id].channel].append(letter)
    if not any(by_channel.values()):
        return 0
    arrived = 0
    for number, outcome in _outcomes(by_channel[Channel.EMAIL], by_channel[Channel.PUSH], until).items():
        _end(claimed[number], outcome, now)
        arrived += outcome.ok
    return arrived


def _outcomes(mails: Sequence[Letter], pushes: Sequence[Letter], until: float) -> dict[int, SendResult]:
    devices = _devices({letter.user_id for letter in pushes})
    with ThreadPoolExecutor(PUSHES_AT_A_TIME + 1, thread_name_prefix="notify") as pool:
        mailing = pool.submit(mail.send_all, mails, until) if mails else None
        pushing = {
            letter.message_id: pool.submit(push.send, letter, devices.get(letter.user_id, ()), until)
            for letter in pushes
        }
        outcomes = {number: _result(future) for number, future in pushing.items()}
        if mailing is not None:
            failed = mailing.exception()
            if failed is not None:
                logger.error("Mail failed.", exc_info=failed)
            outcomes |= {letter.message_id: SendResult(error=f"{failed}"[:280]) for letter in mails}
            outcomes |= {} if failed else mailing.result()
    return outcomes


def _result(future: Future[SendResult]) -> SendResult:
    error = future.exception()
    if error is None:
        return future.result()
    logger.error("A push failed.", exc_info=error)
    return SendResult(error=f"{type(error).__name__}: {error}"[:280])


def _devices(users: set[int]) -> dict[int, list[push.Device]]:
    found: dict[int, list[push.Device]] = {}
    for row in PushDevice.objects.filter(user__in=users).order_by("pk"):
        found.setdefault(row.user_id, []).append(push.Device(row.pk, row.endpoint, row.p256dh, row.auth))
    return found


def _claim(channel: Channel, now: datetime) -> list[NotificationMessage]:
    """Messages that are ours now, each by compare-and-swap; with their people."""
    free = Q(claimed_until=None) | Q(claimed_until__lt=now)
    due = NotificationMessage.objects.filter(
        free, channel=channel, state=MessageState.WAITING, due_at__lte=now
    )
    claimed = []
    for message in due.select_related("user").order_by("due_at", "pk")[:MESSAGES_AT_A_TIME]:
        until = now + timedelta(seconds=CLAIM_S)
        won = due.filter(pk=message.pk).update(claimed_until=until, tries=F("tries") + 1)
        if won != 1:
            continue
        message.tries += 1
        if message.user.is_active:
            claimed.append(message)
        else:
            _end(message, SendResult(dropped=True, error="The account was switched off."), now)
    return claimed


def _end(message: NotificationMessage, outcome: SendResult, now: datetime) -> None:
    """Write down what came of a try."""
    changes: dict[str, object] = {"claimed_until": None, "error": outcome.error[:300]}
    wait_s = retry_in(message.tries)
    if outcome.ok:
        changes |= {"state": MessageState.SENT, "ended_at": timezone.now()}
    elif outcome.dropped:
        changes |= {"state": MessageState.DROPPED, "ended_at": timezone.now()}
    elif outcome.untried:
        changes |= {"tries": message.tries - 1, "error": message.error}
    elif outcome.final or wait_s is None:
        changes |= {"state": MessageState.FAILED, "ended_at": timezone.now()}
    else:
        changes["due_at"] = now + timedelta(seconds=wait_s)
    if message.channel == Channel.PUSH:
        changes["reached"] = list(outcome.reached)
        PushDevice.objects.filter(pk__in=outcome.gone).delete()
        new = set(outcome.reached) - set(message.reached)
        PushDevice.objects.filter(pk__in=new).update(last_sent_at=timezone.now(), error="")
    NotificationMessage.objects.filter(pk=message.pk).update(**changes)


def _forget_now_and_then(now: datetime) -> None:
    global _forgotten_at
    if _forgotten_at is None or now - _forgotten_at > FORGET_EVERY:
        _forgotten_at = now
        forget(now)


def forget(now: datetime) -> None:
    """Delete what was sent, and what was read or never shown, three months ago."""
    before = now - KEPT
    NotificationMessage.objects.filter(ended_at__lt=before).delete()
    done = Q(read_at__lt=before) | Q(shown=False)
    Notification.objects.filter(done, created_at__lt=before, deliveries=None).delete()
