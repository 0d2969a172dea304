"""Environments: the versions behind a route's results, and which of them counts on a target.

Each (target, route) has one declared environment; only its evidence moves a best. The first that a worker
brings is declared. Another is declared by people, or by the service once no live worker has brought the
declared one for ``conf().declare_after_s``: a fleet that is upgraded machine by machine keeps its bests still
until the last old one has gone, and a machine that was upgraded as a whole needs nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from catalog.models import DeclaredEnvironment, Environment, Target
from catalog.registry import digest_of
from tuning.models import Revalidated, Revalidation, RevalidationVerdict, Worker
from tuning.queue.promote import live_workers


def brought(routes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Route → digest of the environment that a worker (its row's ``routes``) brings; what it lacks aside, and
    what a worker of another version writes that cannot be read here."""
    return {
        name: digest_of(versions)
        for name, facts in (routes.items() if isinstance(routes, Mapping) else ())
        if isinstance(facts, Mapping)
        and facts.get("available")
        and isinstance(versions := facts.get("versions", {}), Mapping)
    }


def declared_for(target_id: int, route: str, mine: Environment) -> Environment:
    """The environment whose evidence counts for this route and target: the first that a worker brings."""
    row, _ = DeclaredEnvironment.objects.select_related("environment").get_or_create(
        target_id=target_id, route=route, defaults={"environment": mine}
    )
    return row.environment


def reach(worker: str, target_id: int, mine: Mapping[str, str]) -> Q:
    """What a worker that brings these environments may claim: what it can say something valid about.

    Bests are measured again only by who brings the environment that they are measured for. A worker with
    another version than the declared one leaves everything else to workers with the declared one, while such
    live: its evidence would be kept, and move nothing.
    """
    open_ones = Revalidation.objects.filter(target_id=target_id, finished_at=None)
    unable = [
        pk
        for pk, route, digest in open_ones.values_list("pk", "route", "after__digest")
        if mine.get(route) != digest
    ]
    waiting = Revalidated.objects.filter(
        verdict=RevalidationVerdict.WAITING, revalidation__target_id=target_id
    )
    able = Q()
    if unable:
        able = ~Q(pk__in=waiting.filter(revalidation__in=unable).values("exploration"))
    others = _differing(target_id, mine)
    if others and any(
        row.name != worker and others.items() <= brought(row.routes).items()
        for row in live_workers(target_id)
    ):
        able &= Q(pk__in=waiting.exclude(revalidation__in=unable).values("exploration"))
    return able


def _differing(target_id: int, mine: Mapping[str, str]) -> dict[str, str]:
    """Route → declared digest, where another is brought."""
    declared = DeclaredEnvironment.objects.filter(target_id=target_id, route__in=list(mine))
    return {
        route: digest
        for route, digest in declared.values_list("route", "environment__digest")
        if mine[route] != digest
    }


_LOOKED_AT = 500  # declarations: those before can no longer be gone back to by a button


@dataclass(frozen=True)
class OfferedEnvironment:
    """An environment that workers bring, or that was declared before."""

    environment: str  # its digest
    versions: Mapping[str, str]
    workers: tuple[str, ...]  # live ones that bring it
    declared: bool
    difference: str  # from the declared one: "apache-tvm 0.28 against 0.27"

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items())) or "none"


@dataclass(frozen=True)
class RouteEnvironments:
    """One route on one target: what is declared, and what else could be; the declared one first."""

    target: Target
    route: str
    offers: tuple[OfferedEnvironment, ...]
    open: Revalidation | None

    @property
    def declared(self) -> OfferedEnvironment | None:
        return next((offer for offer in self.offers if offer.declared), None)

    @property
    def others(self) -> list[OfferedEnvironment]:
        return [offer for offer in self.offers if not offer.declared]


def route_environments() -> list[RouteEnvironments]:
    """Every (target, route) with a declared environment, and what its live workers bring."""
    declared = DeclaredEnvironment.objects.select_related("target", "environment")
    rows = list(declared.order_by("target__capability", "target", "route"))
    workers = {number: live_workers(number) for number in {row.target_id for row in rows}}
    past: dict[tuple[int, str], dict[str, Mapping[str, str]]] = defaultdict(dict)
    running: dict[tuple[int, str], Revalidation] = {}
    latest = Revalidation.objects.select_related("before", "after").order_by("-pk")[:_LOOKED_AT]
    for one in latest:
        for environment in filter(None, (one.before, one.after)):
            past[one.target_id, one.route][environment.digest] = environment.versions
        if one.finished_at is None:
            running[one.target_id, one.route] = one
    return [
        RouteEnvironments(
            row.target,
            row.route,
            _offers(row, workers[row.target_id], past[row.target_id, row.route]),
            running.get((row.target_id, row.route)),
        )
        for row in rows
    ]


def _offers(
    row: DeclaredEnvironment, workers: list[Worker], past: Mapping[str, Mapping[str, str]]
) -> tuple[OfferedEnvironment, ...]:
    versions = {**past, row.environment.digest: row.environment.versions}
    bringers: dict[str, list[str]] = defaultdict(list)
    for worker in workers:
        digest = brought(worker.routes).get(row.route)
        if digest is not None:
            versions[digest] = worker.routes[row.route].get("versions", {})
            bringers[digest].append(worker.name)
    offers = [
        OfferedEnvironment(
            environment=digest,
            versions=found,
            workers=tuple(sorted(bringers[digest])),
            declared=digest == row.environment.digest,
            difference=difference(found, row.environment.versions),
        )
        for digest, found in versions.items()
    ]
    return tuple(sorted(offers, key=lambda one: (not one.declared, -len(one.workers), one.environment)))


def difference(mine: Mapping[str, str], declared: Mapping[str, str]) -> str:
    """What sets two environments apart, in words; empty where nothing does."""
    names = sorted(set(mine) | set(declared))
    return ", ".join(
        f"{name} {mine.get(name, 'missing')} against {declared.get(name, 'none')}"
        for name in names
        if mine.get(name) != declared.get(name)
    )


def undeclared(live: Collection[Worker]) -> dict[tuple[str, str], str]:
    """(worker, route) → how what one of these brings differs from what is declared. One statement."""
    rows = DeclaredEnvironment.objects.filter(target__in={one.target_id for one in live})
    declared = {
        (target_id, route): (digest, versions)
        for target_id, route, digest, versions in rows.values_list(
            "target_id", "route", "environment__digest", "environment__versions"
        )
    }
    found = {}
    for worker in live:
        for route, digest in brought(worker.routes).items():
            wanted, versions = declared.get((worker.target_id, route), (digest, {}))
            if digest != wanted:
                mine = worker.routes[route].get("versions", {})
                found[worker.name, route] = difference(mine, versions)
    return found
