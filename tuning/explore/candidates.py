"""The candidates of a slice: a route's, the default, and when to make room for more urgent work."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db.models import Q

from opatlas.errors import OpatlasError
from tuning.conf import conf
from tuning.environments.rebuilding import damaged_candidates
from tuning.environments.revalidation import held_candidates
from tuning.explore.records import known_candidates
from tuning.explore.results import Tried
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.laboratory import Bench
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage
from tuning.queue.clock import DATABASE_GONE
from tuning.queue.held import StaleLease, Stopping
from tuning.queue.shares import goes_before
from tuning.routes.base import Budget, Candidate, Route

logger = logging.getLogger(__name__)


class NothingWorked(OpatlasError):
    """Every default failed here and now; it may work at the next try."""


class Yielding(Exception):
    """Something more urgent waits: this slice returns its exploration and goes on later."""


@contextmanager
def bench_of_default(work: ClaimedSlice) -> Iterator[tuple[Bench, str]]:
    """A bench on which candidates are timed against the default, and the default's digest."""
    given = work.known_default()
    if given is None:
        raise NothingWorked("This worker does not have the route that made the default.")
    built = work.build(*given)
    if isinstance(built, Outcome):
        raise NothingWorked(f"The default could not be built again: {built.said}.")
    with work.bench(built) as bench:
        if not bench.default.ok:
            raise NothingWorked(f"The default failed: {bench.default.said}.")
        yield bench, Tried(*given).digest


def candidates_of(work: ClaimedSlice, route: Route) -> Iterator[Candidate]:
    """A route's candidates; an error of the route is kept as a trial, and the other routes go on."""
    budget = Budget(seconds=conf().candidates_s)
    try:
        if work.row.stage == Stage.CONTEST:
            yield from held_candidates(work.row, route.name)
            yield from damaged_candidates(work.row, route.name)
            yield from (one for one in work.favourites if one.route == route.name)
            yield from known_candidates(work, route)
        yield from route.candidates(work.operator, work.workshop.target, work.setting, budget)
    except (*DATABASE_GONE, StaleLease, Stopping, Yielding):
        raise
    except Exception as error:
        logger.exception("Route %s broke while naming candidates.", route.name)
        work.keep(Tried(route, None), Outcome(Status.BUILD_FAILED, f"It named no candidates: {error!r}"))


def gives_way(work: ClaimedSlice, rest: float) -> bool:
    """Whether a contest has tried enough for now: others wait for their opening, or are worth more than its
    rest, which is this share of its worth."""
    row = work.row
    if row.stage != Stage.CONTEST or row.routes:
        return False
    waiting = goes_before(row, work.workshop.reach()).filter(stage=row.stage)
    more = Q(worth__gt=rest * row.worth) | Q(opened=False)
    return waiting.filter(more, priority__lte=row.priority).exists()


def make_room(work: ClaimedSlice) -> None:
    """Stop here if an exploration of a lower stage waits, of the same organisation or of another whose turn
    it is: first results come before everything else."""
    if goes_before(work.row, work.workshop.reach()).filter(stage__lt=work.row.stage).exists():
        raise Yielding
