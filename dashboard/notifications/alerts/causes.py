"""The present causes of alerts: one function for each rule, with a few statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import Count, Min, Sum
from django.urls import reverse
from django.utils import timezone

from catalog import steps
from catalog.models import EVERYBODY, SHARED, BestChange, Grain, StepFailure, TrafficSlot
from dashboard.billing import sudden
from dashboard.billing.accounts import limit_micros
from dashboard.billing.models import Account, Kind, LedgerDay
from dashboard.conf import conf
from dashboard.notifications.models import Happening, Severity
from dashboard.notifications.write import bests, wording
from tuning.models import Exploration, FailureGroup, Pause, Stage, State
from tuning.queue.clock import now_in
from tuning.statistics import alarms, workers

WORSE = 0.9
"""A best below this share of its predecessor's gain got worse: more than two races of one implementation
differ."""

CHANGES_LOOKED_AT = 500
CHANGED_WITHIN = timedelta(days=7)
NEW_FOR = timedelta(days=1)
NEW_AT_ONCE = 20
"""The most causes of failure that get an alert each at a time; the page shows all."""

LOOKUPS_LATELY, LOOKUPS_BEFORE = 100, 1000
"""So few say nothing of a hit rate."""

ROWS_NAMED = 10
SPENT_DAYS = 3
EVERYTHING = "*"


@dataclass(frozen=True)
class Cause:
    """``key`` names it within its rule while it lasts. ``facts`` is plain JSON; ``explained`` gives further
    facts that take longer: called when the alert fires, and once a minute while it lasts."""

    key: str
    text: str
    path: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    organisation_id: int | None = None
    explained: Callable[[], Mapping[str, Any]] = dict


@dataclass(frozen=True)
class AlertRule:
    """``quiet_s``: how long its cause must be gone until an alert resolves itself."""

    happening: Happening
    severity: Severity
    quiet_s: float
    causes: Callable[[], Iterable[Cause]]

    @property
    def name(self) -> str:
        return self.happening.value


def silent() -> Iterator[Cause]:
    """Targets whose workers all fell silent."""
    for one in workers.silent_targets(workers.fleet()):
        text = wording.silent(one.capability, workers=one.names, waiting=one.waiting)
        facts = {"capability": one.capability, "workers": list(one.names), "waiting": one.waiting}
        yield Cause(str(one.target_id), text, reverse("queues"), facts)


def failing(found: alarms.Alarms) -> Iterator[Cause]:
    """Routes that fail on every trial."""
    for one in found.failing:
        text = wording.failing(
            one.capability, route=one.route, trials=one.trials, operators=one.operators, reason=one.reason
        )
        facts = {
            "capability": one.capability,
            "route": one.route,
            "trials": one.trials,
            "operators": one.operators,
            "status": one.status,
            "reason": one.reason,
            "since": one.since.isoformat(),
        }
        yield Cause(f"{one.target_id}:{one.route}", text, f"{reverse('failures')}?q={one.route}", facts)


def disturbed(found: alarms.Alarms) -> Iterator[Cause]:
    """Machines on which times do not hold still."""
    for one in found.disturbed:
        text = wording.disturbed(one.capability, noisy=one.noisy, trials=one.trials)
        facts = {
            "capability": one.capability,
            "noisy": one.noisy,
            "trials": one.trials,
            "workers": list(one.workers),
        }
        yield Cause(str(one.target_id), text, reverse("queues"), facts)


def queue_old() -> Iterator[Cause]:
    """First results that wait too long. If nobody works or a queue is paused, that is the cause."""
    limit_s = conf().alert_queue_s
    paused = set(Pause.objects.values_list("capability", flat=True))
    if EVERYTHING in paused:
        return
    waiting = Exploration.objects.filter(
        state=State.QUEUED, stage=Stage.FIRST, asked_at__lt=now_in(-limit_s)
    ).exclude(capability__in=paused)
    unserved = [one.target_id for one in workers.silent_targets(workers.fleet())]
    rows = waiting.exclude(target__in=unserved).values("capability")
    now = timezone.now()
    for row in rows.annotate(n=Count("pk"), oldest=Min("asked_at")).order_by("capability"):
        oldest_s = (now - row["oldest"]).total_seconds()
        text = wording.queue_old(row["capability"], waiting=row["n"], oldest_s=oldest_s)
        facts = {"capability": row["capability"], "waiting": row["n"], "limit_s": limit_s}
        yield Cause(row["capability"], text, reverse("queues"), facts)


def hits_falling() -> Iterator[Cause]:
    """The share of lookups that hit, of this hour and the last, against the week before."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    begins = hour - timedelta(hours=1)
    rows = TrafficSlot.objects.filter(tenant=EVERYBODY, grain=Grain.HOUR)
    late, early = (
        found.aggregate(hits=Sum("hits"), misses=Sum("misses"))
        for found in (
            rows.filter(start__gte=begins),
            rows.filter(start__lt=begins, start__gte=begins - timedelta(days=7)),
        )
    )
    lately, before = ((one["hits"] or 0) + (one["misses"] or 0) for one in (late, early))
    if lately < LOOKUPS_LATELY or before < LOOKUPS_BEFORE:
        return
    rate, usual = (late["hits"] or 0) / lately, (early["hits"] or 0) / before
    if usual - rate >= conf().alert_hits_drop:
        facts = {"rate": rate, "usual": usual, "lookups": lately}
        yield Cause("all", wording.hits_falling(rate, usual, lately), reverse("overview"), facts)


