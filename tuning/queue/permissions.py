"""Who may do what to queues, explorations and misses, for pages and REST.

Those who operate the whole service (a role or key of the host organisation) may do everything. A tenant's
people may steer what their own organisation has privately; shared work and the queues are the host's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from catalog.errors import RequestError, Unknown
from catalog.models import Miss, Organisation
from catalog.viewing import OPERATE, Viewer
from opatlas.errors import CallerError
from tuning.models import Exploration, Pause
from tuning.queue import collecting, shares
from tuning.queue import steering as queues

MISS_VERBS = ("explore", "discard")
MAX_AT_ONCE = 200
"""Rows that one request may act on."""


class NotAllowed(CallerError):
    """The caller may look at this, but not change it."""

    status = 403


@dataclass(frozen=True)
class Order:
    """What to do: a verb, and its arguments. ``by``: the person or key, for the reasons that people read."""

    verb: str
    by: str
    reason: str = ""
    priority: int | None = None


@dataclass(frozen=True)
class RefusedRow:
    """A row that was not changed, and why, in one sentence."""

    id: int
    error: str


@dataclass(frozen=True)
class Done:
    """The result of an order for several rows, each on its own."""

    done: tuple[int, ...]
    refused: tuple[RefusedRow, ...]


def may_operate(viewer: Viewer, owner_id: int | None) -> bool:
    """Whether this viewer may steer what that organisation owns; None: shared work."""
    return viewer.may(OPERATE, owner_id)


def check_queues(viewer: Viewer) -> None:
    """Raises NotAllowed if this viewer may not steer the queues."""
    if not viewer.may(OPERATE):
        raise NotAllowed("The queues are everybody's: only operators of the host organisation steer them.")


def act(viewer: Viewer, pk: int, order: Order) -> Exploration:
    """Do something to one exploration; raises Unknown, NotAllowed or NotPossible, and then did nothing."""
    row = _found(Exploration.objects.filter(viewer.shown()), pk, "exploration")
    _check(viewer, row.owner_id, f"Exploration {pk}")
    if order.verb not in VERBS:
        raise RequestError(f"An action is one of {', '.join(VERBS)}.", where="action")
    return _ACTS[order.verb](pk, order)


def act_on_miss(viewer: Viewer, pk: int, order: Order) -> Miss:
    """Explore a miss now, or discard it; raises like :func:`act`."""
    row = _found(Miss.objects.filter(viewer.shown()), pk, "miss")
    _check(viewer, row.owner_id, f"Miss {pk}")
    if order.verb == "explore":
        return collecting.explore_now(pk, 1 if order.priority is None else order.priority)
    if order.verb == "discard":
        return collecting.discard_miss(pk, signed(order, "discarded"))
    raise RequestError(f"A miss can be told to {' or '.join(MISS_VERBS)}.", where="action")


def act_on_many(viewer: Viewer, pks: Sequence[int], order: Order) -> Done:
    """The same order for several explorations. Impossible ones are skipped and listed."""
    return _each(pks, order, VERBS, lambda pk: act(viewer, pk, order))


def act_on_misses(viewer: Viewer, pks: Sequence[int], order: Order) -> Done:
    """The same order for several misses."""
    return _each(pks, order, MISS_VERBS, lambda pk: act_on_miss(viewer, pk, order))


def _each(pks: Sequence[int], order: Order, verbs: Sequence[str], do) -> Done:  # type: ignore[no-untyped-def]
    if order.verb not in verbs:
        raise RequestError(f"An action is one of {', '.join(verbs)}.", where="action")
    if not 1 <= len(pks) <= MAX_AT_ONCE:
        raise RequestError(f"Name 1 to {MAX_AT_ONCE} rows; these are {len(pks)}.", where="ids")
    done: list[int] = []
    refused: list[RefusedRow] = []
    for pk in dict.fromkeys(pks):
        try:
            do(pk)
        except CallerError as error:
            refused.append(RefusedRow(pk, str(error)))
        else:
            done.append(pk)
    return Done(tuple(done), tuple(refused))


def pause_queue(viewer: Viewer, capability: str, reason: str, by: str) -> Pause:
    """Stop a capability's queues, or all (``*``)."""
    check_queues(viewer)
    return queues.pause(capability, reason or f"paused by {by}")


def resume_queue(viewer: Viewer, capability: str) -> bool:
    """End a pause; False where there was none."""
    check_queues(viewer)
    return queues.resume(capability)


def set_weight(viewer: Viewer, organisation: int, weight: float) -> Organisation:
    """What an organisation weighs when the workers are shared out; raises NotAllowed, Unknown or
    BadWeight."""
    check_queues(viewer)
    row = Organisation.objects.filter(pk=organisation).first()
    if row is None:
        raise Unknown(f"There is no organisation {organisation}.")
    shares.set_weight(row, weight)
    return row


def signed(order: Order, done: str) -> str:
    """The reason that people read, with who gave it."""
    reason = order.reason.strip()[:300]
    return f"{reason} ({done} by {order.by})" if reason else f"{done.capitalize()} by {order.by}."


def _prioritised(pk: int, order: Order) -> Exploration:
    if order.priority is None:
        raise RequestError("A priority is one of 0 (urgent), 1 (high), 2 (normal), 3 (low).", "priority")
    return queues.prioritise(pk, order.priority)


_ACTS: Mapping[str, Callable[[int, Order], Exploration]] = {
    "pause": lambda pk, order: queues.pause_exploration(pk, signed(order, "paused")),
    "resume": lambda pk, order: queues.resume_exploration(pk),
    "retry": lambda pk, order: queues.retry(pk),
    "discard": lambda pk, order: queues.discard(pk, signed(order, "discarded")),
    "prioritise": _prioritised,
}
VERBS = tuple(_ACTS)


def _found(rows: QuerySet, pk: int, what: str):  # type: ignore[no-untyped-def]
    row = rows.filter(pk=pk).only("pk", "owner").first()
    if row is None:
        raise Unknown(f"There is no {what} {pk}.")
    return row


def _check(viewer: Viewer, owner_id: int | None, what: str) -> None:
    if may_operate(viewer, owner_id):
        return
    whose = "shared by everybody" if owner_id is None else "another organisation's"
    raise NotAllowed(f"{what} is {whose}: only operators of the host organisation may change it.")
