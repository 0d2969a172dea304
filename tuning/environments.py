"""Environments: the versions behind a route's results, and which of them counts on a target.

Each (target, route) has one declared environment; only its evidence moves a best. The first that a worker
brings is declared. Another is declared by people, or by the service once no live worker has brought the
declared one for ``conf().declare_after_s``: a fleet that is upgraded machine by machine keeps its bests still
until the last old one has gone, and a machine that was upgraded as a whole needs nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.db.models import Q

from catalog.models import DeclaredEnvironment, Environment
from opatlas.identity.operator import canonical_json
from tuning.models import Revalidated, Revalidation, Verdict
from tuning.promote import live_workers


def digest_of(versions: Mapping[str, str]) -> str:
    """How an environment is named: as ``catalog.services.register_environment`` does."""
    return hashlib.sha256(canonical_json(dict(versions))).hexdigest()


def brought(routes: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Route → digest of the environment that a worker (its row's ``routes``) brings; what it lacks aside."""
    return {
        name: digest_of(facts.get("versions", {})) for name, facts in routes.items() if facts.get("available")
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
    waiting = Revalidated.objects.filter(verdict=Verdict.WAITING, revalidation__target_id=target_id)
    able = Q()
    if unable:
        able = ~Q(pk__in=waiting.filter(revalidation__in=unable).values("exploration"))
    others = _differing(target_id, mine)
    if others and any(
        row.name != worker and not (others.keys() - _agreeing(brought(row.routes), others).keys())
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


def _agreeing(theirs: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    return {route: digest for route, digest in declared.items() if theirs.get(route) == digest}
