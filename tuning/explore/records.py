"""Tuning records as rows: a search's results outlive the worker's disk and serve every worker.

Only explorations for everybody are kept here: an organisation's own operators teach nobody else, and their
sizes stay private.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from django.db.models import QuerySet

from catalog.models import SHARED
from catalog.registry import digest_of, read_graph
from tuning.explore.results import Tried
from tuning.explore.workshop import ClaimedSlice
from tuning.measure.outcome import Outcome, Status
from tuning.models import TuningRecord
from tuning.routes.base import Candidate, Learning, Route, SearchRecord
from tuning.routes.likeness import distance, family_of, features_of, sizes_of

logger = logging.getLogger(__name__)

KEPT = 8  # rows of one operator, target, setting and route: the best
NEIGHBOURS = 3
OF_NEIGHBOUR = 2  # records of each that a search starts from; a contest tries one
OWN_IN_CONTEST = 2
FURTHEST = 8.0  # in doublings (``likeness.distance``): beyond, little is alike but the code
_LOOKED_AT = 5_000  # rows of a family


def keep_records(work: ClaimedSlice, route: Route, found: list[SearchRecord]) -> int:
    """Keep the best of what a slice has learnt; returns how many rows there are. Raises StaleLease."""
    if not isinstance(route, Learning) or work.row.scope != SHARED:
        return 0
    row, version = work.row, route.record_version()[:80]
    key = {
        "operator_id": row.operator_id,
        "target_id": row.target_id,
        "setting_id": row.setting_id,
        "route": route.name,
    }
    new = [
        TuningRecord(
            **key,
            family=family_of(work.operator, work.setting),
            features=features_of(work.operator, work.setting),
            digest=digest_of(one.record),
            record=dict(one.record),
            time_us=one.time_us,
            version=version,
        )
        for one in sorted(found, key=lambda one: one.time_us)[:KEPT]
    ]
    with work.claim.writing():
        TuningRecord.objects.bulk_create(
            new,
            update_conflicts=True,
            unique_fields=["operator", "target", "setting", "route", "digest"],
            update_fields=["time_us", "version", "family", "features"],
        )
        rows = TuningRecord.objects.filter(**key)
        best = list(
            rows.filter(version=version).order_by("time_us", "pk").values_list("pk", flat=True)[:KEPT]
        )
        rows.exclude(pk__in=best).delete()
    return len(best)


def own_records(work: ClaimedSlice, route: Learning) -> list[SearchRecord]:
    """What is known of this very operator, on this target and in this setting; the best first."""
    rows = _of_route(work, route).filter(operator=work.row.operator_id, setting=work.row.setting_id)
    return [SearchRecord(row.record, row.time_us) for row in rows.order_by("time_us", "pk")[:KEPT]]


def _of_route(work: ClaimedSlice, route: Learning) -> QuerySet[TuningRecord]:
    """What the route in its present version knows on this target."""
    version = route.record_version()[:80]
    return TuningRecord.objects.filter(target=work.row.target_id, route=route.name, version=version)


def neighbours_records(
    work: ClaimedSlice, route: Learning, of_each: int = OF_NEIGHBOUR
) -> list[SearchRecord]:
    """The best records of the nearest operators of the same family, the nearest first.

    The same operator in another setting (threads, cold cache) is a neighbour too.
    """
    rows = _of_route(work, route).filter(family=family_of(work.operator, work.setting))
    me, here = (work.row.operator_id, work.row.setting_id), features_of(work.operator, work.setting)
    far: dict[tuple[int, int], float] = {}
    latest = rows.order_by("-pk").values_list("operator_id", "setting_id", "features")[:_LOOKED_AT]
    for operator, setting, features in latest:
        if (operator, setting) != me and (operator, setting) not in far:
            far[operator, setting] = distance(here, features)
    nearest = sorted((reach, key) for key, reach in far.items() if reach <= FURTHEST)[:NEIGHBOURS]
    found: list[SearchRecord] = []
    for _, (operator, setting) in nearest:
        best = rows.filter(operator_id=operator, setting_id=setting).select_related("operator")
        for row in best.order_by("time_us", "pk")[:of_each]:
            if (other := read_graph(row.operator.graph)) is not None:
                found.append(SearchRecord(row.record, row.time_us, sizes_of(other)))
    return found


def known_candidates(work: ClaimedSlice, route: Route) -> Iterator[Candidate]:
    """For a contest: what tuning found before, here and for neighbours, fitted to the operator."""
    if not isinstance(route, Learning):
        return
    records = [*own_records(work, route)[:OWN_IN_CONTEST], *neighbours_records(work, route, of_each=1)]
    if not records:
        return
    work.doing(f"{route.name}: fitting {len(records)} known schedules")
    folder = work.workdir / f"transfer-{route.name}"
    found = work.workshop.laboratory.transfer(route, work.operator, work.setting, records, folder)
    if isinstance(found, Outcome):
        attempt = Tried(route, Candidate(route.name, {"transfer": len(records)}, "transfer"))
        if attempt.digest not in work.tried:
            detail = f"Fitting known schedules: {found.detail}"
            work.keep(attempt, Outcome(Status(found.status), detail, log_tail=found.log_tail))
        return
    yield from found


def seed(work: ClaimedSlice, route: Route, folder: Path) -> None:
    """Lay this operator's and its neighbours' records where the next slice of search begins."""
    if isinstance(route, Learning):
        route.seed(folder, [*own_records(work, route), *neighbours_records(work, route)])
