"""Tuning: slices of search by the routes that can, each at most 20 s, resumable on this machine."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from django.db.models import F
from django.db.models.functions import Now

from tuning.conf import conf
from tuning.explore import NothingWorked, default_of, try_candidates
from tuning.measure.outcome import Outcome, Status
from tuning.models import Stage, State, Trial
from tuning.routes.base import Candidate, Route, Tunable
from tuning.shop import Attempt, Slice

MOST_MEASURED = 3  # candidates of one slice that are measured: the search has ranked them by its own timing
WORTH_LEFT = 0.7  # of an exploration's worth after a slice, so that equals take turns
_FEW = 3


def tune(work: Slice) -> dict[str, Any]:
    """One slice: search, then build, check and time the best of what was found."""
    if not conf().tuning:
        return _done(work, "Tuning is switched off.")
    routes = [route for route in work.shop.routes if isinstance(route, Tunable) and not work.supports(route)]
    if not routes:
        return _done(work, "No route on this worker can tune it.")
    route = routes[work.row.tuning_slices % len(routes)]
    began = time.monotonic()
    work.doing(f"{route.name}: tuning, slice {work.row.tuning_slices + 1} of {work.row.max_tuning_slices}")
    folder = state_folder(work, route)
    found = work.shop.laboratory.tune(route, work.operator, work.setting, folder, conf().tune_slice_s)
    if isinstance(found, Outcome):
        work.keep(
            Attempt(route, Candidate(route.name, {"slice": work.row.tuning_slices}, "search"), began=began),
            found,
        )
    else:
        _measure(work, route, found)
    slices = work.row.tuning_slices + 1
    if slices >= work.row.max_tuning_slices:
        return _done(work, "")
    return {"state": State.QUEUED, "tuning_slices": slices, "worth": F("worth") * WORTH_LEFT, "error": ""}


def state_folder(work: Slice, route: Route) -> Path:
    """Where a route keeps what it learnt about an operator: on this worker's disk, across restarts."""
    place = f"{work.row.operator.key}-{work.row.setting.key}".replace(":", "_")
    folder = work.shop.home / "tuning" / place / route.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _done(work: Slice, reason: str) -> dict[str, Any]:
    slices = work.row.tuning_slices + (0 if reason else 1)
    return {
        "state": State.DONE, "tuning_slices": slices, "reason": reason, "finished_at": Now(), "error": "",
    }  # fmt: skip


def _measure(work: Slice, route: Route, found: list[Candidate]) -> None:
    attempts = [Attempt(route, candidate) for candidate in found]
    new = [attempt for attempt in attempts if attempt.digest not in work.tried][:MOST_MEASURED]
    if not new:
        return
    default_route, default = default_of(work)
    built = work.build(default_route, default)
    if isinstance(built, Outcome):
        raise NothingWorked(f"The default could not be built again: {built.status} ({built.detail})")
    with work.bench(built) as bench:
        if not bench.default.ok:
            raise NothingWorked(f"The default failed: {bench.default.status} ({bench.default.detail})")
        try_candidates(work, bench, new, Attempt(default_route, default).digest)


def tuning_gain(op_type: str) -> float | None:
    """Mean share of the time that tuning has saved on this type beyond its contest; None: unknown yet."""
    recent = (
        Trial.objects.filter(exploration__operator__op_type=op_type, status=Status.OK)
        .order_by("-pk")
        .values_list("exploration_id", "stage", "ratio_to_default")[:500]
    )
    best: dict[int, dict[bool, float]] = defaultdict(dict)
    for exploration, stage, ratio in recent:
        tuned = stage == Stage.TUNE
        best[exploration][tuned] = max(ratio or 0.0, best[exploration].get(tuned, 0.0))
    savings = [
        max(0.0, 1 - ratios[False] / ratios[True])
        for ratios in best.values()
        if ratios.get(True) and ratios.get(False)
    ]
    return sum(savings) / len(savings) if len(savings) >= _FEW else None
