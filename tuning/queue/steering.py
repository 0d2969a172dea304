"""What people do to the queues: pause, resume, retry, discard, prioritise. Each stores a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from catalog.models import SAME_KEY, SHARED, Miss, MissState
from opatlas.errors import CallerError
from tuning.doorbell.bell import bell
from tuning.models import Exploration, Pause, State
from tuning.priority import Priority
from tuning.queue.claims import UNHELD, settle_miss
from tuning.queue.reached import tell_stage_of
from tuning.queue.rounds import AFRESH

EVERYTHING = "*"

_AT_ONCE = 10_000

ENDED = (State.DONE, State.UNSUPPORTED, State.DISCARDED, State.DEAD)


class NotPossible(CallerError):
    """The exploration's state does not allow it, or there is none; says what would be possible."""

    status = 409


def pause(capability: str = EVERYTHING, reason: str = "") -> Pause:
    """Let no more work of a capability (``*``: any) be claimed or promoted; what runs ends its slice."""
    row, _ = Pause.objects.update_or_create(capability=capability[:80], defaults={"reason": reason[:300]})
    return row


def resume(capability: str = EVERYTHING) -> bool:
    """End a pause; False where there was none. ``*`` ends that of everything, not those of single queues."""
    with transaction.atomic():
        removed, _ = Pause.objects.filter(capability=capability).delete()
        if removed:
            # Misses postponed for the pause are weighed again at once. Locked in the order in which lookups
            # lock them: opposite orders would wait for each other.
            postponed = Miss.objects.filter(state=MissState.POSTPONED).order_by(*SAME_KEY)
            locked = list(postponed.select_for_update().values_list("pk", flat=True))
            for start in range(0, len(locked), _AT_ONCE):
                some = Miss.objects.filter(pk__in=locked[start : start + _AT_ONCE])
                some.update(state=MissState.WAITING, reason="")
    if removed:
        bell.ring(_waiting_capabilities())
    return bool(removed)


def pause_exploration(pk: int, reason: str = "") -> Exploration:
    """Take one exploration out of its queue. One that runs is taken away from its worker."""
    return _move(pk, (State.QUEUED, State.RUNNING), "pause", state=State.PAUSED, reason=reason[:500], **_FREE)


def resume_exploration(pk: int) -> Exploration:
    """Put a paused one back."""
    return _ring(_move(pk, (State.PAUSED,), "resume", state=State.QUEUED, reason=""))


def retry(pk: int) -> Exploration:
    """Explore an ended one again from its first stage: a new round, with new tries."""
    with transaction.atomic():
        row = _move(pk, ENDED, "retry", **AFRESH, asked_at=Now())
        misses = Miss.objects.filter(**row.same_key).exclude(state=MissState.EXPLORED)
        misses.update(state=MissState.PROMOTED, reason="")
        tell_stage_of(row)
    return _ring(row)


def discard(pk: int, reason: str) -> Exploration:
    """Give one up, with a reason shown to those who ask for the operator."""
    with transaction.atomic():
        live = (State.QUEUED, State.RUNNING, State.PAUSED, State.DEAD)
        reason = reason[:500] or "Discarded by hand."
        row = _move(pk, live, "discard", state=State.DISCARDED, reason=reason, finished_at=Now(), **_FREE)
        settle_miss(row, MissState.DISCARDED, reason)
        tell_stage_of(row)
    return row


def prioritise(pk: int, priority: int) -> Exploration:
    """Move one that has not ended to another explore queue (0 is the most urgent)."""
    if priority not in list(Priority):
        raise NotPossible(f"A priority is one of {', '.join(map(str, Priority))} (0 is the most urgent).")
    rows = Exploration.objects.filter(pk=pk).exclude(state__in=ENDED)
    if not rows.update(priority=priority, updated_at=Now()):
        raise NotPossible(_why_not(pk, "prioritise", (State.QUEUED, State.RUNNING, State.PAUSED)))
    return Exploration.objects.get(pk=pk)


def hurry(sender: object = None, *, operators: Sequence[int], target: int, setting: int, **_: object) -> None:
    """Receiver of ``catalog.signals.stage_awaited``: somebody waits, so it goes before its equals."""
    waited_for = Exploration.objects.filter(operator__in=operators, target=target, setting=setting)
    waiting = waited_for.filter(scope=SHARED, state=State.QUEUED, priority__gt=Priority.URGENT)
    waiting.update(priority=Priority.URGENT, updated_at=Now())


# The fence moves on: a worker that holds the exploration can write no more, and notices at its next write.
_FREE: dict[str, Any] = {**UNHELD, "fence": F("fence") + 1}


def _move(pk: int, allowed: tuple[State, ...], verb: str, **values: Any) -> Exploration:
    """Compare-and-swap from one of the allowed states; raises NotPossible."""
    moved = Exploration.objects.filter(pk=pk, state__in=allowed).update(updated_at=Now(), **values)
    if not moved:
        raise NotPossible(_why_not(pk, verb, allowed))
    return Exploration.objects.select_related("operator", "target", "setting").get(pk=pk)


def _why_not(pk: int, verb: str, allowed: tuple[State, ...]) -> str:
    found = Exploration.objects.filter(pk=pk).values_list("state", "reason").first()
    if found is None:
        return f"There is no exploration {pk}."
    return cannot(f"{verb} exploration {pk}", *found, allowed)


def cannot(do: str, state: str, reason: str, allowed: Sequence[str]) -> str:
    # Somebody else may have been faster: their reason says who.
    because = f" ({reason.rstrip('.')})" if reason else ""
    return f"Cannot {do}: it is {state}{because}, and must be {' or '.join(allowed)}."


def _ring(row: Exploration) -> Exploration:
    capability = row.capability
    transaction.on_commit(lambda: bell.ring({capability}))
    return row


def _waiting_capabilities() -> set[str]:
    explorations = Exploration.objects.filter(state=State.QUEUED).values_list("capability", flat=True)
    misses = Miss.objects.filter(state=MissState.WAITING).values_list("target__capability", flat=True)
    return set(explorations.distinct()) | set(misses.distinct())
