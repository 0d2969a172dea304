"""Declaring an environment: by people, by a command, or by the service itself; and going back.

The bests of the route are served on, measured again in the background
(:mod:`tuning.environments.revalidation`), and replaced by what comes of it, better or worse. What had been
measured in the environment before is seated at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from catalog.best.seats import ScopedPlace
from catalog.best.withdrawing import restore_places
from catalog.models import (
    SAME_KEY,
    Best,
    DeclaredEnvironment,
    Environment,
    Implementation,
    Measurement,
    Purpose,
    Target,
)
from catalog.registry import register_environment
from catalog.steps import each
from opatlas.errors import CallerError
from tuning.conf import conf
from tuning.environments.known import brought
from tuning.models import Exploration, Revalidated, Revalidation, RevalidationVerdict, Worker
from tuning.queue.promote import live_workers
from tuning.queue.rounds import ask_for_round, exploration_of

logger = logging.getLogger(__name__)


class NotDeclared(CallerError):
    """An environment that cannot be declared, with the reason."""

    status = 400


def declare(target: Target, route: str, environment: Environment, asked_by: str) -> Revalidation | None:
    """Let this environment's evidence move the bests of a route on a target from now on.

    What was measured in it before is seated at once: declaring the previous one rolls back without a
    measurement. The bests that were never measured in it are served on until they are, in the background
    (:mod:`tuning.environments.revalidation`). Where the route makes the default, every ratio is taken
    against it, so all routes are measured again. None: it is declared already. Raises :class:`NotDeclared`.
    """
    _check_known(target, route)
    with transaction.atomic():
        held = DeclaredEnvironment.objects.select_for_update().filter(target=target, route=route).first()
        before = held.environment if held else None
        if before is not None and before.pk == environment.pk:
            return None
        DeclaredEnvironment.objects.update_or_create(
            target=target, route=route, defaults={"environment": environment}
        )
        _supersede(target, route)
        row = Revalidation.objects.create(
            target=target, route=route, before=before, after=environment, asked_by=asked_by[:200]
        )
        bests = list(
            Best.objects.filter(_touched(target, route), target=target).select_related("implementation")
        )
        waiting = _enter(row, bests)
    why = f"{route}: declared {environment}" if before is None else f"{route}: {before} became {environment}"
    _seat_what_is_known(row, why)
    _ask(row, waiting, why)
    logger.info("%s on %s, by %s: %d bests to measure again.", why, target, asked_by, len(waiting))
    return row


def declare_known(target: Target, route: str, environment: str, asked_by: str) -> Revalidation | None:
    """Declare an environment by its digest; raises :class:`NotDeclared` for one that was never seen."""
    _check_known(target, route)
    row = Environment.objects.filter(digest=environment).first()
    if row is None:
        for worker in live_workers(target.pk):
            if brought(worker.routes).get(route) == environment:
                row = register_environment(worker.routes[route].get("versions", {}))
    if row is None:
        raise NotDeclared(f"No worker brings the environment {environment[:12]!r}, and no result has it.")
    return declare(target, route, row, asked_by)


def declare_worker(worker: Worker, asked_by: str, only: Sequence[str] | None = None) -> list[Revalidation]:
    """Declare all that a worker brings (of these routes); what makes the default last, so that it takes the
    others with it. Raises :class:`NotDeclared` where it lacks a route that was named."""
    lacking = [name for name in only or () if not worker.routes.get(name, {}).get("available")]
    if lacking:
        raise NotDeclared(f"The worker {worker.name} does not bring {', '.join(lacking)}.")
    found = []
    for route, facts in sorted(worker.routes.items(), key=lambda one: _is_default(worker.target, one[0])):
        if facts.get("available") and (only is None or route in only):
            row = declare(worker.target, route, register_environment(facts.get("versions", {})), asked_by)
            found += [row] if row else []
    return found


def _check_known(target: Target, route: str) -> None:
    known = Implementation.objects.filter(target=target, route=route).exists()
    if not known and not any(route in worker.routes for worker in live_workers(target.pk)):
        raise NotDeclared(f"Nothing is known of a route {route!r} on {target}: neither results nor a worker.")


def _defaults(target: Target, route: str) -> QuerySet[Measurement]:
    """Where the route made the default."""
    made = {"implementation__target": target, "implementation__route": route}
    return Measurement.objects.filter(**made, purpose=Purpose.DEFAULT)


def _is_default(target: Target, route: str) -> bool:
    return _defaults(target, route).exists()


def _touched(target: Target, route: str) -> Q:
    """Bests that a change of this route's environment concerns."""
    return Q(route=route) | Q(operator__in=_defaults(target, route).values("implementation__operator"))


def _supersede(target: Target, route: str) -> None:
    """Whatever was being measured again for another environment no longer matters."""
    open_ones = Revalidation.objects.filter(target=target, route=route, finished_at=None)
    Revalidated.objects.filter(revalidation__in=open_ones, verdict=RevalidationVerdict.WAITING).delete()
    open_ones.update(finished_at=Now(), superseded=True)


