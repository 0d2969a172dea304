"""Claims: which worker works on what. Compare-and-swap, leases on the database's clock, and a fence on every
write.

Nothing here reads, decides and saves. Every change is one UPDATE that names the state it expects, and counts
only if it changed a row.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from catalog import failpoints
from catalog.models import Best, Miss, MissState
from catalog.steps import each, held_back
from tuning.conf import conf
from tuning.models import Exploration, Stage, State
from tuning.queue.clock import now_in
from tuning.queue.held import UNHELD, HeldRow
from tuning.queue.rates import lately
from tuning.queue.reached import tell_stage

logger = logging.getLogger(__name__)

ORDER = ("stage", "priority", "opened", "-worth", "asked_at", "pk")
"""What is claimed first: a lower stage, a more urgent queue, a contest's opening, larger worth, the earlier
request."""

EVERYTHING = Q()
SWEEPING = "putting back an exploration"

PACK_MOST = 8
"""Even if they are short: their leases are renewed one by one."""


@dataclass(frozen=True, slots=True)
class Claim(HeldRow[Exploration]):
    """One exploration held by one worker process."""

    model = Exploration
    related = ("operator", "target", "setting", "owner")

    @contextmanager
    def writing(self, **values: Any) -> Iterator[None]:
        """A transaction that commits only while the claim holds: its row stays locked until the end."""
        with transaction.atomic():
            self.update(updated_at=Now(), **values)
            yield


def pack_size(stage: int, expected_s: Sequence[float], waiting: int, workers: int) -> int:
    """How many explorations of one stage a worker takes at once, if each takes ``expected_s`` and ``waiting``
    wait in all: its share of their seconds, up to one pack. Of tuning one: each slice changes the worth of
    the next."""
    if stage == Stage.TUNE:
        return 1
    share_s = waiting * fmean(expected_s) / max(1, workers)
    size, taken_s = 1, expected_s[0]
    for seconds in expected_s[1:PACK_MOST]:
        if taken_s >= share_s or taken_s + seconds > conf().pack_s:
            break
        size, taken_s = size + 1, taken_s + seconds
    return size


def claimable(target_id: int, reach: Q = EVERYTHING) -> QuerySet[Exploration]:
    """What a worker on this target may claim, the best first; ``reach``: with its installed versions."""
    return Exploration.objects.filter(reach, state=State.QUEUED, target_id=target_id).order_by(*ORDER)


def claim(owner: str, target_id: int, workers: int = 1, reach: Q = EVERYTHING) -> list[Claim]:
    """Take a pack of the best explorations that wait, all of one stage; empty when none waits.

    ``owner`` names the worker process; ``workers`` is how many live ones share this target's work; ``reach``
    (``tuning.environments.known``) leaves out what this worker's versions can say nothing about.
    """
    rows, pace = claimable(target_id, reach), lately().pace
    for _attempt in range(5):  # another worker can take what we have just seen: look again
        best = rows.values_list("stage", flat=True).first()
        if best is None:
            return []
        same_stage = rows.filter(stage=best)
        columns = ("pk", "fence", "operator__op_type")
        seen = list(same_stage.values_list(*columns)[: 2 * PACK_MOST])
        if not seen:
            continue
        expected_s = [pace(best, op_type).seconds for *_, op_type in seen]
        wanted = pack_size(best, expected_s, same_stage.count(), workers)
        won: list[Claim] = []
        for pk, fence, _ in seen:
            if len(won) < wanted and _take(pk, fence, best, owner):
                won.append(Claim(pk, fence + 1))
        if won:
            return won
    return []


def _take(pk: int, fence: int, stage: int, owner: str) -> bool:
    taken = Exploration.objects.filter(pk=pk, fence=fence, state=State.QUEUED, stage=stage).update(
        state=State.RUNNING,
        fence=F("fence") + 1,
        lease_owner=owner,
        lease_expires_at=now_in(conf().lease_s),
        doing="claimed",
        updated_at=Now(),
    )
    return taken == 1


def begin(claim: Claim, doing: str) -> None:
    """Start a slice: counted as a try only now, so that a crash is not blamed on the rest of a pack."""
    claim.update(tries=F("tries") + 1, doing=doing, updated_at=Now())


def release(claim: Claim, *, begun: bool) -> bool:
    """Give a claim back undone (the worker stops); a slice that had begun does not count as a try."""
    tries = {"tries": F("tries") - 1} if begun else {}
    return claim.row().update(**UNHELD, state=State.QUEUED, updated_at=Now(), **tries) == 1


def fail(claim: Claim, error: str) -> None:
    """A slice broke: queue it again, or mark it dead after its last try."""
    row = claim.load()
    _requeue_or_bury(row, error, {"pk": row.pk, "fence": claim.fence, "state": State.RUNNING})


def sweep(owner_prefix: str = "", but_not: str = "") -> int:
    """Put back what silent workers held; returns how many explorations.

    An exploration whose lease has run out on the database's clock is queued again, or dead after its last
    try. With ``owner_prefix``, what was held under such a name (except by ``but_not``) is put back at once: a
    pool child that replaces another knows that the other is dead.
    """
    expired = Exploration.objects.filter(state=State.RUNNING)
    if owner_prefix:
        expired = expired.filter(lease_owner__startswith=owner_prefix).exclude(lease_owner=but_not)
    else:
        expired = expired.filter(lease_expires_at__lt=Now())

    def put_back(row: Exploration) -> int:
        doing = f" while {row.doing}" if row.doing else ""
        error = f"Worker {row.lease_owner} fell silent{doing} (try {row.tries} of {row.max_tries})."
        unchanged: dict[str, Any] = {"pk": row.pk, "fence": row.fence, "state": State.RUNNING}
        if not owner_prefix:
            unchanged["lease_expires_at__lt"] = Now()  # it may have been renewed since we looked
        failpoints.at("sweeping", exploration_id=row.pk, fence=row.fence)
        return _requeue_or_bury(row, error, unchanged)

    expired = expired.exclude(pk__in=held_back(SWEEPING)).select_related("operator")
    return sum(each(SWEEPING, expired.defer("operator__graph")[:500], put_back))


def _requeue_or_bury(row: Exploration, error: str, unchanged: dict[str, Any]) -> int:
    """Compare-and-swap; the fence moves on, so that the former holder can write no more."""
    dead = row.tries >= row.max_tries
    gave_up = f"Gave up after {row.tries} {'try' if row.tries == 1 else 'tries'}"
    values: dict[str, Any] = {
        **UNHELD,
        "state": State.DEAD if dead else State.QUEUED,
        "fence": F("fence") + 1,
        "error": error[-4000:],
        "updated_at": Now(),
    }
    if dead:
        values |= {"reason": f"{gave_up}.", "finished_at": Now()}
    with transaction.atomic():
        changed = Exploration.objects.filter(**unchanged).update(**values)
        if changed and dead:
            said = error.strip().rpartition("\n")[2]  # of a trace its last line: it is told to who asks
            settle_miss(row, MissState.FAILED, f"{gave_up}: {said}")
            tell_stage(row.pk)
    if changed:
        logger.warning("Exploration %s of %s: %s", row.pk, row.operator, error)
    return changed


def settle_miss(row: Exploration, otherwise: MissState, reason: str) -> None:
    """Update the miss at its exploration's end: explored if something is served, else ``otherwise``."""
    served = Best.objects.filter(**row.same_key).exists()
    Miss.objects.filter(**row.same_key).update(
        state=MissState.EXPLORED if served else otherwise, reason="" if served else reason[:500]
    )
