"""What a slice tries: the candidates of a route, the default, and when to make room for more urgent work."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from tuning.conf import conf
from tuning.environments.revalidation import held_candidates
from tuning.explore.records import known_candidates
from tuning.explore.results import Tried
from tuning.explore.workshop import ClaimedSlice, Stopping
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, Trial
from tuning.queue import claims
from tuning.queue.claims import StaleLease
from tuning.queue.clock import DATABASE_GONE
from tuning.routes.base import Budget, Candidate, Route

logger = logging.getLogger(__name__)


class NothingWorked(Exception):
    """Every way to a default failed here and now; it may work at the next try."""


class Yielding(Exception):
    """Something more urgent waits: this slice gives its exploration back and goes on later where it was."""


def default_of(work: ClaimedSlice) -> tuple[Route, Candidate]:
    """What served as the default in the latest first result (a further round has none of its own)."""
    trial = (
        Trial.objects.filter(exploration=work.row, stage=Stage.FIRST, status=Status.OK)
        .order_by("-pk")
        .first()
    )
    for route in work.workshop.routes:
        if trial is not None and route.name == trial.route:
            return route, Candidate(route.name, trial.candidate, trial.label)
    given = work.workshop.default_candidate(work.operator, work.workshop.target, work.setting)
    if given is None:
        raise NothingWorked("This worker does not have the route that made the default.")
    return given


def candidates_of(work: ClaimedSlice, route: Route) -> Iterator[Candidate]:
    """A route's candidates; an error of the route is kept as a trial, and the other routes go on."""
    budget = Budget(seconds=conf().candidates_s)
    try:
        if work.row.stage == Stage.CONTEST:
            yield from held_candidates(work.row, route.name)
            yield from known_candidates(work, route)
        yield from route.candidates(work.operator, work.workshop.target, work.setting, budget)
    except (*DATABASE_GONE, StaleLease, Stopping, Yielding):
        raise
    except Exception as error:
        logger.exception("Route %s broke while naming candidates.", route.name)
        work.keep(Tried(route, None), Outcome(Status.BUILD_FAILED, f"It named no candidates: {error!r}"))


def make_room(work: ClaimedSlice) -> None:
    """Stop here when an exploration of a lower stage waits: first results before everything else."""
    if claims.claimable(work.row.target_id, work.workshop.reach()).filter(stage__lt=work.row.stage).exists():
        raise Yielding
