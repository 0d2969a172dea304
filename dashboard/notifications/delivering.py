"""The courier's chore that sends what is due: claimed atomically, sent side by side, failures kept."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from catalog.steps import PASSING, each, step
from dashboard.notifications.channels.base import Errand, HandingOver, Sending
from dashboard.notifications.channels.outcome import SendResult, retry_in
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.models import Alert, MessageState, Notification, NotificationMessage
from dashboard.notifications.write.bundling import bundle
from dashboard.notifications.write.letters import Letter, letters
from tuning.queue.clock import database_now

logger = logging.getLogger(__name__)

BUDGET_S = 8.0
"""No new message is begun after that; each has a limit of its own."""

CLAIM_S = 180
"""How long a message belongs to its courier: longer than any round. The next courier takes what a dead one
leaves."""

MESSAGES_AT_A_TIME = 50
"""Of each channel, so that a slow one does not delay the others."""

SENT_AT_A_TIME = 9  # errands: one of all mails, one of each push

WRITING = "writing a message"

KEPT = timedelta(days=90)
FORGET_EVERY = timedelta(hours=1)
_forgotten_at: datetime | None = None


def deliver(budget_s: float = BUDGET_S) -> int:
    """Send every message that is due; returns how many have arrived. May be killed anywhere: at worst a mail
    or a push is sent twice, under the same name."""
    now = database_now()
    with step("bundling messages"):
        bundle(now)
    with step("forgetting old messages"):
        _forget_now_and_then(now)
    handing = {one.name: one for one in CHANNELS.values() if isinstance(one, HandingOver)}
    handed = sum(each("handing messages over", handing, lambda name: _hand_over(handing[name], now)))
    return handed + _send(now, time.monotonic() + budget_s)


def _hand_over(channel: HandingOver, now: datetime) -> int:
    """Put it into the channel's own queue, in one transaction with our mark."""
    arrived = 0
    claimed = {message.pk: message for message in _claim(channel.name, now)}
    for letter in _letters(list(claimed.values()), now):
        message = claimed[letter.message_id]
        try:
            with transaction.atomic():
                outcome = channel.hand_over(letter) if letter.lines else SendResult(dropped=True)
                _end(message, outcome, now)
        except Exception as error:
            logger.exception("A message by %s could not be handed over.", channel.name)
            outcome = _failed(error)
            _end(message, outcome, now)
        arrived += outcome.ok
    return arrived


def _send(now: datetime, until: float) -> int:
    """All channels in parallel: none waits for another's servers. Threads only send; rows are read before and
    written after."""
    channels = [one for one in CHANNELS.values() if isinstance(one, Sending)]
    claimed = {message.pk: message for one in channels for message in _claim(one.name, now)}
    ready: dict[str, list[Letter]] = {one.name: [] for one in channels}
    for letter in _letters(list(claimed.values()), now):
        if letter.lines:
            ready[claimed[letter.message_id].channel].append(letter)
        else:
            _end(claimed[letter.message_id], SendResult(dropped=True), now)

    def undone(letter: Letter, reason: str) -> None:
        _end(claimed[letter.message_id], SendResult(error=reason), now)

    errands = [errand for one in channels for errand in _errands(one, ready[one.name], undone)]
    outcomes = _outcomes(errands, until)

    def end(number: int) -> bool:
        _end(claimed[number], outcomes[number], now)
        return outcomes[number].ok

    return sum(each("ending a message", outcomes, end))


def _letters(messages: Sequence[NotificationMessage], now: datetime) -> list[Letter]:
    """Write all together; if that fails, one by one, and one that cannot be written has had a try."""
    try:
        return letters(messages)
    except Exception as error:
        if isinstance(error, PASSING):
            raise
        logger.warning("Messages could not be written together (%s): one by one.", error)

    def undone(message: NotificationMessage, reason: str) -> None:
        _end(message, SendResult(error=reason), now)

    return [one for found in each(WRITING, messages, lambda one: letters([one]), undone) for one in found]


def _errands(channel: Sending, ready: list[Letter], undone: Callable[[Letter, str], None]) -> list[Errand]:
    """Like :func:`_letters`, for one channel."""
    if not ready:
        return []
    try:
        return channel.errands(ready)
    except Exception as error:
        if isinstance(error, PASSING):
            raise
        logger.warning("Messages by %s could not be prepared together (%s).", channel.name, error)
    return [
        one for found in each(WRITING, ready, lambda one: channel.errands([one]), undone) for one in found
    ]


def _outcomes(errands: Sequence[Errand], until: float) -> dict[int, SendResult]:
    if not errands:
        return {}
    outcomes: dict[int, SendResult] = {}
    with ThreadPoolExecutor(SENT_AT_A_TIME, thread_name_prefix="notify") as pool:
        for errand, future in [(errand, pool.submit(errand.send, until)) for errand in errands]:
            error = future.exception()
            if error is not None:
                logger.error("Messages could not be sent.", exc_info=error)
                outcomes |= {letter.message_id: _failed(error) for letter in errand.letters}
            else:
                outcomes |= future.result()
    return outcomes


def _failed(error: BaseException) -> SendResult:
    return SendResult(error=f"{type(error).__name__}: {error}"[:280])


def _claim(channel: str, now: datetime) -> list[NotificationMessage]:
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
    channel = CHANNELS[message.channel]
    if isinstance(channel, Sending):
        changes |= channel.ended(message, outcome)
    NotificationMessage.objects.filter(pk=message.pk).update(**changes)


def _forget_now_and_then(now: datetime) -> None:
    global _forgotten_at
    if _forgotten_at is None or now - _forgotten_at > FORGET_EVERY:
        _forgotten_at = now
        forget(now)


def forget(now: datetime) -> None:
    """Delete what was sent, what was read or never shown, and what was over as an alert, three months ago."""
    before = now - KEPT
    Alert.objects.filter(ended_at__lt=before).delete()
    NotificationMessage.objects.filter(ended_at__lt=before).delete()
    done = Q(read_at__lt=before) | Q(shown=False)
    Notification.objects.filter(done, created_at__lt=before, deliveries=None).delete()
