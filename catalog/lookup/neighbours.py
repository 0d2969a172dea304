"""What is known where the processor is the same but for its sizes, for a target that nobody explores for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from catalog import models
from catalog.best.served import Accepts, Hit, find_bests
from opatlas import identity
from opatlas.identity.place.kinds import CPU
from opatlas.identity.place.neighbours import Sizes, nearest_first, sizes_that_differ

MOST_TARGETS = 4
"""That are looked into: the nearest."""


class NeighbourHit(NamedTuple):
    """A best of another target: its times are that target's, whose key this is."""

    hit: Hit
    target: str
    differs: Sizes


def find_neighbours(
    keys: Sequence[str],
    target: models.Target,
    setting: models.Setting,
    scopes: Sequence[str],
    accepts: Accepts | None = None,
) -> dict[str, NeighbourHit]:
    """By operator key, what the nearest target has that differs from this one in cores and cache sizes
    alone, under the very same setting. What was compiled counts only where its manifest says for which
    target: else nobody could check it."""
    if not keys or target.kind != CPU.name:
        return {}
    asked = identity.Target.from_json(target.description)
    known = _targets_with_bests(keys, target, setting, scopes)
    found: dict[str, NeighbourHit] = {}
    for near in nearest_first(asked, known)[:MOST_TARGETS]:
        missing = [key for key in keys if key not in found]
        hits = find_bests(missing, known[near], setting, scopes, accepts) if missing else {}
        made_there = _made_for(near, hits.values())
        differs = sizes_that_differ(asked, near) or {}
        found |= {
            key: NeighbourHit(hit._replace(from_neighbour=True), near.key, differs)
            for key, hit in hits.items()
            if hit in made_there
        }
    return found


def _targets_with_bests(
    keys: Sequence[str], target: models.Target, setting: models.Setting, scopes: Sequence[str]
) -> dict[identity.Target, models.Target]:
    bests = models.Best.objects.filter(
        operator__key__in=keys, setting=setting, scope__in=scopes, target__arch=target.arch
    )
    rows = models.Target.objects.filter(kind=target.kind, pk__in=bests.values("target")).exclude(pk=target.pk)
    return {identity.Target.from_json(row.description): row for row in rows}


def _made_for(target: identity.Target, hits: Collection[Hit]) -> set[Hit]:
    """Calls of libraries, and what says itself that it was compiled for this target."""
    compiled = [hit.artifact_sha256 for hit in hits if hit.kind != "recipe"]
    rows = models.Artifact.objects.filter(sha256__in=compiled) if compiled else ()
    made = {row.sha256: (row.manifest.get("provenance") or {}).get("target") for row in rows}
    theirs = {sha256 for sha256, named in made.items() if named == target.to_json()}
    return {hit for hit in hits if hit.kind == "recipe" or hit.artifact_sha256 in theirs}
