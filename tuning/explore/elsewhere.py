"""What won for the same operator on targets that differ from this one in sizes alone: tried here first, since
jobs were given it meanwhile (``catalog.lookup.neighbours``)."""

from __future__ import annotations

from catalog.models import Best
from opatlas.identity import Target
from opatlas.identity.place.neighbours import nearest_first
from tuning.measure.laboratory import SUBMITTED
from tuning.models import Exploration
from tuning.routes.base import Candidate

MOST = 3
"""Targets whose winners are tried."""


def winners_of_neighbours(row: Exploration) -> list[Candidate]:
    """Of the nearest target first. Kernels that people submitted are none of them: they enter every contest
    that they match."""
    bests = (
        Best.objects.filter(operator=row.operator_id, setting=row.setting_id, scope=row.scope, rank=0)
        .filter(target__kind=row.target.kind, target__arch=row.target.arch)
        .exclude(target=row.target_id)
        .exclude(route__in=SUBMITTED)
        .select_related("target", "implementation")
        .defer("implementation__source", "implementation__schedule")
    )
    by_target = {Target.from_json(best.target.description): best for best in bests}
    nearest = nearest_first(Target.from_json(row.target.description), by_target)[:MOST]
    made = [by_target[target].implementation for target in nearest]
    return [Candidate(one.route, one.candidate, one.label) for one in made]
