"""Moves misses to the explore queues: asks the decider about every waiting miss, and acts on it."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from django.db import transaction
from django.db.models import Expression, Q, TextField
from django.db.models.functions import Cast, Now
from django.utils import timezone

from catalog.models import Best, Miss, MissState, Target
from catalog.models import Operator as OperatorRow
from catalog.steps import each, held_back, is_away, step
from opatlas.identity import Operator, check_measurable
from tuning.conf import conf
from tuning.measure.specimen import needed_bytes
from tuning.models import Exploration, Pause, Stage, State, Worker
from tuning.queue.clock import alive, now_in
from tuning.queue.decide import Ask, Decision, Situation, decide, priority_of, worth_of_miss_us
from tuning.queue.rates import lately
from tuning.queue.reached import tell_stage
from tuning.queue.rounds import AFRESH
from tuning.queue.waits import Newcomer, backlog_s, first_results_s

logger = logging.getLogger(__name__)

MEMORY_SHARE = 0.5
"""Share of a worker's memory that one operator's measurement may take (``Laboratory.bench`` refuses more)."""

_GAINS_FOR_S = 60.0
_gains: tuple[float, dict[str, float]] = (-math.inf, {})

READING, DECIDING, PROMOTING = OF_MISSES = (
    "reading a miss's operator",
    "deciding about misses",
    "promoting a miss",
)
OF_TARGETS = "deciding about a target's misses"
"""The steps whose failed rows are misses, and targets. Only an error in reading is the miss's own fault."""

LIVE = (State.QUEUED, State.RUNNING, State.PAUSED)


def promote_misses(limit: int = 500, *, postponed: bool = False) -> int:
    """Decide about waiting misses (and postponed ones, if asked); returns how many were promoted.

    Any number of processes may do this at the same time: a miss is promoted by one transaction that changes
    it from the state it was read in, and (operator, target, setting, scope) is unique among explorations.
    """
    states = [MissState.WAITING, MissState.POSTPONED] if postponed else [MissState.WAITING]
    # A miss that already waits for a worker is looked at again only once its target has one.
    worth_looking = Q(target__served_until__gt=Now()) | Q(reason="")
    misses = list(
        Miss.objects.filter(worth_looking, state__in=states)
        .exclude(pk__in=held_back(*OF_MISSES))
        .exclude(target__in=held_back(OF_TARGETS))
        .select_related("operator", "target", "api_key", "job")
        .defer("operator__graph")  # one that cannot be read must not keep the others from being read
        .order_by("related", "first_asked_at", "pk")[:limit]
    )
    by_target: dict[Target, list[Miss]] = defaultdict(list)
    for miss in misses:
        by_target[miss.target].append(miss)
    return sum(
        each(
            OF_TARGETS,
            by_target,
            lambda target: _decide_for_target(target, by_target[target]),
            shared=True,
        )
    )


def situation_of(target: Target) -> Situation:
    """The service's capacity for a target now."""
    workers = live_workers(target.pk)
    pause = Pause.objects.filter(capability__in=["*", target.capability]).first()
    said = f"The queue {pause.capability} is paused: {pause.reason or 'no reason given'}." if pause else ""
    return Situation(
        workers=len(workers),
        memory_bytes=int(MEMORY_SHARE * max((worker.memory_bytes for worker in workers), default=0)),
        backlog_s=backlog_s(target.pk, lately()),
        paused=said,
        capability=target.capability,
        max_backlog_s=conf().max_backlog_s,
        gains=gains_by_type(),
    )


def live_workers(target_id: int) -> list[Worker]:
    """Workers of this target that gave a sign of life lately."""
    return list(Worker.objects.filter(alive(), target_id=target_id))


def gains_by_type() -> dict[str, float]:
    """Operator type → mean share of the default's time that exploring has saved, over recent winners."""
    global _gains
    if time.monotonic() - _gains[0] > _GAINS_FOR_S:
        saved: dict[str, list[float]] = defaultdict(list)
        recent = (
            Best.objects.filter(rank=0).order_by("-pk").values_list("operator__op_type", "ratio_to_default")
        )
        for op_type, ratio in recent[:2000]:
            saved[op_type].append(max(0.0, 1 - 1 / max(ratio, 1e-9)))
        # Three results are too few to call a kind of operator hopeless; and hope never ends entirely.
        learnt = {
            name: max(0.02, sum(values) / len(values)) for name, values in saved.items() if len(values) >= 3
        }
        _gains = (time.monotonic(), learnt)
    return _gains[1]


