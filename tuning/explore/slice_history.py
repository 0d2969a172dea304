"""Slices of tuning as rows: the history behind expectations, and how accurate those were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Q

from catalog.models import Best, Measurement
from tuning.explore.worth import (
    Accuracy,
    DoneSlice,
    Estimator,
    SliceTraits,
    accuracy,
    family_of_slice,
    room_of,
)
from tuning.models import Exploration, TuningSlice

_LATEST = 2_000  # slices: what is learnt from, and judged


def estimator() -> Estimator:
    """Expectations from the latest slices."""
    rows = TuningSlice.objects.order_by("-pk").values_list(
        "exploration_id", "route", "family", "gained", "before_us", "exploration__operator__op_type",
        "exploration__operator__flops", "exploration__operator__bytes_moved",
        "exploration__setting__description",
    )[:_LATEST]  # fmt: skip
    counted: dict[tuple[int, str], int] = defaultdict(int)
    history = []
    for exploration, route, family, gained, before_us, op_type, flops, moved, setting in reversed(rows):
        number = counted[exploration, route]
        counted[exploration, route] += 1
        room = room_of(before_us, flops, moved, _threads(setting)) if before_us else 1.0
        history.append(DoneSlice(SliceTraits(exploration, route, op_type, family, number, room), gained))
    return Estimator(history)


def about_next(row: Exploration, route: str, best_us: float) -> SliceTraits:
    """The next slice of a route on an exploration (operator and setting loaded)."""
    return about_slice(row, route, best_us, row.slices.filter(route=route).count())


def about_slice(row: Exploration, route: str, best_us: float, done: int) -> SliceTraits:
    """The same if it is known how many slices the route had there."""
    operator = row.operator
    room = room_of(best_us, operator.flops, operator.bytes_moved, _threads(row.setting.description))
    return SliceTraits(
        row.pk, route, operator.op_type, family_of_slice(operator.op_type, best_us), done, room
    )


def gained(before: Best | None, after: Best | None) -> float:
    """The share by which the fastest known time has fallen; 0 if it has not. By ratios to the default, since
    the machine's speed varies between two moments; the former winner's is its latest, timed in turns with its
    successor."""
    if before is None or after is None or before.implementation_id == after.implementation_id:
        return 0.0
    latest = Measurement.objects.filter(implementation_id=before.implementation_id).order_by("-pk")
    ratio = latest.values_list("ratio_to_default", flat=True).first() or before.ratio_to_default
    if ratio <= 0 or after.ratio_to_default <= 0:
        return 0.0
    return max(0.0, 1 - ratio / after.ratio_to_default)


def _threads(setting: Mapping[str, object]) -> int:
    return int(str(setting.get("threads", 1)))


@dataclass(frozen=True)
class TuningAccuracy:
    """Expected against gained: of all slices looked at, by op type (the most tuned first), and each pair,
    the latest first."""

    overall: Accuracy | None  # None: nothing was tuned yet
    by_op_type: dict[str, Accuracy]
    pairs: list[tuple[float, float]]


def tuning_accuracy(visible: Q) -> TuningAccuracy:
    """Over the latest slices of the explorations that may be seen: ``viewer.shown("exploration__")``."""
    by_type: dict[str, list[tuple[float, float]]] = defaultdict(list)
    # By the slices' own numbers from the latest on, until there are enough: of a list of explorations both
    # databases would read every one first.
    rows = (
        TuningSlice.objects.filter(visible)
        .order_by("-pk")
        .values_list("exploration__operator__op_type", "expected_gain", "gained")
    )
    pairs: list[tuple[float, float]] = []
    for op_type, expected, found in rows[:_LATEST]:
        pairs.append((expected, found))
        by_type[op_type].append((expected, found))
    ordered = sorted(by_type.items(), key=lambda one: (-len(one[1]), one[0]))
    return TuningAccuracy(
        accuracy(pairs) if pairs else None, {name: accuracy(some) for name, some in ordered}, pairs
    )
