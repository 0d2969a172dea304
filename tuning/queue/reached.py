"""Tells the catalogue how far explorations have come; lookups show it with every answer."""

from __future__ import annotations

from catalog.best.seats import ScopedPlace
from catalog.best.stages import note_stage
from catalog.models import AnswerStage
from tuning.models import Exploration, Stage, State

GOES_ON = (State.QUEUED, State.RUNNING, State.PAUSED)
BEGINS_AGAIN = (State.DONE, State.UNSUPPORTED)
"""States in which a requested further round begins by itself."""


def tell_stage(pk: int) -> None:
    """Store how far an exploration has come; call it in the transaction that moves it on."""
    tell_stage_of(Exploration.objects.get(pk=pk))


def tell_stage_of(row: Exploration) -> None:
    """The same for the row as it is in the database now."""
    note_stage(ScopedPlace.of(row), stage_of(row), is_final(row))


def stage_of(row: Exploration) -> AnswerStage:
    """The furthest stage that has ended in this round."""
    if row.tuning_slices:
        return AnswerStage.TUNED
    contested = row.stage == Stage.CONTEST and row.state == State.DONE
    return AnswerStage.CONTEST if contested or row.stage == Stage.TUNE else AnswerStage.FIRST


def is_final(row: Exploration) -> bool:
    """Whether nothing more is planned: it has ended, and no further round is asked for."""
    return row.state not in GOES_ON and not (row.state in BEGINS_AGAIN and row.pending_routes)
