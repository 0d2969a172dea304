"""The expected waiting time of a target's queue.

Workers pull, so a target has one queue for all of them, and each live worker starts with what it holds. A
waiting exploration goes to the worker that is free first, after everything before it: its own organisation's
earlier work, and what the others will have had by then, since all take turns (:mod:`tuning.queue.sharing`).
:mod:`tuning.queue.rates` tells how long a stage takes. Silent workers do not count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Count, Q, QuerySet

from opatlas.placement.queues import level_s
from tuning.models import Exploration, Stage, State, Worker
from tuning.priority import Priority
from tuning.queue.claims import EVERYTHING, claimable
from tuning.queue.clock import alive
from tuning.queue.rates import Rates, name_of
from tuning.queue.shares import WORK_OF_STAGE, asked_by, payer, shares
from tuning.queue.sharing import EXPECTED_S, others_before

MOST_AHEAD = 2_000
"""The most explorations that are simulated one by one to predict newcomers' first results."""


@dataclass(frozen=True)
class TargetWait:
    """The wait for a target's workers. ``busy_s``: of each live one, by name, until it takes the next;
    ``ahead`` explorations of ``ahead_s`` in all go before."""

    busy_s: Mapping[str, float] = field(default_factory=dict)
    ahead_s: float = 0.0
    ahead: int = 0

    @property
    def workers(self) -> int:
        return len(self.busy_s)

    @property
    def seconds(self) -> float | None:
        """None if no live worker serves the target."""
        return level_s(list(self.busy_s.values()), self.ahead_s) if self.busy_s else None


@dataclass(frozen=True, slots=True)
class Newcomer:
    """An exploration queued for its first result, or about to be: the facts that decide its place."""

    priority: int
    worth: float
    op_type: str
    asked_by: int | None = None


def share_left(row: Exploration) -> float:
    """The remaining share of its stage; 1 if it has not begun."""
    begun = row.state == State.RUNNING and row.doing != "claimed" and row.steps_total > 0
    return 1 - min(row.steps_done / row.steps_total, 1) if begun else 1.0


def held_s(row: Exploration, stage: int, rates: Rates) -> float:
    """How long an exploration that a worker holds (operator loaded) keeps it from work of this stage."""
    left_s = share_left(row) * rates.pace(row.stage, row.operator.op_type).seconds
    if row.stage <= stage:
        return left_s
    # It makes room for a lower stage: when its piece is over, or at once where it has not begun.
    return min(left_s, EXPECTED_S[WORK_OF_STAGE[Stage(row.stage)]]) if row.doing != "claimed" else 0.0


def held_now(visible: Q = EVERYTHING) -> QuerySet[Exploration]:
    """What workers hold, with as much of the operators as is said of it."""
    rows = Exploration.objects.filter(visible, state=State.RUNNING).select_related("operator").order_by("pk")
    lease = ("target_id", "lease_owner", "lease_expires_at")
    how_far = ("stage", "state", "doing", "steps_done", "steps_total")
    return rows.only(*lease, *how_far, "operator__op_type", "operator__summary")


def busy_workers(stage: int, rates: Rates, visible: Q = EVERYTHING) -> dict[int, dict[str, float]]:
    """Target → its live workers → seconds until each takes up the next work of this stage. ``visible``: by
    those explorations alone. Two statements."""
    living = Worker.objects.filter(alive()).values_list("name", "target")
    return busy_by(living, held_now(visible), stage, rates)


def busy_by(
    living: Iterable[tuple[str, int]], held: Iterable[Exploration], stage: int, rates: Rates
) -> dict[int, dict[str, float]]:
    """The same of live workers, given as (name, target), and of what is held."""
    found: dict[int, dict[str, float]] = defaultdict(dict)
    for name, target in living:
        found[target][name] = 0.0
    for row in held:
        name = name_of(row.lease_owner)
        if name in found[row.target_id]:
            found[row.target_id][name] += held_s(row, stage, rates)
    return found


def wait_of(row: Exploration, rates: Rates) -> TargetWait:
    """How long a queued exploration waits until a worker takes it."""
    first = Q(stage__lt=row.stage)
    first |= Q(stage=row.stage, priority__lt=row.priority)
    first |= Q(stage=row.stage, priority=row.priority, opened__lt=row.opened)
    first |= Q(stage=row.stage, priority=row.priority, opened=row.opened, worth__gt=row.worth)
    own, queued = payer(row.asked_by_id), _queued(row.target_id)
    seconds, ahead = _added(_by_kind(queued.filter(first, asked_by(own))), rates)
    waiting_s, waiting = _by_organisation(queued, rates)
    others = others_before(seconds, own, waiting_s, shares(waiting_s.keys() | {own}))
    ahead += sum(round(waiting[number] * part / waiting_s[number]) for number, part in others.items() if part)
    busy = busy_workers(row.stage, rates, Q(target=row.target_id)).get(row.target_id, {})
    return TargetWait(busy, seconds + sum(others.values()), ahead)