def _enter(row: Revalidation, bests: list[Best]) -> list[Revalidated]:
    """A row for every best that is concerned: restored where it was measured in the new environment.

    Going back to an environment that was declared before, whatever the route had there will do.
    """
    made = []
    known = _known_in(row)
    if _was_declared(row):
        known |= {key[:-1] for key in known}
    for best in bests:
        was = best.implementation
        seat = (best.operator_id, best.setting_id, best.scope, best.route)
        is_known = seat in known or (*seat, was.candidate_sha256) in known
        made.append(
            Revalidated(
                revalidation=row,
                exploration=exploration_of(best, best.target.capability, best.measured_at),
                route=best.route,
                implementation=was,
                ratio_before=best.ratio_to_default,
                ratio_low_before=best.ratio_low,
                ratio_high_before=best.ratio_high,
                verdict=RevalidationVerdict.RESTORED if is_known else RevalidationVerdict.WAITING,
            )
        )
    Revalidated.objects.bulk_create(made)
    return [one for one in made if one.verdict == RevalidationVerdict.WAITING]


def _was_declared(row: Revalidation) -> bool:
    earlier = Revalidation.objects.filter(target=row.target, route=row.route, pk__lt=row.pk)
    return earlier.filter(Q(before=row.after) | Q(after=row.after)).exists()


def _known_in(row: Revalidation) -> set[tuple[Any, ...]]:
    """Candidates with evidence that holds in the new environments: declared ones of route and default."""
    declared = dict(
        DeclaredEnvironment.objects.filter(target=row.target).values_list("route", "environment_id")
    )
    columns = ("operator_id", "setting_id", "scope", "route", "candidate_sha256", "environment_id")
    found = Measurement.objects.filter(
        implementation__target=row.target,
        implementation__revoked_at=None,
        implementation__failed_at=None,
    ).values_list(*(f"implementation__{name}" for name in columns), "default_route", "default_environment_id")
    return {
        tuple(key)
        for *key, environment, default, against in found.distinct()
        if declared.get(key[3], environment) == environment
        and against in (None, declared.get(default, against))
    }


def _seat_what_is_known(row: Revalidation, why: str) -> None:
    """Seat the evidence that holds now, but for what must be measured: that is served on as it is."""
    counts = Q(route=row.route, environment=row.after)
    if _is_default(row.target, row.route):  # what was measured against it, by whatever route, holds as well
        for declared in DeclaredEnvironment.objects.filter(target=row.target):
            counts |= Q(route=declared.route, environment=declared.environment_id)
    with_evidence = Implementation.objects.filter(counts, target=row.target, revoked_at=None, failed_at=None)
    columns = (*SAME_KEY, "owner_id", "route")
    seats = {(ScopedPlace(*place), route) for *place, route in with_evidence.values_list(*columns)}
    entered = list(row.bests.select_related("exploration"))
    for one in entered:
        seat = (ScopedPlace.of(one.exploration), one.route)
        (seats.discard if one.verdict == RevalidationVerdict.WAITING else seats.add)(seat)
    for place, route in sorted(seats, key=lambda seat: (seat[0].operator_id, seat[0].setting_id, seat[1])):
        restore_places([place], {route}, why, drop=False)
    for one in entered:
        if one.verdict == RevalidationVerdict.RESTORED:
            best = Best.objects.filter(**one.exploration.same_key, route=one.route).first()
            one.ratio_after = best.ratio_to_default if best else None
            one.save(update_fields=["ratio_after"])


def _ask(row: Revalidation, waiting: list[Revalidated], why: str) -> None:
    """Further rounds for what must be measured, each restricted to the routes concerned."""
    routes: dict[int, set[str]] = {}
    for one in waiting:
        routes.setdefault(one.exploration_id, set()).add(one.route)
    groups: dict[frozenset[str], list[int]] = {}
    for pk, names in routes.items():
        groups.setdefault(frozenset(names), []).append(pk)
    for together, pks in groups.items():
        ask_for_round(Exploration.objects.filter(pk__in=pks), together, why)


_missing_since: dict[tuple[int, str], float] = {}


def follow_workers() -> int:
    """Declare what live workers bring where nobody has brought the declared environment for a while.

    Called now and then by the leader, which remembers since when; a new leader begins to count anew. Returns
    how many were declared.
    """
    after_s = conf().declare_after_s
    if after_s < 0:
        return 0
    served = Worker.objects.filter(stopped_at=None).values_list("target", flat=True).distinct()
    return sum(each("following a target's workers", list(served), partial(_follow, after_s)))


def _follow(after_s: float, target_id: int) -> int:
    now, done = time.monotonic(), 0
    alive = [brought(worker.routes) for worker in live_workers(target_id)]
    found = DeclaredEnvironment.objects.select_related("target", "environment")
    for row in found.filter(target=target_id):
        offers = Counter(theirs[row.route] for theirs in alive if row.route in theirs)
        key = (target_id, row.route)
        if not offers or row.environment.digest in offers:
            _missing_since.pop(key, None)
            continue
        if now - _missing_since.setdefault(key, now) < after_s:
            continue
        _missing_since.pop(key, None)
        most_brought = min(offers, key=lambda digest: (-offers[digest], digest))
        why = "the service: no live worker brings the one before"
        with suppress(NotDeclared):  # it went between the two looks
            done += declare_known(row.target, row.route, most_brought, why) is not None
    return done
