"""Damaged artifacts are built again from their candidates, by a round of their routes that measures them too.

Where the build is bit-identical the artifact is whole again, at its old address (``catalog.best.artifacts``
mends it when it is stored); else the implementation has another artifact from then on.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet

from catalog.best.damage import asked_for, give_up
from catalog.models import SAME_KEY, Artifact, Implementation
from catalog.steps import each, held_back
from tuning.environments.revalidation import ENDED
from tuning.models import Exploration
from tuning.queue.rounds import ask_for_round, exploration_of
from tuning.routes.base import Candidate

_MOST = 50
ASKING, SETTLING = "asking for an artifact's rebuild", "settling an artifact's rebuild"


def damaged_candidates(row: Exploration, route: str) -> Iterator[Candidate]:
    """What a round must build again: tuned ones are not among what the route itself offers."""
    for made in _live().filter(**row.same_key, route=route):
        yield Candidate(route, made.candidate, made.label)


def ask_for_rebuilds() -> int:
    """A round for each place of what was found damaged since; returns how many artifacts."""
    found = Artifact.objects.filter(damaged_at__isnull=False, rebuild_asked_at=None)
    found = found.exclude(pk__in=held_back(ASKING))
    return len(each(ASKING, found[:_MOST], _ask_for_rebuild))


def _ask_for_rebuild(artifact: Artifact) -> None:
    for made in _live().filter(artifact=artifact).select_related("artifact", "target"):
        row = exploration_of(made, made.target.capability, made.created_at)
        ask_for_round(Exploration.objects.filter(pk=row.pk), [made.route], made.artifact.damaged_reason)
    asked_for([artifact])


def settle_rebuilds() -> int:
    """Give up on what its round has not made whole again; returns how many artifacts."""
    asked = Artifact.objects.filter(damaged_at__isnull=False, rebuild_asked_at__isnull=False)
    live = asked.filter(pk__in=_live().values("artifact")).exclude(pk__in=held_back(SETTLING))
    return sum(each(SETTLING, live.order_by("rebuild_asked_at")[:_MOST], _settle_rebuild))


def _settle_rebuild(artifact: Artifact) -> bool:
    ended = not any(map(_is_open, _live().filter(artifact=artifact)))
    if ended:
        give_up(artifact)
    return ended


def _live() -> QuerySet[Implementation]:
    """Of damaged artifacts, what would be served were it whole."""
    return Implementation.objects.filter(artifact__damaged_at__isnull=False, revoked_at=None, failed_at=None)


def _is_open(made: Implementation) -> bool:
    """Whether its exploration has yet to end, or to begin the round that it was asked for."""
    rows = Exploration.objects.filter(**{name: getattr(made, name) for name in SAME_KEY})
    return rows.exclude(state__in=ENDED, pending_routes="").exists()
