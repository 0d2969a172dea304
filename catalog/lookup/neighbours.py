"""Results of targets whose processor differs only in sizes, for a target that no worker explores for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import NamedTuple

from catalog import models
from catalog.best.served import Accepts, Hit, find_bests
from opatlas import identity
from opatlas.identity.place.kinds import CPU
from opatlas.identity.place.neighbours import (
    THREADS,
    Sizes,
    nearest_first,
    settings_there,
    sizes_that_differ,
)
from opatlas.load.manifest import BUILT_FOR_THREADS, KINDS

MOST_TARGETS = 4
"""How many targets are searched: the nearest."""


Place = tuple[identity.Target, identity.Setting]


class NeighbourHit(NamedTuple):
    """A best of another target: its times are that target's, whose key this is. ``differs`` includes the
    threads if they are not those asked for."""

    hit: Hit
    target: str
    differs: Sizes


def find_neighbours(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    scopes: Sequence[str],
    accepts: Accepts | None = None,
    own_defaults: bool = False,
) -> dict[str, NeighbourHit]:
    """By operator key, the result of the nearest target that differs from this one in cores and cache sizes
    alone, under the same setting; with ``own_defaults``, if that is this target's default, also under each
    neighbour's own default. Compiled code counts only if its manifest names its target, so that it can be
    checked."""
    if not keys or target.kind != CPU.name:
        return {}
    asked, wanted = identity.Target.from_json(target.description), _setting(setting)
    known = _places_with_bests(keys, target, scopes, None if own_defaults else setting)
    near_ones = nearest_first(asked, {near for near, _ in known})
    places = {
        near: [(near, own) for own in settings_there(asked, wanted, near) if (near, own) in known]
        for near in near_ones
    }
    found: dict[str, NeighbourHit] = {}
    for place in chain.from_iterable(list(filter(None, places.values()))[:MOST_TARGETS]):
        near, own = place
        missing = [key for key in keys if key not in found]
        loadable = _of_any_threads(accepts) if own.threads > wanted.threads else accepts
        hits = find_bests(missing, *known[place], scopes, loadable) if missing else {}
        made_there = {hit for hit in _made_for(near, hits.values()) if _pays(hit, own, wanted)}
        differs = {**(sizes_that_differ(asked, near) or {}), **_threads_that_differ(wanted, own)}
        found |= {
            key: NeighbourHit(hit._replace(from_neighbour=True), near.key, differs)
            for key, hit in hits.items()
            if hit in made_there
        }
    return found


def _setting(row: models.Setting) -> identity.Setting:
    return identity.Setting.from_json(row.description)


def _threads_that_differ(asked: identity.Setting, own: identity.Setting) -> Sizes:
    return {} if asked.threads == own.threads else {THREADS: (asked.threads, own.threads)}


def _pays(hit: Hit, own: identity.Setting, wanted: identity.Setting) -> bool:
    """Whether it is faster than the default even if that profits fully from further cores: compiled code runs
    on no more threads than it was built for, a library's call on all."""
    enough = own.threads >= wanted.threads
    return enough or hit.kind == "recipe" or hit.ratio_low * own.threads >= wanted.threads


def _of_any_threads(accepts: Accepts | None) -> Accepts:
    """But for packages, which run with as many threads as they were built for."""
    kinds = (accepts.kinds if accepts is not None else None) or frozenset(KINDS)
    return Accepts(kinds - {BUILT_FOR_THREADS}, accepts.versions if accepts is not None else None)


def _places_with_bests(
    keys: Sequence[str], target: models.Target, scopes: Sequence[str], only: models.Setting | None
) -> dict[Place, tuple[models.Target, models.Setting]]:
    """Where any of these is known, on processors of this kind; ``only`` under that setting."""
    bests = models.Best.objects.filter(operator__key__in=keys, scope__in=scopes, target__arch=target.arch)
    bests = bests.filter(target__kind=target.kind).exclude(target=target.pk)
    pairs = set((bests if only is None else bests.filter(setting=only)).values_list("target", "setting"))
    targets = models.Target.objects.in_bulk({one for one, _ in pairs})
    settings = models.Setting.objects.in_bulk({one for _, one in pairs})
    rows = [(targets[target_id], settings[setting_id]) for target_id, setting_id in pairs]
    return {(identity.Target.from_json(one.description), _setting(own)): (one, own) for one, own in rows}


def _made_for(target: identity.Target, hits: Collection[Hit]) -> set[Hit]:
    """Calls of libraries, and code whose manifest says that it was compiled for this target."""
    compiled = [hit.artifact_sha256 for hit in hits if hit.kind != "recipe"]
    rows = models.Artifact.objects.filter(sha256__in=compiled) if compiled else ()
    made = {row.sha256: (row.manifest.get("provenance") or {}).get("target") for row in rows}
    theirs = {sha256 for sha256, named in made.items() if named == target.to_json()}
    return {hit for hit in hits if hit.kind == "recipe" or hit.artifact_sha256 in theirs}