def quick_ask_of(miss: Miss) -> Ask:
    """A miss as the decider sees it, without its memory: enough for its worth, without reading a graph."""
    now = timezone.now()
    return Ask(
        op_type=miss.operator.op_type,
        flops=miss.operator.flops,
        bytes_moved=miss.operator.bytes_moved,
        peak_bytes=0.0,
        calls=miss.calls,
        related=miss.related,
        somebody_waits=miss.waited_until is not None and miss.waited_until > now,
        age_s=(now - miss.first_asked_at).total_seconds(),
    )


def _decide_for_target(target: Target, misses: Sequence[Miss]) -> int:
    situation, graphs = situation_of(target), _graphs_of(misses)

    def needed(miss: Miss) -> tuple[Miss, float]:
        operator = Operator.from_json(json.loads(graphs[miss.operator_id]))
        check_measurable(operator)
        return miss, needed_bytes(operator)

    def decided(miss: Miss) -> tuple[Miss, Decision] | None:
        decision = decide(replace(quick_ask_of(miss), peak_bytes=peak_bytes[miss]), situation)
        if decision.verdict == "promote":
            return miss, decision
        _set_aside(miss, decision)
        return None

    peak_bytes = dict(each(READING, misses, needed, _give_up))
    promote = [one for one in each(DECIDING, peak_bytes, decided, shared=True) if one is not None]
    try:
        with transaction.atomic():
            return promote_decided(promote)
    except Exception as error:
        if is_away(error):
            raise
        logger.warning("Misses could not be promoted together (%s): one by one.", error)
    decisions = dict(promote)
    return sum(
        each(PROMOTING, decisions, lambda miss: promote_decided([(miss, decisions[miss])]), shared=True)
    )


def _graphs_of(misses: Sequence[Miss]) -> dict[int, str]:
    """Operator → its graph as the text that is kept: each is read by itself."""
    rows = OperatorRow.objects.filter(pk__in={miss.operator_id for miss in misses})
    return dict(rows.values_list("pk", Cast("graph", TextField())))


def _give_up(miss: Miss, reason: str) -> None:
    """It is not tried again by itself; those who ask for it read why."""
    _set_aside(miss, Decision("discard", 0.0, reason=f"It cannot be explored. {reason}"))


def _set_aside(miss: Miss, decision: Decision) -> None:
    """Write the decision down if it is new."""
    states = {"wait": MissState.WAITING, "postpone": MissState.POSTPONED, "discard": MissState.DISCARDED}
    state = states[decision.verdict]
    if (miss.state, miss.reason) != (state, decision.reason):
        Miss.objects.filter(pk=miss.pk, state=miss.state).update(state=state, reason=decision.reason[:500])


def promote_decided(decided: Sequence[tuple[Miss, Decision]]) -> int:
    """Move misses into their explore queues, each from the state it was read in; how many were won."""
    if not decided:
        return 0
    expected = _forecast(decided)
    with transaction.atomic():
        mine = _take_misses([miss for miss, _ in decided])
        wanted = {_key(miss): (miss, decision) for miss, decision in decided if miss.pk in mine}
        existing = {_key(row): row for row in _explorations_of(miss for miss, _ in wanted.values())}
        Exploration.objects.bulk_create(
            [
                _new_exploration(miss, decision, expected.get(miss.pk))
                for key, (miss, decision) in wanted.items()
                if key not in existing
            ],
            ignore_conflicts=True,
        )
        for key, row in existing.items():
            miss, decision = wanted[key]
            if row.state in LIVE:
                reweigh(row, decision.worth, decision.priority, miss.calls)
            else:
                start_again(row, decision.worth, decision.priority, miss, expected.get(miss.pk))
    return len(mine)


def _take_misses(misses: Sequence[Miss]) -> set[int]:
    """Move misses on to promoted, each from the state it was read in; the ids that this process won."""
    won = set()
    # In the order in which lookups lock them: opposite orders would wait for each other.
    for miss in sorted(misses, key=_key):
        changed = Miss.objects.filter(pk=miss.pk, state=miss.state).update(
            state=MissState.PROMOTED, reason=""
        )
        if changed:
            won.add(miss.pk)
    return won


