"""Targets that differ in size alone: the same processor with other caches, or another number of cores. PURE.

Code that was built for one runs on the other, since their features are the same; but its times do not hold
there, and something else may be faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from opatlas.identity.place.kinds import CPU
from opatlas.identity.place.setting import Setting, default_setting
from opatlas.identity.place.target import Target

ABSENT = 8.0
"""Doublings between a cache and none (or one that nobody told of): further than those that are known."""

Sizes = Mapping[str, tuple[int | None, int | None]]
"""Field of a target's description (``cores``, ``cache_bytes.l2``) → what the one has, and the other."""

THREADS = "setting.threads"
"""What else may differ, beside the fields of a target: each machine's default setting takes all its cores."""


def sizes_that_differ(asked: Target, known: Target) -> Sizes | None:
    """In which sizes two processors differ; None where they differ in anything else, or in nothing."""
    if asked.kind != CPU.name or asked == known:
        return None
    if replace(asked, cores=0, cache_bytes=()) != replace(known, cores=0, cache_bytes=()):
        return None
    ours, theirs = _sizes(asked), _sizes(known)
    names = dict.fromkeys((*ours, *theirs))
    return {name: (ours.get(name), theirs.get(name)) for name in names if ours.get(name) != theirs.get(name)}


def nearest_first(asked: Target, known: Iterable[Target]) -> list[Target]:
    """Those that differ from ``asked`` in sizes alone, the closest first; of two as close, by their keys."""
    found = [(sizes, one) for one in known if (sizes := sizes_that_differ(asked, one)) is not None]
    return [one for _, one in sorted(found, key=lambda pair: (_doublings(pair[0]), pair[1].key))]


def settings_there(asked: Target, setting: Setting, known: Target) -> list[Setting]:
    """Under which settings a neighbour's entries are looked for: the very same one first; and where the one
    asked for is its target's default, the neighbour's own default."""
    own = default_setting(known)
    return [setting, own] if setting == default_setting(asked) != own else [setting]


def _sizes(target: Target) -> dict[str, int]:
    return {"cores": target.cores, **{f"cache_bytes.{level}": size for level, size in target.cache_bytes}}


def _doublings(sizes: Sizes) -> float:
    return sum(
        abs(math.log2(ours / theirs)) if ours and theirs else ABSENT for ours, theirs in sizes.values()
    )
