"""The explore queues: how much waits, how old it is, what it is worth, and how fast it goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from django.db.models import CharField, Count, F, Func, Min, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from catalog.models import Target
from tuning.models import Exploration, Pause, Stage, State, Worker
from tuning.priority import priority_name
from tuning.queue.clock import alive
from tuning.queue.rates import Rates
from tuning.queue.waits import newcomers_waits

HOURS = 24
MOST_FORETOLD = 1_000
ENDS = (State.DONE, State.UNSUPPORTED, State.DISCARDED, State.DEAD)


class HourKey(Func):
    """A time's hour in UTC as "2026-11-21 09", by the database itself: Django's own truncation is a Python
    call for each row on SQLite."""

    output_field = CharField()
    template = "TO_CHAR(%(expressions)s AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24')"

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # Times are stored in UTC, as text.
        return self.as_sql(compiler, connection, template="SUBSTR(%(expressions)s, 1, 13)", **context)


@dataclass(frozen=True)
class Lane:
    """One explore queue: what waits of a capability, stage and priority. Worth in µs of expected saving."""

    capability: str
    stage: int
    priority: int
    queued: int = 0
    running: int = 0
    paused: int = 0
    oldest_at: datetime | None = None  # when the oldest that waits was asked for
    worth_us: float = 0.0  # of what waits
    slices_left: int = 0  # of tuning, at most

    @property
    def stage_name(self) -> str:
        return str(Stage(self.stage).label)

    @property
    def priority_name(self) -> str:
        return priority_name(self.priority)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.capability, self.stage, self.priority


@dataclass(frozen=True)
class Foretold:
    """First results of the last day (the latest ``MOST_FORETOLD`` of them) against when they were expected,
    as they were queued. Medians, in seconds after the miss: expected, come, and what the two differ by."""

    count: int
    expected_s: float
    came_s: float
    off_s: float


@dataclass(frozen=True)
class CapabilityQueue:
    """All explore queues of one capability, and what serves them."""

    capability: str
    lanes: tuple[Lane, ...]
    workers: int  # live ones
    paused: str | None  # why; None: it is not paused
    ended_last_hour: int
    ended_last_day: int
    drain_s: float | None  # until what waits is explored; None where nobody works on it
    drain_how: str
    wait_s: float | None = None  # of an operator that is asked for now; None where nobody would take it
    foretold: Foretold | None = None

    @property
    def queued(self) -> int:
        return sum(lane.queued for lane in self.lanes)

    @property
    def running(self) -> int:
        return sum(lane.running for lane in self.lanes)

    @property
    def held(self) -> int:
        return sum(lane.paused for lane in self.lanes)

    @property
    def worth_us(self) -> float:
        return sum(lane.worth_us for lane in self.lanes)

    @property
    def oldest_at(self) -> datetime | None:
        return min((lane.oldest_at for lane in self.lanes if lane.oldest_at), default=None)


@dataclass(frozen=True)
class HourSlot:
    """What ended within one hour, by how, and how many first results were published."""

    start: datetime
    done: int = 0
    unsupported: int = 0
    discarded: int = 0
    dead: int = 0
    first_results: int = 0

    @property
    def ended(self) -> int:
        return self.done + self.unsupported + self.discarded + self.dead


def lanes(visible: Q) -> list[Lane]:
    """Every explore queue that something is in, in the order in which they are served."""
    found = Exploration.objects.filter(visible, state__in=(State.QUEUED, State.RUNNING, State.PAUSED))
    counted = found.values("capability", "stage", "priority", "state").annotate(
        n=Count("pk"),
        oldest=Min("asked_at"),
        all_worth=Sum("worth"),
        left=Sum(Greatest(F("max_tuning_slices") - F("tuning_slices"), 1)),
    )
    made: dict[tuple[str, int, int], dict[str, object]] = defaultdict(dict)
    for row in counted.order_by():
        lane = made[row["capability"], row["stage"], row["priority"]]
        lane[row["state"]] = row["n"]
        if row["state"] == State.QUEUED:
            lane |= {"oldest_at": row["oldest"], "worth_us": row["all_worth"]}
            lane["slices_left"] = row["left"] if row["stage"] == Stage.TUNE else 0
    return [Lane(*key, **values) for key, values in sorted(made.items())]  # type: ignore[arg-type]


def capability_queues(visible: Q, rates: Rates, now: datetime) -> list[CapabilityQueue]:
    """By capability, those of live workers that have nothing to do included: eight statements."""
    by_capability: dict[str, list[Lane]] = defaultdict(list)
    for lane in lanes(visible):
        by_capability[lane.capability].append(lane)
    living = Worker.objects.filter(alive()).values_list("target__capability")
    workers = dict(living.annotate(n=Count("pk")).order_by())
    waits, came = _longest_waits(visible, rates), foretold(visible, now)
    pauses = dict(Pause.objects.values_list("capability", "reason"))
    since = {name: now - timedelta(hours=hours) for name, hours in (("day", HOURS), ("hour", 1))}
    ended = {
        row["capability"]: (row["day"], row["hour"])
        for row in Exploration.objects.filter(
            visible, state__in=ENDS, finished_at__gte=since["day"], finished_at__lte=now
        )
        .values("capability")
        .annotate(day=Count("pk"), hour=Count("pk", filter=Q(finished_at__gte=since["hour"])))
        .order_by()
    }
    names = sorted({*by_capability, *workers, *(name for name in pauses if name != "*")})
    found = []
    for name in names:
        mine, serving = tuple(by_capability[name]), workers.get(name, 0)
        paused, (day, hour) = pauses.get("*", pauses.get(name)), ended.get(name, (0, 0))
        drain_s, how = drain(mine, serving, paused is not None, rates)
        wait_s = waits.get(name) if paused is None else None
        found.append(
            CapabilityQueue(
                name, mine, serving, paused, hour, day, drain_s, how, wait_s, came.get(name)
            )
        )  # fmt: skip
    return found


def _longest_waits(visible: Q, rates: Rates) -> dict[str, float]:
    """Capability → what an operator that is asked for now waits, on the target of it that is worst off."""
    waits = newcomers_waits(rates, visible)
    found: dict[str, float] = {}
    for target, name in Target.objects.filter(pk__in=waits).values_list("pk", "capability"):
        found[name] = max(found.get(name, 0.0), waits[target].seconds or 0.0)
    return found


def foretold(visible: Q, now: datetime) -> dict[str, Foretold]:
    """Capability → how its first results came against when they were expected. One statement."""
    since = now - timedelta(hours=HOURS)
    rows = Exploration.objects.filter(
        visible, first_result_at__gte=since, first_result_at__lte=now, expected_first_at__isnull=False
    )
    latest = rows.order_by("-first_result_at")[:MOST_FORETOLD]
    times = defaultdict[str, list[tuple[float, float]]](list)
    columns: Any = latest.values_list("capability", "asked_at", "expected_first_at", "first_result_at")
    for name, asked_at, expected_at, came_at in columns:
        times[name].append(((expected_at - asked_at).total_seconds(), (came_at - asked_at).total_seconds()))
    return {
        name: Foretold(
            len(pairs),
            median(expected for expected, _ in pairs),
            median(came for _, came in pairs),
            median(abs(expected - came) for expected, came in pairs),
        )
        for name, pairs in times.items()
    }


def drain(its_lanes: Sequence[Lane], workers: int, paused: bool, rates: Rates) -> tuple[float | None, str]:
    """Seconds until what waits now is explored, later stages included, and how that was reckoned."""
    queued = sum(lane.queued for lane in its_lanes)
    if not queued:
        return 0.0, "Nothing waits."
    if paused:
        return None, "It is paused."
    if not workers:
        return None, "No live worker serves it."
    first, contest, tuning = (rates.pace(stage) for stage in Stage)
    seconds = 0.0
    for lane in its_lanes:
        if lane.stage == Stage.TUNE:
            seconds += lane.slices_left * tuning.seconds
        else:
            both = contest.seconds + (first.seconds if lane.stage == Stage.FIRST else 0.0)
            seconds += lane.queued * both
    live = f"{workers} worker{'s' if workers > 1 else ''}"
    how = f"For {live}. A first result takes {first}; a contest {contest}; a slice of tuning {tuning}."
    return seconds / workers, how


def throughput(visible: Q, now: datetime, hours: int = HOURS) -> list[HourSlot]:
    """The last hours, this one included, the empty ones too: two statements."""
    end = now.replace(minute=0, second=0, microsecond=0)
    starts = [end - timedelta(hours=back) for back in range(hours - 1, -1, -1)]
    found = Exploration.objects.filter(visible)
    sums: dict[datetime, dict[str, int]] = {start: {} for start in starts}
    ended = found.filter(finished_at__gte=starts[0], finished_at__lte=now, state__in=ENDS)
    by_key = {f"{start:%Y-%m-%d %H}": start for start in starts}
    counted = ended.annotate(hour=HourKey("finished_at")).values_list("hour", "state")
    for hour, state, count in counted.annotate(n=Count("pk")).order_by():
        sums[by_key[hour]][state] = count
    first = found.filter(first_result_at__gte=starts[0], first_result_at__lte=now)
    begun = first.annotate(hour=HourKey("first_result_at")).values_list("hour")
    for hour, count in begun.annotate(n=Count("pk")).order_by():
        sums[by_key[hour]]["first_results"] = count
    return [HourSlot(start, **sums[start]) for start in starts]


def dead_letters(visible: Q) -> QuerySet[Exploration]:
    """Explorations that were given up, with their errors, the latest first."""
    return (
        Exploration.objects.filter(visible, state=State.DEAD)
        .select_related("operator")
        .defer("operator__graph")
        .order_by("-finished_at", "-pk")
    )
