"""Gives stored operators today's keys, after a rule of canonicalising changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, models, transaction

from catalog import choosing
from catalog.errors import SystemFault
from catalog.models import Best, Operator
from catalog.registry import operator_fields
from catalog.steps import reason_of
from catalog.usage.closing import TALLIED
from catalog.usage.draining import drain_journal, is_held_up
from opatlas.errors import MALFORMED, InvalidOperator
from opatlas.identity.rekey import rekey

_ADDED_UP = {
    "Miss": ("count", "calls"),
    "JobOperator": ("hits", "default_hits", "neighbour_hits", "misses"),
    "LookupTally": TALLIED,
    "ModelOperator": ("calls",),
    "Succession": ("jobs", "weight"),
}


@dataclass
class Rekeyed:
    """The result: operators by what happened to them, and those that today's rules refuse."""

    kept: int = 0
    changed: int = 0
    merged: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)


def rekey_operators() -> Rekeyed:
    """Give every stored operator the key that today's rules give it.

    Two that have become the same are merged: what refers to one moves to the other; where both had a row in
    the same place (a best of the same route, a miss) counts are added up and the row of the operator that is
    kept stays. One transaction for each operator, so it can be stopped and run again. Manifests stay as they
    were signed. Nobody should be asking meanwhile: the journal names rows, so it is drained first.
    """
    drain_journal()
    if is_held_up():
        raise SystemFault("The journal cannot be drained, and it names operators: see the alerts.")
    done = Rekeyed()
    for number in list(Operator.objects.order_by("pk").values_list("pk", flat=True)):
        with transaction.atomic():
            row = Operator.objects.select_for_update().get(pk=number)
            try:
                operator = rekey(row.graph)
            except InvalidOperator as error:
                done.refused.append((row.key, str(error)))
                continue
            except MALFORMED as error:
                done.refused.append((row.key, reason_of(error)))
                continue
            if operator.key == row.key:
                done.kept += 1
                continue
            there = Operator.objects.select_for_update().filter(key=operator.key).first()
            if there is None:
                Operator.objects.filter(pk=number).update(key=operator.key, **operator_fields(operator))
                done.changed += 1
            else:
                _merge(row, there)
                _rank_again(there)
                done.merged += 1
    return done


def _merge(gone: models.Model, kept: models.Model) -> None:
    """Make everything that refers to one row refer to the other, add up its counts, and delete it."""
    for relation in gone._meta.related_objects:
        name = relation.field.name
        for row in relation.related_model._default_manager.filter(**{name: gone}):
            _move(row, name, kept)
    columns = _ADDED_UP.get(type(gone).__name__, ())
    if columns:
        added = {column: models.F(column) + getattr(gone, column) for column in columns}
        type(kept)._default_manager.filter(pk=kept.pk).update(**added)
    gone.delete()


def _move(row: models.Model, name: str, kept: models.Model) -> None:
    """Point ``row`` to ``kept``; if a row is there already, merge the two."""
    try:
        with transaction.atomic():
            type(row)._default_manager.filter(pk=row.pk).update(**{name: kept})
    except IntegrityError:
        _merge(row, _same_place(row, name, kept))


def _same_place(row: models.Model, name: str, kept: models.Model) -> models.Model:
    """The row in the place that this one would take: equal in the unique constraint that names the
    operator."""
    for constraint in row._meta.constraints:
        if isinstance(constraint, models.UniqueConstraint) and name in constraint.fields:
            place: dict[str, Any] = {field: getattr(row, field) for field in constraint.fields} | {name: kept}
            found = type(row)._default_manager.filter(**place).first()
            if found is not None:
                return found
    raise LookupError(f"{row!r} stands in the way of none")


def _rank_again(operator: Operator) -> None:
    groups: dict[tuple[int, int, str], dict[str, Best]] = {}
    for best in Best.objects.filter(operator=operator):
        groups.setdefault((best.target_id, best.setting_id, best.scope), {})[best.route] = best
    for bests in groups.values():
        for rank, route in enumerate(choosing.rank({r: b.ratios for r, b in bests.items()}, None)):
            Best.objects.filter(pk=bests[route].pk).update(rank=rank)
