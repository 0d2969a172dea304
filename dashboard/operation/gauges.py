"""Gauges from the database: queues, workers, explorations, the journal, chores, messages, money.

The process that is asked reads them and keeps them for some seconds. A scrape costs a dozen indexed
statements, and many scrapers cost no more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from threading import Condition

from cachetools import TTLCache, cached
from django.db import DatabaseError
from django.db.models import Count, Min, Q, Sum
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from catalog.best.damage import damaged
from catalog.best.scrubbing import scrub_pass
from catalog.conf import conf
from catalog.models import EVERYBODY, Grain, JournalSegment, Miss, MissState, TrafficSlot
from catalog.usage import journal
from dashboard.billing.models import Account, LedgerDay, LedgerEntry
from dashboard.notifications.models import MessageState, NotificationMessage
from dashboard.operation.models import ChoreRun
from dashboard.webhooks.models import Delivery, DeliveryState, Endpoint
from tuning.models import Exploration, Stage, State
from tuning.priority import priority_name
from tuning.statistics.workers import fleet, silent_targets

KEPT_S = 5.0


class DatabaseCollector(Collector):
    """The scraped gauges. If the database does not answer, ``opatlas_database_up`` is 0 and the rest is left
    out."""

    def collect(self) -> Iterable[Metric]:
        return _made()


def forget() -> None:
    """Read the database at the next scrape: for tests."""
    _made.cache_clear()


@cached(TTLCache(maxsize=1, ttl=KEPT_S), condition=Condition())
def _made() -> list[Metric]:
    up = "opatlas_database_up", "Whether the database answered."
    try:
        return [_one(*up, 1), *(metric for part in PARTS for metric in part())]
    except DatabaseError:
        return [_one(*up, 0)]


def _lookups() -> Iterator[Metric]:
    days = TrafficSlot.objects.filter(tenant=EVERYBODY, grain=Grain.DAY)
    sums = days.aggregate(hits=Sum("hits"), misses=Sum("misses"), saved_us=Sum("saved_us"))
    counted = CounterMetricFamily("opatlas_lookups", "Operators looked up, as drained.", labels=["result"])
    counted.add_metric(["hit"], sums["hits"] or 0)
    counted.add_metric(["miss"], sums["misses"] or 0)
    yield counted
    saved_s = (sums["saved_us"] or 0) / 1e6
    yield _one("opatlas_saved_seconds", "Time that hits saved, as drained.", saved_s)


def _queues() -> Iterator[Metric]:
    labels = ["capability", "stage", "priority"]
    depth = GaugeMetricFamily("opatlas_queue_depth", "Explorations that wait.", labels=labels)
    age = GaugeMetricFamily("opatlas_queue_oldest_seconds", "How long the oldest has waited.", labels=labels)
    queued = Exploration.objects.filter(state=State.QUEUED).values_list("capability", "stage", "priority")
    counted = queued.annotate(Count("pk"), Min("asked_at")).order_by()
    for capability, stage, priority, count, oldest in counted:
        names = [capability, Stage(stage).name.lower(), priority_name(priority)]
        depth.add_metric(names, count)
        age.add_metric(names, _age_s(oldest))
    yield from (depth, age)
    waiting = Miss.objects.filter(state=MissState.WAITING)
    collected = waiting.aggregate(count=Count("pk"), oldest=Min("first_asked_at"))
    undecided = "Misses that nothing was decided about yet."
    yield _one("opatlas_collect_queue_depth", undecided, collected["count"])
    oldest_s = _age_s(collected["oldest"])
    yield _one("opatlas_collect_queue_oldest_seconds", "How long the oldest of them has waited.", oldest_s)


def _explorations() -> Iterator[Metric]:
    counts = dict(Exploration.objects.values_list("state").annotate(Count("pk")).order_by())
    by_state = {state: counts.get(state, 0) for state in State.values}
    yield _by("opatlas_explorations", "Explorations by state.", "state", by_state)


def _workers() -> Iterator[Metric]:
    of = fleet()
    counts = Counter(one.target.capability for one in of.live)
    yield _by("opatlas_workers_alive", "Workers seen lately.", "capability", counts)
    lost = Counter(one.capability for one in silent_targets(of))
    unserved = "Targets whose workers fell silent, and that no other serves."
    yield _by("opatlas_targets_silent", unserved, "capability", lost)


def _journal() -> Iterator[Metric]:
    """This machine's: what was answered and not yet drained into usage."""
    undrained, paths = 0, journal.segments()
    # By name: each report of a client has a row here as well.
    here = JournalSegment.objects.filter(node=conf().node, segment__in=[path.name for path in paths])
    drained = dict(here.values_list("segment", "drained_bytes"))
    for path in paths:
        try:
            undrained += max(0, path.stat().st_size - drained.get(path.name, 0))
        except FileNotFoundError:  # drained and taken away meanwhile
            continue
    yield _one("opatlas_journal_undrained_bytes", "Journal of this machine, not yet drained.", undrained)


