"""The courier's chore: claims deliveries that are due and sends them, each endpoint within bounds.

``deliver`` returns at once: requests are made by a pool of threads, so a receiver that hangs holds up neither
the other chores nor other receivers. A claim is a lease on the database's clock: a courier that is killed
between sending and recording leaves one that runs out, and the message is sent again under the same id.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import zip_longest

from django.db import connection
from django.db.models import Count, Min, Q
from django.db.models.functions import Now

from catalog import failpoints
from catalog.steps import PASSING, each, held_back, note_failure, reason_of, step
from dashboard.webhooks import clock, endpoints, guard, signing
from dashboard.webhooks.bodies import body_for
from dashboard.webhooks.models import BodyForm, Delivery, DeliveryState, Message
from dashboard.webhooks.recording import record
from dashboard.webhooks.retention import forget_old
from tuning.queue.clock import database_now, now_in

logger = logging.getLogger(__name__)

AT_ONCE = 16
PER_ENDPOINT = 4
FAILING_AT_ONCE = 4
"""Parallel requests: of this process, to one endpoint, and to all endpoints that failed last (one each)."""

GO_ON_S = 1.0
"""How long a thread goes on with a healthy endpoint that has more messages: by rounds alone it would get at
most four a second."""

TIMEOUT_S = 15.0
CLAIM_S = 60.0  # far more than a request can take
_FORGET_EVERY_S = 3600.0
BEGINNING = "beginning a delivery"
"""The step whose failed rows are deliveries."""
USER_AGENT = "Opatlas-Webhooks/1"


def deliver() -> None:
    """Begin whatever is due."""
    _deliverer().round()


class Deliverer:
    """One process's pool and what it has under way."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhook")
        self._under_way: set[Future[None]] = set()
        self._forget_at = 0.0

    def round(self) -> int:
        """Claim and begin; returns how many."""
        self._under_way = {one for one in self._under_way if not one.done()}
        begun = sum(each(BEGINNING, _due(AT_ONCE - len(self._under_way)), self._begin))
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + _FORGET_EVERY_S
            with step("forgetting old deliveries"):
                forget_old()
        return begun

    def _begin(self, pk: int) -> bool:
        fence = claim(pk)
        if fence is not None:
            self._under_way.add(self._pool.submit(_send, pk, fence))
        return fence is not None

    def wait(self, timeout_s: float) -> None:
        wait(self._under_way, timeout_s)


def claim(pk: int) -> int | None:
    """Take one delivery by compare-and-swap; returns its fence, or None if another was faster."""
    row = Delivery.objects.filter(pk=pk).values_list("fence", flat=True).first()
    if row is None:
        return None
    won = Delivery.objects.filter(_unclaimed(), pk=pk, fence=row, state=DeliveryState.PENDING).update(
        fence=row + 1, claimed_until=now_in(CLAIM_S)
    )
    return row + 1 if won == 1 else None


def _due(room: int) -> list[int]:
    """Ids that may be begun now; one of each endpoint before a second of any."""
    if room <= 0:
        return []
    pending = Delivery.objects.filter(state=DeliveryState.PENDING, endpoint__disabled_at=None)
    waiting = list(
        pending.filter(_begins(), next_try_at__lte=clock.now())
        .values_list("endpoint", "endpoint__failing_since")
        .annotate(first=Min("next_try_at"))
        .order_by("first")[: 4 * AT_ONCE]
    )
    if not waiting:
        return []
    held = pending.filter(claimed_until__gte=Now())
    busy = dict(held.values_list("endpoint").annotate(count=Count("pk")).order_by())
    failing_room = FAILING_AT_ONCE - held.filter(endpoint__failing_since__isnull=False).count()
    queues: list[list[int]] = []
    for endpoint, failing_since, _ in waiting:
        limit = PER_ENDPOINT - busy.get(endpoint, 0)
        if failing_since is not None:
            limit = min(1 - busy.get(endpoint, 0), failing_room)
            failing_room -= max(0, limit)
        if limit > 0:
            queues.append(list(_first_of(endpoint, limit)))
    turns = (pk for turn in zip_longest(*queues) for pk in turn if pk is not None)
    return [pk for pk, _ in zip(turns, range(room), strict=False)]


