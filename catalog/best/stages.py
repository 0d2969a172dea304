"""How far exploring has come in a place: kept with its bests, which lookups read. The transaction that moves
an exploration on writes it."""

from __future__ import annotations

from django.db.models import F, OuterRef, Subquery

from catalog import models
from catalog.best.seats import ScopedPlace
from catalog.models import AnswerStage

_ORDER = {stage.value: number for number, stage in enumerate(AnswerStage)}


def is_reached(stage: str, wanted: str) -> bool:
    """Whether this stage is as far as the wanted one."""
    return _ORDER[stage] >= _ORDER[wanted]


def note_stage(place: ScopedPlace, stage: AnswerStage, final: bool) -> None:
    """Exploring has reached this stage in a place, and is over for now (``final``) or goes on. A further
    round takes nothing back: the stage stays the furthest since anything is served."""
    bests = models.Best.objects.filter(**place.key)
    bests.exclude(final=final).update(final=final)
    lower = [one for one in AnswerStage if not is_reached(one, stage)]
    if lower:
        bests.filter(stage__in=lower).update(stage=stage)


def mark_defaults() -> None:
    """Mark every best that is its place's default, after an import."""
    made = {f"implementation__{name}": OuterRef(name) for name in models.SAME_KEY}
    timed = models.Measurement.objects.filter(**made, purpose=models.Purpose.DEFAULT).order_by("-pk")
    found = models.Best.objects.annotate(
        default_route=Subquery(timed.values("implementation__route")[:1]),
        default_candidate=Subquery(timed.values("implementation__candidate_sha256")[:1]),
    ).filter(route=F("default_route"), implementation__candidate_sha256=F("default_candidate"))
    models.Best.objects.filter(pk__in=found.values("pk")).update(is_default=True)