def regressed() -> Iterator[Cause]:
    """Operators whose best is slower than the one that it replaced, and still is."""
    since = timezone.now() - CHANGED_WITHIN
    rows = BestChange.objects.filter(before__isnull=False, after__isnull=False)
    latest = rows.order_by("-pk").select_related("operator", "before", "after")
    changes: dict[bests.PlaceKey, BestChange] = {}
    for row in latest.defer("operator__graph", *_HEAVY)[:CHANGES_LOOKED_AT]:
        if row.created_at >= since:
            changes.setdefault((row.operator_id, row.target_id, row.setting_id, row.scope), row)
    known = bests.ratios({row.before_id or 0 for row in changes.values()})
    now = bests.winners({key[0] for key in changes})
    for place, row in changes.items():
        best, before = now.get(place), known.get(row.before_id or 0)
        if best is None or not before or best.implementation_id == row.before_id:
            continue
        if best.ratio_to_default >= WORSE * before or _was_provisional(row):
            continue
        assert row.before is not None
        text = wording.regressed(
            row.operator.summary,
            route=best.route,
            ratio=best.ratio_to_default,
            default=best.measurement.default_route,
            before=row.before.route,
            ratio_before=before,
        )
        facts = {
            "operator": row.operator.key,
            "route": best.route,
            "ratio": best.ratio_to_default,
            "default": best.measurement.default_route,
            "before": row.before.route,
            "ratio_before": before,
        }
        path = f"{reverse('operator', args=[row.operator.key])}?at={row.target_id}-{row.setting_id}"
        owner = row.owner_id if row.scope != SHARED else None
        yield Cause(":".join(map(str, place)), text, path, facts, owner)


def _was_provisional(change: BestChange) -> bool:
    """Whether it only replaced what was served during exploring: a first result, or a leader while others
    still waited. Those rest on few rounds, and the deciding race may revise them. What was revoked or failed
    was not revised."""
    assert change.before is not None
    if change.before.revoked_at or change.before.failed_at:
        return False
    place = {name: getattr(change, name) for name in ("operator_id", "target_id", "setting_id", "scope")}
    exploration = Exploration.objects.filter(**place).first()
    if exploration is None:
        return False
    # A race is written down after what it decided: this change's own is not among those before it.
    held = exploration.races.exclude(stage=Stage.FIRST).filter(created_at__lt=change.created_at)
    return not any(report.get("decides", True) for report in held.values_list("report", flat=True))


_HEAVY = tuple(f"{side}__{name}" for side in ("before", "after") for name in ("source", "schedule"))


def new_failure() -> Iterator[Cause]:
    """Causes of failure that were never seen before, for a day."""
    rows = FailureGroup.objects.filter(first_at__gte=timezone.now() - NEW_FOR).order_by("first_at", "pk")
    for row in rows[:NEW_AT_ONCE]:
        text = wording.new_failure(row.reason, routes=row.routes)
        facts = {
            "failure": row.pk,
            "status": row.status,
            "reason": row.reason,
            "routes": row.routes,
            "trials": row.trials,
            "operators": row.operators,
        }
        owner = row.owner_id if row.scope != SHARED else None
        yield Cause(str(row.pk), text, reverse("failure", args=[row.pk]), facts, owner)


