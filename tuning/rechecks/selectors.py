"""What was reported as failing, and what proving it again has found, as a viewer may see it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Q

from catalog.models import Implementation
from catalog.viewing import Viewer
from tuning.models import FailureReport, Recheck, RecheckState
from tuning.rechecks.reporting import OPEN


@dataclass(frozen=True)
class ReportedRow:
    """One implementation. What a worker found is everybody's who sees it; reports are their organisation's:
    ``reports`` are those that the viewer may read, ``latest`` the last of them."""

    implementation: Implementation
    recheck: Recheck | None
    reports: int = 0
    latest: FailureReport | None = None

    @property
    def state(self) -> str:
        return self.recheck.state if self.recheck else ""

    @property
    def detail(self) -> str:
        """What proving it again found; empty while nobody has."""
        if self.recheck is None:
            return ""
        return self.recheck.detail or (
            "A worker found nothing wrong with it." if self.state == RecheckState.NOT_REPRODUCED else ""
        )

    @property
    def said(self) -> str:
        """The error of the latest report."""
        return f"{self.latest.error}: {self.latest.message}" if self.latest else ""


def reported(implementations: Collection[Implementation], viewer: Viewer) -> list[ReportedRow]:
    """Those of these that were reported, the latest first. Two statements."""
    asked = Recheck.objects.filter(implementation__in=implementations)
    rechecks = {row.implementation_id: row for row in asked}
    told: dict[int, list[FailureReport]] = {}
    reports = FailureReport.objects.filter(viewer.owned(), implementation__in=implementations)
    for report in reports.order_by("-last_at", "-pk"):
        told.setdefault(report.implementation_id, []).append(report)
    rows = [_row(one, rechecks.get(one.pk), told.get(one.pk, [])) for one in implementations]
    found = [row for row in rows if row.recheck is not None or row.reports]
    return sorted(found, key=_asked_at, reverse=True)


def _asked_at(row: ReportedRow) -> float:
    return row.recheck.asked_at.timestamp() if row.recheck else 0.0


def latest_rechecks(visible: Q, most: int) -> list[Recheck]:
    """Those that wait first, then the latest to be asked for. ``visible``: of their implementations."""
    rows = Recheck.objects.filter(visible).select_related("implementation__operator", "target")
    rows = rows.defer("implementation__source", "implementation__schedule", "implementation__operator__graph")
    waiting = list(rows.filter(state__in=OPEN).order_by("asked_at", "pk")[:most])
    return [*waiting, *rows.exclude(state__in=OPEN).order_by("-finished_at", "-pk")[: most - len(waiting)]]


def _row(one: Implementation, recheck: Recheck | None, told: list[FailureReport]) -> ReportedRow:
    return ReportedRow(one, recheck, sum(report.count for report in told), told[0] if told else None)