def _store() -> Iterator[Metric]:
    yield _one("opatlas_artifacts_damaged", "Artifacts that are built again.", damaged().count())
    scrubbed = scrub_pass()
    if scrubbed is not None and scrubbed.ended_at is not None:
        text = "Every artifact was compared with what was stored since then."
        yield _one("opatlas_store_compared_timestamp_seconds", text, scrubbed.ended_at.timestamp())


def _chores() -> Iterator[Metric]:
    runs = CounterMetricFamily("opatlas_chore_runs", "Runs of the courier's chores.", labels=["chore"])
    failures = CounterMetricFamily("opatlas_chore_failures", "Those that failed.", labels=["chore"])
    success = GaugeMetricFamily(
        "opatlas_chore_last_success_timestamp_seconds", "When it last ended well.", labels=["chore"]
    )
    took = GaugeMetricFamily("opatlas_chore_last_seconds", "How long the last run took.", labels=["chore"])
    for row in ChoreRun.objects.all():
        runs.add_metric([row.name], row.runs)
        failures.add_metric([row.name], row.failures)
        took.add_metric([row.name], row.last_took_s)
        if row.last_success_at is not None:
            success.add_metric([row.name], row.last_success_at.timestamp())
    yield from (runs, failures, success, took)


def _backlogs() -> Iterator[Metric]:
    waiting = Delivery.objects.filter(state=DeliveryState.PENDING, endpoint__disabled_at=None)
    due = waiting.aggregate(
        count=Count("pk"), oldest=Min("next_try_at", filter=Q(next_try_at__lte=timezone.now()))
    )
    yield _one("opatlas_webhooks_pending", "Webhook deliveries on their way.", due["count"])
    yield _one("opatlas_webhooks_overdue_seconds", "How late the most overdue one is.", _age_s(due["oldest"]))
    endpoints = Endpoint.objects.aggregate(
        failing=Count("pk", filter=Q(disabled_at=None, failing_since__isnull=False)),
        disabled=Count("pk", filter=Q(disabled_at__isnull=False)),
    )
    yield _one("opatlas_webhook_endpoints_failing", "Endpoints that failed last.", endpoints["failing"])
    yield _one("opatlas_webhook_endpoints_disabled", "Endpoints that are disabled.", endpoints["disabled"])
    messages = NotificationMessage.objects.filter(state=MessageState.WAITING)
    told = messages.aggregate(count=Count("pk"), oldest=Min("due_at", filter=Q(due_at__lte=timezone.now())))
    yield _one("opatlas_notifications_pending", "Notifications that wait to leave.", told["count"])
    yield _one("opatlas_notifications_overdue_seconds", "How late the latest one is.", _age_s(told["oldest"]))


def _ledger() -> Iterator[Metric]:
    """Both are 0, always: a balance is the sum of its entries, and today's sums count today's entries."""
    balances = Account.objects.aggregate(total=Sum("balance_micros"))["total"] or 0
    entered = LedgerDay.objects.aggregate(total=Sum("amount_micros"))["total"] or 0
    yield _one("opatlas_ledger_drift_micros", "Balances less the sums of the ledger.", balances - entered)
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    summed = LedgerDay.objects.filter(day=midnight.date()).aggregate(total=Sum("entries"))["total"] or 0
    counted = LedgerEntry.objects.filter(
        organisation__in=Account.objects.values("organisation"), at__gte=midnight
    ).count()
    yield _one(
        "opatlas_ledger_drift_entries", "Today's ledger entries less those in its sums.", counted - summed
    )


PARTS: tuple[Callable[[], Iterator[Metric]], ...] = (
    _lookups,
    _queues,
    _explorations,
    _workers,
    _journal,
    _store,
    _chores,
    _backlogs,
    _ledger,
)


def _one(name: str, text: str, value: float) -> Metric:
    gauge = GaugeMetricFamily(name, text)
    gauge.add_metric([], value)
    return gauge


def _by(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=[label])
    for value, number in values.items():
        gauge.add_metric([value], number)
    return gauge


def _age_s(moment: datetime | None) -> float:
    return 0.0 if moment is None else max(0.0, (timezone.now() - moment).total_seconds())