def step_failing() -> Iterator[Cause]:
    """Periodic work that fails, and rows that it set aside."""
    now = timezone.now()
    for one in steps.lasting().order_by("step"):
        for_s = (now - one.first_at).total_seconds()
        text = wording.step_failing(one.step, one.said, failures=one.failures, for_s=for_s)
        facts = {"step": one.step, "said": one.said, "since": one.first_at.isoformat()}
        yield Cause(one.step, text, reverse("queues"), facts)
    aside = StepFailure.objects.exclude(row=0)
    for step, rows in aside.values_list("step").annotate(n=Count("pk")).order_by("step"):
        latest = list(aside.filter(step=step).order_by("-last_at", "-pk")[:ROWS_NAMED])
        text = wording.rows_set_aside(step, latest[0].said, rows=rows) if latest else ""
        named = {str(one.row): one.said for one in latest}
        yield Cause(f"rows:{step}", text, reverse("queues"), {"step": step, "count": rows, "rows": named})


def spend() -> Iterator[Cause]:
    """Organisations whose credit ends soon, by what they were charged in the last days."""
    now = timezone.now()
    first = now.date() - timedelta(days=SPENT_DAYS - 1)
    days = LedgerDay.objects.filter(kind=Kind.CHARGE, day__gte=first, amount_micros__lt=0)
    spent = dict(days.values_list("organisation").annotate(spent=-Sum("amount_micros")).order_by())
    for account in Account.objects.filter(organisation__in=spent).select_related("organisation"):
        left = account.balance_micros + limit_micros(account, now)
        a_day = spent[account.organisation_id] / SPENT_DAYS
        lasts_days = max(left, 0) / a_day
        if lasts_days >= conf().alert_credit_days:
            continue
        text = wording.spend(left, account.currency, spent[account.organisation_id], SPENT_DAYS)
        facts = {
            "left_micros": left,
            "spent_micros": spent[account.organisation_id],
            "spent_days": SPENT_DAYS,
            "currency": account.currency,
        }
        yield Cause(str(account.organisation_id), text, reverse("billing"), facts, account.organisation_id)


def spend_sudden() -> Iterator[Cause]:
    """Organisations that are charged far more than usual, with what they are charged for."""
    for one in sudden.sudden_spendings(timezone.now()):
        number, currency = one.account.organisation_id, one.account.currency
        text = wording.spend_sudden(one.day_micros, one.hour_micros, currency, usual=one.usual.mean_micros)
        facts = {
            "currency": currency,
            "last_hour_micros": one.hour_micros,
            "last_day_micros": one.day_micros,
            "usual_day_micros": round(one.usual.mean_micros),
            "busiest_day_micros": one.usual.busiest_micros,
            "since": one.since.isoformat(),
        }
        explained = partial(_charged_for, number, one.since, one.until)
        yield Cause(str(number), text, reverse("billing-ledger"), facts, number, explained)


def _charged_for(number: int, since: datetime, until: datetime) -> Mapping[str, Any]:
    return {"charged_for": sudden.charged_for(number, since, until)}


_trials = alarms.LatestTrials()
"""The courier's: it looks every few seconds."""


def rules() -> tuple[AlertRule, ...]:
    """Every rule, in the order in which they are judged; all are on unless the configuration says otherwise.
    The latest trials are read once for both rules that need them."""
    memory: list[alarms.Alarms] = []

    def found() -> alarms.Alarms:
        if not memory:
            memory.append(alarms.alarms(_trials))
        return memory[0]

    every = (
        AlertRule(Happening.SILENT, Severity.CRITICAL, 30, silent),
        AlertRule(Happening.FAILING, Severity.ERROR, 60, lambda: failing(found())),
        AlertRule(Happening.DISTURBED, Severity.WARNING, 120, lambda: disturbed(found())),
        AlertRule(Happening.QUEUE_OLD, Severity.WARNING, 120, queue_old),
        AlertRule(Happening.HITS_FALLING, Severity.WARNING, 600, hits_falling),
        AlertRule(Happening.REGRESSED, Severity.WARNING, 60, regressed),
        AlertRule(Happening.NEW_FAILURE, Severity.INFO, 60, new_failure),
        AlertRule(Happening.STEP_FAILING, Severity.ERROR, 60, step_failing),
        AlertRule(Happening.SPEND, Severity.WARNING, 600, spend),
        AlertRule(Happening.SPEND_SUDDEN, Severity.WARNING, 600, spend_sudden),
    )
    return tuple(rule for rule in every if rule.name not in conf().alerts_off)
