"""Winners for the same operator on targets that differ from this one in sizes alone: tried here first, since
jobs were given them meanwhile (``catalog.lookup.neighbours``)."""

from __future__ import annotations

from catalog.models import Best
from opatlas.identity import Setting, Target
from opatlas.identity.place.neighbours import nearest_first, settings_there
from opatlas.load.recipe import with_threads_of
from tuning.measure.laboratory import SUBMITTED
from tuning.models import Exploration
from tuning.routes.base import Candidate

MOST = 3
"""How many targets' winners are tried."""


def winners_of_neighbours(row: Exploration) -> list[Candidate]:
    """The nearest target's first, each under the setting whose entries jobs here were given. Submitted
    kernels are left out: they enter every contest that they match."""
    bests = (
        Best.objects.filter(operator=row.operator_id, scope=row.scope, rank=0)
        .filter(target__kind=row.target.kind, target__arch=row.target.arch)
        .exclude(target=row.target_id)
        .exclude(route__in=SUBMITTED)
        .select_related("target", "setting", "implementation")
        .defer("implementation__source", "implementation__schedule")
    )
    here = Target.from_json(row.target.description)
    wanted = Setting.from_json(row.setting.description)
    won = {
        (Target.from_json(best.target.description), Setting.from_json(best.setting.description)): best
        for best in bests
    }
    found = []
    for near in nearest_first(here, {target for target, _ in won}):
        owns = [own for own in settings_there(here, wanted, near) if (near, own) in won]
        for own in owns[:1]:
            made = won[near, own].implementation
            parameters = with_threads_of(made.candidate, own.threads, wanted.threads)
            found.append(Candidate(made.route, parameters, made.label))
    return found[:MOST]
