"""Environments: which are declared, declaring another, what became of the bests, and any two compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.best.served import scopes_of
from catalog.errors import RequestError, Unknown
from catalog.models import Target
from catalog.selectors.targets import target_named
from catalog.viewing import OPERATE
from tuning.api.places import environment_of, target_of
from tuning.environments import declaring, revalidation
from tuning.environments import known as environments
from tuning.models import Revalidated, Revalidation, Worker
from tuning.statistics.environments import Pair, compare_environments

RouteEnvironmentsAnswer = shape(
    environments.RouteEnvironments,
    without=["open"],
    capability=serializers.CharField(source="target.capability"),
    environments="offers",
    revalidation=serializers.IntegerField(source="open.pk", default=None, allow_null=True),
)


class DeclareSerializer(serializers.Serializer[Any]):
    """Either ``worker``, with the routes to take from it (all, if left out), or a target, a route and one of
    its environments."""

    worker = serializers.CharField(max_length=100, required=False)
    routes = serializers.ListField(child=serializers.CharField(max_length=40), required=False, min_length=1)
    target = serializers.RegexField(r"^(t1:[0-9a-f]{64}|here)$", required=False)
    route = serializers.CharField(max_length=40, required=False)
    environment = serializers.RegexField(r"^[0-9a-f]{64}$", required=False)


class RevalidatedAnswer(ModelAnswer):
    """One best that is measured again. Ratios are default ÷ implementation."""

    operator = serializers.CharField(source="exploration.operator.key")
    summary = serializers.CharField(source="exploration.operator.summary")

    class Meta:
        model = Revalidated
        fields = ["operator", "summary", "route", "verdict", "ratio_before", "ratio_after", "detail"]


class RevalidationAnswer(ModelAnswer):
    """Another environment was declared: what came of measuring its bests again."""

    before = serializers.DictField(source="before.versions", allow_null=True, default=None, read_only=True)
    after = serializers.DictField(source="after.versions")
    summary = serializers.CharField(
        source="counted", read_only=True, help_text="``7 re-measured, 2 better, 1 worse, 0 failed``."
    )
    total = serializers.IntegerField(source="counted.total", read_only=True)
    waiting = serializers.IntegerField(source="counted.waiting", read_only=True)

    class Meta:
        model = Revalidation
        fields = [
            "id", "target", "route", "before", "after", "asked_by", "asked_at", "finished_at", "superseded",
            "summary", "total", "waiting",
        ]  # fmt: skip


class RevalidationDetailAnswer(RevalidationAnswer):
    bests = RevalidatedAnswer(
        many=True,
        source="counted.rows",
        read_only=True,
        help_text="What failed or became worse comes first; at most 500.",
    )

    class Meta(RevalidationAnswer.Meta):
        fields = [*RevalidationAnswer.Meta.fields, "bests"]


def _counted(view: RestView, rows: Sequence[Revalidation], bests: int = 0) -> Sequence[Revalidation]:
    """With their reports, of as many bests each, as far as the key sees them."""
    reports = revalidation.reports({row.pk: bests for row in rows}, scopes_of(view.key.organisation))
    for row in rows:
        row.counted = reports[row.pk]  # type: ignore[attr-defined]
    return rows


@dataclass(frozen=True)
class EnvironmentsCompared:
    """A against B: regressions first."""

    target: Target
    a: Mapping[str, str]
    b: Mapping[str, str]
    worse: int
    better: int
    same: int
    environment_mean: float | None
    sentence: str
    pairs: Sequence[Pair]


PairAnswer = shape(
    Pair, without=["scope"], verdict=serializers.ChoiceField(choices=["worse", "better", "same"])
)


class EnvironmentsView(RestView):
    @operation(RouteEnvironmentsAnswer, name="environments", many=True)
    def get(self, request: Request) -> list[environments.RouteEnvironments]:
        """Which versions count, by target and route."""
        return environments.route_environments()


class DeclareEnvironmentView(RestView):
    needs = Needs(
        "operate",
        everywhere=OPERATE,
        refusal="Environments are declared for everybody: by the host organisation alone.",
    )

    @operation(RevalidationAnswer, name="declare_environment", many=True, takes=DeclareSerializer)
    def post(self, request: Request) -> Sequence[Revalidation]:
        """Let another environment's evidence move the bests.

        The bests are served on, measured again in the background and replaced, better or worse. What had
        been measured in this environment before is served at once: declaring the previous one rolls back.
        The answer has one entry for each route that changed."""
        return _counted(self, _declare(self.sent(DeclareSerializer), f"key {self.key.prefix}"))


_REVALIDATIONS = Revalidation.objects.select_related("target", "before", "after")


@listing(RevalidationAnswer)
class RevalidationsView(Listing[Revalidation]):
    """Declarations, the latest first, and what came of them."""

    def get_queryset(self) -> QuerySet[Revalidation]:
        return _REVALIDATIONS.order_by("-pk")

    def paginate_queryset(self, queryset: QuerySet[Revalidation]) -> list[Revalidation]:  # type: ignore[override]
        return list(_counted(self, super().paginate_queryset(queryset) or []))


class RevalidationView(RestView):
    @operation(RevalidationDetailAnswer)
    def get(self, request: Request, pk: int) -> Revalidation:
        """One declaration with its bests: what failed or became worse first."""
        return _counted(self, [one(_REVALIDATIONS.all(), pk, f"There is no revalidation {pk}.")], 500)[0]


class CompareEnvironmentsView(RestView):
    @operation(
        shape(EnvironmentsCompared, using=[PairAnswer]),
        name="compare_environments",
        tag="statistics",
        parameters=[
            query("target", "The target's key, or `here`.", required=True),
            query("a", "Digest of the environment before.", required=True),
            query("b", "Digest of the environment after.", required=True),
        ],
        fails=[404],
    )
    def get(self, request: Request) -> EnvironmentsCompared:
        """Two environments of a target: what another version changed, regressions first."""
        target = target_of(request)
        if target is None:
            raise RequestError("target is a target's key, or 'here': name one.", where="target")
        a, b = (environment_of(request, name) for name in ("a", "b"))
        if a.pk == b.pk:
            raise RequestError("a and b are the same environment: nothing can have changed.", where="b")
        found = compare_environments(target, a, b, self.viewer.shown())
        counts = {verdict: found.counts[verdict] for verdict in ("worse", "better", "same")}
        return EnvironmentsCompared(
            target,
            a.versions,
            b.versions,
            **counts,
            environment_mean=found.change,
            sentence=found.sentence,
            pairs=found.pairs,
        )


def _declare(asked: dict[str, Any], asked_by: str) -> list[Revalidation]:
    if "worker" in asked:
        worker = Worker.objects.select_related("target").filter(name=asked["worker"]).first()
        if worker is None:
            raise Unknown("There is no worker by this name.", where="worker")
        return declaring.declare_worker(worker, asked_by, asked.get("routes"))
    if not {"target", "route", "environment"} <= asked.keys():
        raise RequestError("Name a worker, or a target, a route and an environment.")
    target = target_named(asked["target"])
    row = declaring.declare_known(target, asked["route"], asked["environment"], asked_by)
    return [row] if row else []


urlpatterns = [
    path("environments/", EnvironmentsView.as_view()),
    path("environments/declare", DeclareEnvironmentView.as_view(), name="api-declare-environment"),
    path("revalidations/", RevalidationsView.as_view()),
    path("revalidations/<int:pk>", RevalidationView.as_view()),
    path("statistics/environments/compare", CompareEnvironmentsView.as_view()),
]
