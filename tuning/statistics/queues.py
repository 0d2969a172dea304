"""The explore queues: how much waits, how old it is, what it is worth, and how fast it goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from statistics import median
from typing import Any

from django.db.models import CharField, Count, F, Func, Min, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from tuning.models import Exploration, Pause, Stage, State
from tuning.priority import priority_name
from tuning.queue.rates import Rates
from tuning.queue.waits import busy_by, held_now, newcomers_waits
from tuning.statistics.workers import Fleet, fleet

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


@dataclass(frozen=True, slots=True)
class EndedCount:
    """Explorations that ended alike, within the last day and one hour: how many, and how many of them within
    the sixty minutes before now."""

    hour: str  # as HourKey has it
    capability: str
    state: str
    count: int
    lately: int


def ended(visible: Q, now: datetime) -> list[EndedCount]:
    """What ended within the last day. One statement."""
    day_ago, hour_ago = now - timedelta(hours=HOURS), now - timedelta(hours=1)
    rows = Exploration.objects.filter(visible, state__in=ENDS, finished_at__gte=day_ago, finished_at__lte=now)
    counted = rows.annotate(hour=HourKey("finished_at")).values_list("hour", "capability", "state")
    lately = Count("pk", filter=Q(finished_at__gte=hour_ago))
    return [EndedCount(*row) for row in counted.annotate(n=Count("pk"), lately=lately).order_by()]


class WorkNow:
    """What waits, what is held and who works now, of what may be seen: each is read when it is first asked
    for, and once, whatever a page says of it."""

    def __init__(self, visible: Q, now: datetime) -> None:
        self.visible, self.now = visible, now

    @cached_property
    def fleet(self) -> Fleet:
        return fleet()

    @cached_property
    def lanes(self) -> list[Lane]:
        return lanes(self.visible)

    @cached_property
    def held(self) -> list[Exploration]:
        return list(held_now(self.visible))

    @cached_property
    def pauses(self) -> list[Pause]:
        return list(Pause.objects.order_by("capability"))

    @cached_property
    def ended(self) -> list[EndedCount]:
        return ended(self.visible, self.now)


def capability_queues(work: WorkNow, rates: Rates) -> list[CapabilityQueue]:
    """By capability, those of live workers that have nothing to do included: two statements beside what
    ``work`` reads."""
    by_capability: dict[str, list[Lane]] = defaultdict(list)
    for lane in work.lanes:
        by_capability[lane.capability].append(lane)
    workers = Counter(one.target.capability for one in work.fleet.live)
    waits, came = _longest_waits(work, rates), foretold(work.visible, work.now)
    pauses = {one.capability: one.reason for one in work.pauses}
    day, hour = Counter[str](), Counter[str]()
    for one in work.ended:
        day[one.capability] += one.count
        hour[one.capability] += one.lately
    names = sorted({*by_capability, *workers, *(name for name in pauses if name != "*")})
    found = []
    for name in names:
        mine, serving = tuple(by_capability[name]), workers[name]
        paused = pauses.get("*", pauses.get(name))
        drain_s, how = drain(mine, serving, paused is not None, rates)
        wait_s = waits.get(name) if paused is None else None
        found.append(
            CapabilityQueue(
                name, mine, serving, paused, hour[name], day[name], drain_s, how, wait_s, came.get(name)
            )
        )  # fmt: skip
    return found


def _longest_waits(work: WorkNow, rates: Rates) -> dict[str, float]:
    """Capability → what an operator that is asked for now waits, on the target of it that is worst off."""
    live = work.fleet.live
    busy = busy_by(((one.name, one.target_id) for one in live), work.held, Stage.FIRST, rates)
    names = {one.target_id: one.target.capability for one in live}
    found: dict[str, float] = {}
    for target, wait in newcomers_waits(busy, rates, work.visible).items():
        found[names[target]] = max(found.get(names[target], 0.0), wait.seconds or 0.0)
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


def throughput(work: WorkNow) -> list[HourSlot]:
    """The last hours, this one included, the empty ones too: one statement beside what ``work`` reads."""
    end = work.now.replace(minute=0, second=0, microsecond=0)
    starts = [end - timedelta(hours=back) for back in range(HOURS - 1, -1, -1)]
    sums = {f"{start:%Y-%m-%d %H}": Counter[str]() for start in starts}
    for one in work.ended:
        if one.hour in sums:  # the day begins within the hour before the first
            sums[one.hour][one.state] += one.count
    first = Exploration.objects.filter(
        work.visible, first_result_at__gte=starts[0], first_result_at__lte=work.now
    )
    begun = first.annotate(hour=HourKey("first_result_at")).values_list("hour")
    for hour, count in begun.annotate(n=Count("pk")).order_by():
        sums[hour]["first_results"] = count
    return [HourSlot(start, **counts) for start, counts in zip(starts, sums.values(), strict=True)]


def dead_letters(visible: Q) -> QuerySet[Exploration]:
    """Explorations that were given up, with their errors, the latest first."""
    return (
        Exploration.objects.filter(visible, state=State.DEAD)
        .select_related("operator")
        .defer("operator__graph")
        .order_by("-finished_at", "-pk")
    )
