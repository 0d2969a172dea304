"""Statistics of methods, of one operator and of environments: the pages' figures, from the same selectors."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors, path, query
from catalog.errors import RequestError, Unknown
from catalog.models import Environment, Operator, Setting, Target
from catalog.selectors import detail
from catalog.selectors.reuse import reuse
from catalog.timerange import RANGES, parse_range
from catalog.viewing import Viewer, viewer_of_key
from opatlas.evidence import TIMES
from tuning.api import filters
from tuning.api.statistics_shapes import (
    EnvironmentsComparedSerializer,
    HeatmapSerializer,
    MethodsSerializer,
    OperatorStatisticsSerializer,
)
from tuning.models import Exploration
from tuning.statistics import benefit, environments, methods, sides

_KEY = re.compile(r"o1:[0-9a-f]{64}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PLACE = [
    query("target", "Only this target's key; needs a setting too."),
    query("setting", "Only this setting's key; needs a target too."),
]
_RANGE = [
    query("range", f"One of {', '.join(RANGES)}; 30d if left out.", enum=list(RANGES)),
    query("since", "Instead of a range: from then on, ISO 8601."),
    query("until", "With since: up to then; now if left out."),
]


class MethodStatistics(APIView):
    @extend_schema(
        operation_id="method_statistics",
        tags=["statistics"],
        summary="What each method and route found, won and served, how fast, and why it failed",
        parameters=[*_PLACE, *_RANGE],
        responses={200: MethodsSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        at = _at(request)
        span = parse_range(_texts(request, "range", "since", "until"), default="30d")
        routes = methods.routes(at, _viewer(request), span)
        answer = {
            **_named(at), "since": span.since, "until": span.until, "routes": routes,
            "methods": methods.by_method(routes, at), "failures": methods.failures(at),
        }  # fmt: skip
        return Response(MethodsSerializer(answer).data)


class Heatmap(APIView):
    @extend_schema(
        operation_id="heatmap",
        tags=["statistics"],
        summary="Where each wins: operator type × size",
        parameters=[
            *_PLACE,
            query("by", "Count wins by method or by route; method if left out.", enum=["method", "route"]),
            query("route", "Only kinds that this route found something for."),
        ],
        responses={200: HeatmapSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        at = _at(request)
        by = next(iter(filters.choices(request, "by", ["method", "route"])), "method")
        route = filters.key(request, "route")
        cells = [
            {
                "op_type": cell.op_type, "size_class": cell.size_class, "size": cell.size,
                "operators": cell.operators, "share": cell.share, "speedup": cell.speedup,
                "wins": [{"name": name, "method": method, "won": won} for name, method, won in cell.wins],
            }
            for cell in methods.cells(at, by, route)
        ]  # fmt: skip
        return Response(HeatmapSerializer({**_named(at), "by": by, "cells": cells}).data)


class OperatorStatistics(APIView):
    @extend_schema(
        operation_id="operator_statistics",
        tags=["statistics"],
        summary="One operator: reuse, implementations compared, and whether more tuning would pay",
        description="Of one place; where none is named, the one with the newest best.",
        parameters=[path("key", "^o1:[0-9a-f]{64}$", "The operator's key."), *_PLACE],
        responses={200: OperatorStatisticsSerializer, **errors(400, 404)},
    )
    def get(self, request: Request, key: str) -> Response:
        row = Operator.objects.filter(key=key).first() if _KEY.fullmatch(key) else None
        if row is None:
            raise Unknown("There is no operator by this key.", where="key")
        viewer = _viewer(request)
        at = _at(request)
        places = detail.places(row, viewer.shown())
        place = next((one for one in places if not at.value or one.value == at.value), None)
        if at.value and place is None:
            raise Unknown("Nothing is known of this operator there.", where="target")
        used = reuse(row, viewer)
        answer: dict[str, Any] = {
            "operator": row.key, "target": None, "setting": None, "jobs": used.job_count, "hits": used.hits,
            "misses": used.misses, "hit_rate": used.hit_rate, "saved_us": used.saved_us,
            "implementations": [], "methods": [], "benefit": None,
        }  # fmt: skip
        if place is not None:
            answer |= _compared(row, place, viewer)
        return Response(OperatorStatisticsSerializer(answer).data)


class CompareEnvironments(APIView):
    @extend_schema(
        operation_id="compare_environments",
        tags=["statistics"],
        summary="Two environments of a target: what another version changed, regressions first",
        parameters=[
            query("target", "The target's key.", required=True),
            query("a", "Digest of the environment before.", required=True),
            query("b", "Digest of the environment after.", required=True),
        ],
        responses={200: EnvironmentsComparedSerializer, **errors(400, 404)},
    )
    def get(self, request: Request) -> Response:
        target = _row(Target, request, "target")
        if target is None:
            raise RequestError("target is a target's key: name one.", where="target")
        a, b = (_environment(request, name) for name in ("a", "b"))
        if a.pk == b.pk:
            raise RequestError("a and b are the same environment: nothing can have changed.", where="b")
        found = environments.compare_environments(target, a, b, _viewer(request).shown())
        counts = found.counts
        answer = {
            "target": target.key, "a": a.versions, "b": b.versions, "pairs": found.pairs,
            "environment_mean": found.change, "sentence": found.sentence,
            **{name: counts[name] for name in ("worse", "better", "same")},
        }  # fmt: skip
        return Response(EnvironmentsComparedSerializer(answer).data)


def _compared(row: Operator, place: detail.Place, viewer: Viewer) -> dict[str, Any]:
    made = detail.implementations(row, place, viewer.shown())
    against = sides.against_best(made)
    best = next((one for one in made if one.rank == 0 and one.measurement), None)
    key = {"operator": row, "target": place.target, "setting": place.setting}
    exploration = (
        Exploration.objects.filter(viewer.shown(), **key).select_related("operator", "setting").first()
    )
    worth = None
    if best is not None and best.measurement is not None and exploration is not None:
        rate = benefit.calls_per_day(row, viewer)
        worth = benefit.benefit(exploration, best.measurement.median_us, rate)
    return {
        "target": place.target.key, "setting": place.setting.key, "benefit": worth,
        "implementations": [_implementation(one, against) for one in made],
        "methods": [
            {
                "first": pair.first.implementation.pk, "second": pair.second.implementation.pk,
                "comparison": pair.comparison, "sentence": pair.sentence,
            }
            for pair in sides.side_by_side(made).pairs
        ],
    }  # fmt: skip


def _implementation(one: detail.RankedImplementation, against: dict[int, Any]) -> dict[str, Any]:
    i, m = one.implementation, one.measurement
    return {
        "implementation": i.pk, "method": i.method, "route": i.route, "label": i.label, "rank": one.rank,
        "samples": one.samples, "against_best": against.get(i.pk),
        **{name: getattr(m, name) if m else None for name in TIMES},
    }  # fmt: skip


def _viewer(request: Request) -> Viewer:
    return viewer_of_key(key_of(request))


def _texts(request: Request, *names: str) -> dict[str, str]:
    return {name: filters.key(request, name) for name in names}


def _at(request: Request) -> methods.At:
    """One place, or everywhere: a target without a setting would mix threads."""
    target, setting = _row(Target, request, "target"), _row(Setting, request, "setting")
    if (target is None) != (setting is None):
        missing = "setting" if setting is None else "target"
        raise RequestError("target and setting go together: name both, or neither.", where=missing)
    return methods.At(target, setting)


def _row(model: Any, request: Request, name: str) -> Any:
    """The row that a query parameter names by its key; None where it was not given."""
    key = filters.key(request, name)
    if not key:
        return None
    found = model.objects.filter(key=key).first()
    if found is None:
        raise Unknown(f"This {name} is not known.", where=name)
    return found


def _environment(request: Request, name: str) -> Environment:
    digest = filters.key(request, name)
    if not _DIGEST.fullmatch(digest):
        raise RequestError(f"{name} is an environment's digest: 64 hexadecimal digits.", where=name)
    found = Environment.objects.filter(digest=digest).first()
    if found is None:
        raise Unknown("This environment is not known.", where=name)
    return found


def _named(at: methods.At) -> dict[str, str | None]:
    return {
        "target": at.target.key if at.target else None,
        "setting": at.setting.key if at.setting else None,
    }