def _first_of(endpoint: int, limit: int) -> Iterator[int]:
    rows = Delivery.objects.filter(
        _begins(),
        endpoint=endpoint,
        endpoint__disabled_at=None,
        state=DeliveryState.PENDING,
        next_try_at__lte=clock.now(),
    )
    yield from rows.order_by("next_try_at", "pk").values_list("pk", flat=True)[:limit]


def _begins() -> Q:
    """Neither being sent nor held back: those would take the others' places."""
    return _unclaimed() & ~Q(pk__in=held_back(BEGINNING))


def _unclaimed() -> Q:
    return Q(claimed_until=None) | Q(claimed_until__lt=Now())


def _send(pk: int, fence: int) -> None:
    """In a thread of the pool: send a delivery, and what else waits for its endpoint."""
    until = time.monotonic() + GO_ON_S
    held: tuple[int, int] | None = (pk, fence)
    try:
        while held is not None:
            pk, fence = held
            endpoint = _sent(pk, fence)
            held = _next_of(endpoint) if endpoint is not None and time.monotonic() < until else None
    except Exception as error:
        logger.exception("Delivery %s could not be made.", pk)
        _note_try(pk, fence, error)
    finally:
        connection.close()


def _note_try(pk: int, fence: int, error: Exception) -> None:
    """Our own error counts as a try: otherwise it would be repeated every minute for ever. If that cannot be
    written either, the claim runs out."""
    try:
        if isinstance(error, PASSING):
            return
        note_failure("making a delivery", error, pk)
        delivery = Delivery.objects.select_related("endpoint", "message").filter(pk=pk, fence=fence).first()
        if delivery is not None:
            record(delivery, guard.Reply(None, reason_of(error)))
    except Exception:
        logger.exception("The try of delivery %s could not be written down.", pk)


def _sent(pk: int, fence: int) -> int | None:
    """Its endpoint where it has arrived."""
    delivery = Delivery.objects.select_related("endpoint", "message").filter(pk=pk, fence=fence).first()
    if delivery is None:
        return None
    reply = _post(delivery)
    failpoints.at("delivered")
    record(delivery, reply)
    return delivery.endpoint_id if reply.ok else None


def _next_of(endpoint: int) -> tuple[int, int] | None:
    """One more for it, claimed, and its fence."""
    for pk in _first_of(endpoint, PER_ENDPOINT):
        if (fence := claim(pk)) is not None:
            return pk, fence
    return None


def _post(delivery: Delivery) -> guard.Reply:
    message = delivery.message
    try:
        body = body_for(delivery.endpoint, _as_it_stands(delivery), endpoints.routing_key(delivery.endpoint))
        valid = endpoints.valid_secrets(delivery.endpoint)
    except signing.Unreadable as error:
        return guard.Reply(None, str(error))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": USER_AGENT,
        # The receiver compares the time with its own clock, and would refuse what a wrong one has signed.
        **signing.headers(message.public_id, body, valid, database_now()),
    }
    connection.close()  # nothing of the database is held while the receiver takes its time
    return guard.post(delivery.endpoint.url, body.encode(), headers, timeout_s=TIMEOUT_S)


def _as_it_stands(delivery: Delivery) -> Message:
    """For a late try to PagerDuty: the alert's present state. A delayed message would otherwise open again
    what was resolved meanwhile."""
    message = delivery.message
    alert = (message.data.get("alert") or {}).get("id")
    if delivery.endpoint.form != BodyForm.PAGERDUTY or alert is None:
        return message
    of_alert = Message.objects.filter(
        organisation=message.organisation_id, key__startswith=f"notification:alert:{alert}:"
    )
    return of_alert.order_by("-pk").first() or message


_one: list[Deliverer] = []
_making = threading.Lock()


def _deliverer() -> Deliverer:
    with _making:
        if not _one:
            _one.append(Deliverer())
        return _one[0]
