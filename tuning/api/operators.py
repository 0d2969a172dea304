"""Shapes of the statistics of methods, comparisons and environments."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers


class FaresSerializer(serializers.Serializer[Any]):
    """How one method or route fares. Seconds are medians; ratios geometric means."""

    method = serializers.CharField()
    route = serializers.CharField(help_text="Empty: the method as a whole.")
    operators_found = serializers.IntegerField(source="found")
    operators_won = serializers.IntegerField(source="won")
    win_rate = serializers.FloatField(allow_null=True)
    win_margin = serializers.FloatField(source="margin", allow_null=True)
    win_speedup = serializers.FloatField(source="speedup", allow_null=True)
    route_hits = serializers.IntegerField(source="hits", help_text="In the range, everywhere.")
    route_calls = serializers.FloatField(source="calls")
    route_saved_us = serializers.FloatField(source="saved_us")
    explorations = serializers.IntegerField()
    trials = serializers.IntegerField()
    verified_trials = serializers.FloatField(source="success_rate", allow_null=True)
    route_first_result_s = serializers.FloatField(source="first_result_s", allow_null=True)
    route_best_result_s = serializers.FloatField(source="best_s", allow_null=True)
    route_effort_s = serializers.FloatField(source="effort_s", allow_null=True)
    route_build_s = serializers.FloatField(source="build_s", allow_null=True)


class FailureSerializer(serializers.Serializer[Any]):
    """Trials that ended in the same words, numbers aside."""

    method = serializers.CharField()
    route = serializers.CharField()
    status = serializers.CharField()
    reason = serializers.CharField()
    count = serializers.IntegerField()


class MethodsSerializer(serializers.Serializer[Any]):
    """Every method and route. ``target`` and ``setting`` are null where everything is counted."""

    target = serializers.CharField(allow_null=True)
    setting = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    methods = FaresSerializer(many=True)
    routes = FaresSerializer(many=True)
    failures = FailureSerializer(many=True, help_text="The most frequent first, at most 500.")


class WinsSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    method = serializers.CharField()
    won = serializers.IntegerField()


class CellSerializer(serializers.Serializer[Any]):
    """One type of operator in one size class."""

    op_type = serializers.CharField()
    size_class = serializers.IntegerField(
        help_text="0: below 10 kB moved by a run; each further one a decade."
    )
    size = serializers.CharField()
    operators = serializers.IntegerField(help_text="With a best.")
    share = serializers.FloatField(help_text="Of them, that the first of wins has won.")
    speedup = serializers.FloatField(help_text="Over the default, geometric mean.")
    wins = WinsSerializer(many=True)


class HeatmapSerializer(serializers.Serializer[Any]):
    """Where each wins."""

    target = serializers.CharField(allow_null=True)
    setting = serializers.CharField(allow_null=True)
    by = serializers.ChoiceField(choices=["method", "route"])
    cells = CellSerializer(many=True)


class ComparisonSerializer(serializers.Serializer[Any]):
    """One implementation against another: ``factor`` above 1 is faster."""

    verdict = serializers.ChoiceField(choices=["faster", "slower", "same", "incomparable"])
    factor = serializers.FloatField()
    low = serializers.FloatField()
    high = serializers.FloatField()
    confidence = serializers.FloatField(help_text="That there is a difference at all; at most 0.999.")
    samples = serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2)


class ComparedImplementationSerializer(serializers.Serializer[Any]):
    """An implementation and how it compares with the fastest known here."""

    implementation = serializers.IntegerField()
    method = serializers.CharField()
    route = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    rank = serializers.IntegerField(allow_null=True, help_text="0: the fastest; null: not its route's best.")
    median_us = serializers.FloatField(allow_null=True)
    spread_us = serializers.FloatField(allow_null=True)
    default_us = serializers.FloatField(allow_null=True)
    ratio_to_default = serializers.FloatField(allow_null=True)
    ratio_low = serializers.FloatField(allow_null=True)
    ratio_high = serializers.FloatField(allow_null=True)
    samples = serializers.IntegerField()
    against_best = ComparisonSerializer(allow_null=True)


class MethodPairSerializer(serializers.Serializer[Any]):
    """Two methods' bests."""

    first = serializers.IntegerField(help_text="An implementation's number.")
    second = serializers.IntegerField()
    comparison = ComparisonSerializer()
    sentence = serializers.CharField()


class BenefitSerializer(serializers.Serializer[Any]):
    """What one more slice of tuning would bring."""

    route = serializers.CharField()
    next_gain = serializers.FloatField(source="gain", help_text="Expected, a share of the time.")
    why = serializers.CharField()
    slice_s = serializers.FloatField()
    call_rate = serializers.FloatField(source="calls_per_day")
    saved_us_per_day = serializers.FloatField()
    next_payback_days = serializers.FloatField(source="payback_days", allow_null=True)
    pays = serializers.BooleanField()
    slices = serializers.IntegerField()
    spent_s = serializers.FloatField()
    gained = serializers.FloatField()
    sentence = serializers.CharField()


class OperatorStatisticsSerializer(serializers.Serializer[Any]):
    """One operator in one place; ``target`` is null where nothing is known of it anywhere."""

    operator = serializers.CharField()
    target = serializers.CharField(allow_null=True)
    setting = serializers.CharField(allow_null=True)
    jobs = serializers.IntegerField()
    hits = serializers.IntegerField()
    misses = serializers.IntegerField()
    hit_rate = serializers.FloatField(allow_null=True)
    saved_us = serializers.FloatField()
    implementations = ComparedImplementationSerializer(many=True)
    methods = MethodPairSerializer(many=True, help_text="The best of each method against that of each other.")
    benefit = BenefitSerializer(allow_null=True)


class PairSerializer(serializers.Serializer[Any]):
    """One candidate measured in both environments."""

    operator = serializers.CharField()
    summary = serializers.CharField()
    setting = serializers.CharField()
    route = serializers.CharField()
    method = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    verdict = serializers.ChoiceField(choices=["worse", "better", "same"])
    ratio_a = serializers.FloatField()
    ratio_b = serializers.FloatField()
    change = ComparisonSerializer(help_text="B against A.")
    default_changed = serializers.BooleanField(help_text="The default had other versions too.")


class EnvironmentsComparedSerializer(serializers.Serializer[Any]):
    """A against B: regressions first."""

    target = serializers.CharField()
    a = serializers.DictField(child=serializers.CharField())
    b = serializers.DictField(child=serializers.CharField())
    worse = serializers.IntegerField()
    better = serializers.IntegerField()
    same = serializers.IntegerField()
    environment_mean = serializers.FloatField(allow_null=True)
    sentence = serializers.CharField()
    pairs = PairSerializer(many=True)