def newcomers_waits(
    busy: Mapping[int, Mapping[str, float]], rates: Rates, visible: Q = EVERYTHING
) -> dict[int, TargetWait]:
    """Target → what an operator waits for its live workers, at most, that is asked for now with normal
    priority: as if all that waits were of one organisation. ``busy``: until they take up first results
    (:func:`busy_workers`). One statement."""
    ahead: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    before = Exploration.objects.filter(
        visible, state=State.QUEUED, stage=Stage.FIRST, priority__lte=Priority.NORMAL
    )
    counted = before.order_by().values_list("target", "operator__op_type").annotate(n=Count("pk"))
    for target, op_type, count in counted:
        ahead[target].append((Stage.FIRST, op_type, count))
    return {
        target: TargetWait(of_target, *_added(ahead[target], rates))
        for target, of_target in busy.items()
        if of_target
    }


def backlog_s(target_id: int, rates: Rates) -> float:
    """Seconds until a target's live workers would have ended all first results and contests that wait; 0
    without any worker."""
    waiting = _queued(target_id).filter(stage__lt=Stage.TUNE)
    counts = dict(waiting.order_by().values_list("stage").annotate(n=Count("pk")))
    first, contest = (rates.pace(stage).seconds for stage in (Stage.FIRST, Stage.CONTEST))
    work_s = counts.get(Stage.FIRST, 0) * (first + contest) + counts.get(Stage.CONTEST, 0) * contest
    busy = busy_workers(Stage.CONTEST, rates, Q(target=target_id)).get(target_id, {})
    return TargetWait(busy, work_s).seconds or 0.0


def first_results_s(target_id: int, coming: Sequence[Newcomer], rates: Rates) -> list[float] | None:
    """How long after now each of these may expect its first result, once all are queued together; None where
    nothing can be said: no worker is there, or too many wait."""
    rows = claimable(target_id).filter(stage=Stage.FIRST)
    waiting = rows.values_list("priority", "worth", "operator__op_type", "asked_by")[: MOST_AHEAD + 1]
    before = [Newcomer(*row) for row in waiting]
    busy = busy_workers(Stage.FIRST, rates, Q(target=target_id)).get(target_id)
    if not busy or len(before) > MOST_AHEAD:
        return None
    host, lines = payer(None), defaultdict[int, list[tuple[int, float, int]]](list)
    waiting_s, _ = _by_organisation(_queued(target_id), rates)
    takes_s = [rates.pace(Stage.FIRST, one.op_type).seconds for one in (*before, *coming)]
    for number, one in enumerate((*before, *coming)):
        own = host if one.asked_by is None else one.asked_by
        lines[own].append((one.priority, -one.worth, number))
        waiting_s[own] += takes_s[number] if number >= len(before) else 0.0
    known, found = shares(waiting_s.keys()), [0.0] * len(takes_s)
    for own, line in lines.items():
        own_s = 0.0
        for *_, number in sorted(line):
            if number >= len(before):
                ahead_s = own_s + sum(others_before(own_s, own, waiting_s, known).values())
                found[number] = level_s(list(busy.values()), ahead_s) + takes_s[number]
            own_s += takes_s[number]
    return found[len(before) :]


def _queued(target_id: int) -> QuerySet[Exploration]:
    return Exploration.objects.filter(state=State.QUEUED, target=target_id)


def _by_kind(rows: QuerySet[Exploration]) -> Iterable[tuple[int, str, int]]:
    """(Stage, op type, how many)."""
    return rows.order_by().values_list("stage", "operator__op_type").annotate(n=Count("pk"))


def _by_organisation(
    rows: QuerySet[Exploration], rates: Rates
) -> tuple[defaultdict[int, float], Counter[int]]:
    """Seconds of their stages, and how many they are."""
    host, seconds, number = payer(None), defaultdict[int, float](float), Counter[int]()
    counted = rows.order_by().values_list("asked_by", "stage", "operator__op_type").annotate(n=Count("pk"))
    for asked, stage, op_type, count in counted:
        own = host if asked is None else asked
        seconds[own] += count * rates.pace(stage, op_type).seconds
        number[own] += count
    return seconds, number


def _added(counts: Iterable[tuple[int, str, int]], rates: Rates) -> tuple[float, int]:
    """Seconds and number of explorations, given as (stage, op type, how many)."""
    seconds, number = 0.0, 0
    for stage, op_type, count in counts:
        seconds += count * rates.pace(stage, op_type).seconds
        number += count
    return seconds, number
