"""Misses: durable rows, unique per (operator, target, setting, scope), counted when asked again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from catalog import failpoints, models
from catalog.models import MissState
from catalog.people.keys import NOT_KNOWN, KeyRefused
from catalog.registry import register_operators
from catalog.signals import misses_recorded
from catalog.upsert import insert_or
from opatlas import identity

QUEUED = (MissState.WAITING, MissState.PROMOTED, MissState.POSTPONED)
REFUSED = "refused"
"""State of a miss that was not recorded because the key's quota is used up; it is never stored."""


@dataclass(frozen=True)
class Wanted:
    """One unknown operator: its row if there is one, else the graph to make it from."""

    key: str
    calls: float
    operator_id: int | None = None
    graph: identity.Operator | None = None
    related: bool = False


@dataclass(frozen=True)
class Where:
    """The common part of one lookup's misses."""

    target: models.Target
    setting: models.Setting
    scope: str = models.SHARED
    owner: models.Organisation | None = None
    api_key: models.ApiKey | None = None
    organisation: models.Organisation | None = None
    job: str = ""
    waited_until: datetime | None = None


@dataclass(frozen=True)
class MissAnswer:
    state: str
    reason: str = ""
    operator_id: int | None = None  # None where it was refused and has no row


def record_misses(wanted: Sequence[Wanted], where: Where) -> dict[str, MissAnswer]:
    """Record unknown operators; committed when this returns, unless the caller's transaction goes on.
    ``wanted`` names each key once. A key's quota bounds its queued misses: new ones beyond it are answered
    ``refused`` and not recorded. What is queued already is counted, whoever asked first. Raises KeyRefused if
    the key was deleted since it was read."""
    if not wanted:
        return {}
    with transaction.atomic():
        if where.api_key is not None:  # requests of one key count its quota one after the other
            _lock(where.api_key)
        queued = _already_queued(wanted, where)
        taken, refused = _within_quota(wanted, queued, where.api_key)
        ids = _operator_ids(taken)
        _upsert(taken, ids, where)
        states = _states(ids, where)
        if any(state.state in (MissState.WAITING, MissState.POSTPONED) for state in states.values()):
            capability = where.target.capability
            transaction.on_commit(
                lambda: misses_recorded.send(sender=models.Miss, capabilities={capability}),
                robust=True,  # they are committed: a bell that cannot be rung is logged, and answers nothing
            )
    failpoints.at("miss-recorded", operators=list(ids.values()))
    return states | {item.key: _refusal(item, where.api_key) for item in refused}


def _lock(api_key: models.ApiKey) -> None:
    """A row read within the look (``catalog.api.warm.rows``) may be gone by now."""
    if not models.ApiKey.objects.select_for_update(no_key=True).filter(pk=api_key.pk).first():
        raise KeyRefused(NOT_KNOWN)


def states_now(
    operators: Mapping[str, int | None], target: models.Target, setting: models.Setting
) -> dict[str, MissAnswer]:
    """States of shared misses by key; ``operators``: their ids by key. One statement."""
    numbers = {number: key for key, number in operators.items() if number is not None}
    found = _rows_of(Where(target, setting)).filter(operator__in=numbers)
    rows = found.values_list("operator_id", "state", "reason") if numbers else ()
    return {numbers[number]: MissAnswer(state, reason, number) for number, state, reason in rows}


def _rows_of(where: Where) -> QuerySet[models.Miss]:
    return models.Miss.objects.filter(target=where.target, setting=where.setting, scope=where.scope)


def _already_queued(wanted: Sequence[Wanted], where: Where) -> set[int]:
    known = [item.operator_id for item in wanted if item.operator_id is not None]
    return set(_rows_of(where).filter(operator__in=known).values_list("operator_id", flat=True))


def _within_quota(
    wanted: Sequence[Wanted], queued: set[int], api_key: models.ApiKey | None
) -> tuple[list[Wanted], list[Wanted]]:
    """Split into accepted and refused ones: operators asked for come before related ones."""
    again = [item for item in wanted if item.operator_id in queued]
    new = sorted((item for item in wanted if item.operator_id not in queued), key=lambda item: item.related)
    if api_key is None or not new:
        return again + new, []
    in_queue = models.Miss.objects.filter(api_key=api_key, state__in=QUEUED).count()
    room = max(0, api_key.max_queued_misses - in_queue)
    return again + new[:room], new[room:]


def _operator_ids(taken: Sequence[Wanted]) -> dict[str, int]:
    graphs = {item.key: item.graph for item in taken if item.operator_id is None and item.graph is not None}
    rows = register_operators(graphs) if graphs else {}
    return {
        item.key: item.operator_id if item.operator_id is not None else rows[item.key].pk for item in taken
    }


def _upsert(taken: Sequence[Wanted], ids: Mapping[str, int], where: Where) -> None:
    now = timezone.now()
    job = None
    if where.job and where.organisation is not None:
        job = models.Job.objects.get_or_create(organisation=where.organisation, name=where.job)[0]
    rows = [
        {
            "operator_id": ids[item.key],
            "target_id": where.target.pk,
            "setting_id": where.setting.pk,
            "scope": where.scope,
            "owner_id": where.owner.pk if where.owner else None,
            "count": 0 if item.related else 1,
            "calls": item.calls,
            "related": item.related,
            "state": MissState.WAITING.value,
            "reason": "",
            "api_key_id": where.api_key.pk if where.api_key else None,
            "job_id": job.pk if job else None,
            "first_asked_at": now,
            "last_asked_at": now,
            "waited_until": None if item.related else where.waited_until,
        }
        for item in sorted(taken, key=lambda item: ids[item.key])
    ]
    insert_or(
        models.Miss,
        rows,
        unique=models.SAME_KEY,
        updates={
            "count": "old.count + new.count",
            "calls": "old.calls + CASE WHEN new.related THEN 0 ELSE new.calls END",
            "related": "old.related AND new.related",
            "last_asked_at": "new.last_asked_at",
            "waited_until": "COALESCE(new.waited_until, old.waited_until)",
        },
    )


def _states(ids: Mapping[str, int], where: Where) -> dict[str, MissAnswer]:
    """States after the upsert, whose rows this transaction now holds. If a best was published since the
    lookup read, the miss is explored. If a miss says explored and its best is gone (revoked), it waits
    again."""
    numbers = list(ids.values())
    known = set(
        models.Best.objects.filter(
            operator__in=numbers, target=where.target, setting=where.setting, scope=where.scope
        ).values_list("operator_id", flat=True)
    )
    rows = {row.operator_id: row for row in _rows_of(where).filter(operator__in=numbers)}
    for number, row in rows.items():
        state = row.state
        if number in known and state != MissState.EXPLORED:
            state = MissState.EXPLORED
        elif number not in known and state == MissState.EXPLORED:
            state = MissState.WAITING
        if state != row.state:
            row.state, row.reason = state, ""
            row.save(update_fields=["state", "reason"])
    return {key: MissAnswer(rows[number].state, rows[number].reason, number) for key, number in ids.items()}


def _refusal(item: Wanted, api_key: models.ApiKey | None) -> MissAnswer:
    allowed = api_key.max_queued_misses if api_key else 0
    return MissAnswer(
        REFUSED,
        f"This key has {allowed} misses in the queue, which is its quota: ask again when some were explored.",
        item.operator_id,
    )
