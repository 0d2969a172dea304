"""One operator's statistics: reuse, its implementations compared, and whether more tuning would pay."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from django.urls import path
from rest_framework.request import Request

from catalog.api.describing import OPERATOR
from catalog.api.endpoint import RestView, operation
from catalog.api.shapes import shape
from catalog.errors import Unknown
from catalog.models import Operator, Setting, Target
from catalog.selectors import detail
from catalog.selectors.reuse import reuse
from catalog.viewing import Viewer
from opatlas.evidence import figures_of
from tuning.api.places import PLACE, place_of
from tuning.models import Exploration
from tuning.statistics import benefit, sides
from tuning.statistics.comparing import Comparison

_KEY = re.compile(r"o1:[0-9a-f]{64}")


@dataclass(frozen=True)
class ComparedImplementation:
    """An implementation and how it compares with the fastest known here."""

    implementation: int
    method: str
    route: str
    label: str
    rank: Annotated[int | None, "0: the fastest; null: not its route's best."]
    samples: int
    equal: Annotated[bool, "Not told apart from the fastest in the race that decided."]
    against_best: Comparison | None
    median_us: float | None = None
    spread_us: float | None = None
    default_us: float | None = None
    ratio_to_default: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


@dataclass(frozen=True)
class MethodPair:
    """Two methods' bests."""

    first: Annotated[int, "An implementation's number."]
    second: int
    comparison: Comparison
    sentence: str


@dataclass(frozen=True)
class OperatorStatistics:
    """One operator in one place; ``target`` is null where nothing is known of it anywhere."""

    operator: Operator
    target: Target | None
    setting: Setting | None
    jobs: int
    hits: int
    misses: int
    hit_rate: float | None
    saved_us: float
    implementations: Sequence[ComparedImplementation] = ()
    methods: Annotated[Sequence[MethodPair], "The best of each method against that of each other."] = ()
    benefit: benefit.Benefit | None = None


BenefitAnswer = shape(
    benefit.Benefit,
    "saved_us_per_day",
    "pays",
    "sentence",
    without=["best_us", "going_on"],
    next_gain="gain",
    call_rate="calls_per_day",
    next_payback_days="payback_days",
)


class OperatorStatisticsView(RestView):
    @operation(
        shape(OperatorStatistics, using=[BenefitAnswer]),
        name="operator_statistics",
        parameters=[OPERATOR, *PLACE],
    )
    def get(self, request: Request, key: str) -> OperatorStatistics:
        """One operator: reuse, implementations compared, and whether more tuning would pay.

        Of one place; where none is named, the one with the newest best."""
        row = Operator.objects.filter(key=key).first() if _KEY.fullmatch(key) else None
        if row is None:
            raise Unknown("There is no operator by this key.", where="key")
        at = place_of(request)
        known = detail.ShownOperator(row, self.viewer.shown())
        place = next((one for one in known.places if not at.value or one.value == at.value), None)
        if at.value and place is None:
            raise Unknown("Nothing is known of this operator there.", where="target")
        used = reuse(row, self.viewer)
        answer = OperatorStatistics(
            row,
            place.target if place else None,
            place.setting if place else None,
            jobs=used.job_count,
            hits=used.hits,
            misses=used.misses,
            hit_rate=used.hit_rate,
            saved_us=used.saved_us,
        )
        return _compared(answer, known, place, self.viewer) if place else answer


def _compared(
    answer: OperatorStatistics, known: detail.ShownOperator, place: detail.Place, viewer: Viewer
) -> OperatorStatistics:
    row = answer.operator
    made = known.implementations(place)
    against = sides.against_best(made)
    best = next((one for one in made if one.rank == 0 and one.measurement), None)
    explored = Exploration.objects.filter(viewer.shown(), place.filter, operator=row)
    exploration = explored.select_related("operator", "setting").first()
    worth = None
    if best is not None and best.measurement is not None and exploration is not None:
        rate = benefit.calls_per_day(row, viewer)
        done, endings = list(exploration.slices.all()), benefit.endings_of(exploration)
        worth = benefit.benefit(exploration, best.measurement.median_us, rate, done, endings)
    pairs = [
        MethodPair(one.first.implementation.pk, one.second.implementation.pk, one.comparison, one.sentence)
        for one in sides.side_by_side(made).pairs
    ]
    implementations = [_implementation(one, against) for one in made]
    return replace(answer, implementations=implementations, methods=pairs, benefit=worth)


def _implementation(
    one: detail.RankedImplementation, against: Mapping[int, Comparison]
) -> ComparedImplementation:
    made, measured = one.implementation, one.measurement
    return ComparedImplementation(
        implementation=made.pk,
        method=made.method,
        route=made.route,
        label=made.label,
        rank=one.rank,
        samples=one.samples,
        equal=one.equal,
        against_best=against.get(made.pk),
        **(figures_of(measured) if measured else {}),
    )


urlpatterns = [path("statistics/operators/<str:key>", OperatorStatisticsView.as_view())]