def _key(row: Miss | Exploration) -> tuple[int, int, int, str]:
    return row.operator_id, row.target_id, row.setting_id, row.scope


def _explorations_of(misses: Iterable[Miss]) -> list[Exploration]:
    """Explorations of the same keys (a few more may match a mixture of them: dropped here)."""
    rows = list(misses)
    keys = {_key(miss) for miss in rows}
    found = Exploration.objects.filter(
        operator__in={row.operator_id for row in rows}, target__in={row.target_id for row in rows}
    )
    return [row for row in found if _key(row) in keys]


def _forecast(decided: Sequence[tuple[Miss, Decision]]) -> dict[int, Expression]:
    """The expected times; none if that fails: misses are promoted all the same."""
    with step("forecasting first results"), transaction.atomic():
        return _expected(decided)
    return {}


def _expected(decided: Sequence[tuple[Miss, Decision]]) -> dict[int, Expression]:
    """Miss → when its first result is expected, on the database's clock; without those that cannot be
    predicted."""
    by_target: dict[int, list[tuple[Miss, Decision]]] = defaultdict(list)
    for miss, decision in decided:
        by_target[miss.target_id].append((miss, decision))
    found = dict[int, Expression]()
    for target, rows in by_target.items():
        coming = [
            Newcomer(one.priority, one.worth, miss.operator.op_type, asker_of(miss)) for miss, one in rows
        ]
        told = first_results_s(target, coming, lately()) or ()
        found |= {miss.pk: now_in(seconds) for (miss, _), seconds in zip(rows, told, strict=False)}
    return found


def _new_exploration(miss: Miss, decision: Decision, expected: Expression | None) -> Exploration:
    return Exploration(
        **miss.same_key,
        owner_id=miss.owner_id,
        priority=decision.priority,
        worth=decision.worth,
        calls=miss.calls,
        capability=miss.target.capability,
        asked_at=miss.first_asked_at,
        asked_by_id=asker_of(miss),
        expected_first_at=expected,
    )


def asker_of(miss: Miss) -> int | None:
    """The organisation that asked for it first; None if none did, or it is unknown."""
    if miss.owner_id is not None:
        return miss.owner_id
    asked = miss.api_key or miss.job
    return asked.organisation_id if asked else None


def reweigh(row: Exploration, worth: float, priority: int, calls: float) -> None:
    """Its demand has changed: move it to a more urgent queue, never to a lesser one."""
    told = row.stage == Stage.CONTEST or (row.stage == Stage.TUNE and row.expected_gain is not None)
    if told and row.calls > 0:
        worth = row.worth * calls / row.calls  # what its last slice expects of the next one stands
    Exploration.objects.filter(pk=row.pk).update(worth=worth, calls=calls)
    Exploration.objects.filter(pk=row.pk, priority__gt=priority).update(priority=priority)


def start_again(
    row: Exploration, worth: float, priority: int, miss: Miss, expected: Expression | None
) -> None:
    """An exploration that had ended is asked for again (its best was revoked, say): a new round."""
    Exploration.objects.filter(pk=row.pk, state=row.state, fence=row.fence).update(
        **AFRESH | {"expected_first_at": expected},
        priority=priority,
        worth=worth,
        calls=miss.calls,
        asked_at=miss.last_asked_at,
        asked_by=asker_of(miss),
        updated_at=Now(),
    )
    tell_stage(row.pk)


def reweigh_asked_again(within_s: float) -> int:
    """Follow misses that were asked for again after their promotion: more calls, or somebody waiting."""
    since = timezone.now() - timedelta(seconds=within_s)
    asked = list(
        Miss.objects.filter(state=MissState.PROMOTED, last_asked_at__gt=since)
        .select_related("operator", "target")
        .defer("operator__graph")[:500]
    )
    misses = {_key(miss): miss for miss in asked}

    def follow(row: Exploration) -> bool:
        miss = misses[_key(row)]
        ask = quick_ask_of(miss)
        priority = priority_of(ask)
        if changed := row.calls != miss.calls or row.priority > priority:
            reweigh(row, worth_of_miss_us(ask, gains_by_type()), priority, miss.calls)
        return changed

    return sum(each("weighing again", _explorations_of(asked), follow))
