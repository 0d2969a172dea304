"""Which subscriptions an event concerns: a few statements for a batch of events, none for one event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from django.db.models import Q, QuerySet

from catalog.models import Operator, Target
from catalog.search import Words
from dashboard.notifications.events import Event
from dashboard.notifications.models import Happening, SubjectKind, Subscription
from dashboard.notifications.write.audiences import audiences, may_hear

Pair = tuple[Subscription, Event]
_OF_ALERTS = (SubjectKind.SERVICE, SubjectKind.ACCOUNT)


@dataclass(frozen=True)
class OperatorFilter:
    """The operators' list's filters, over one operator and one event."""

    words: Words
    op_type: str = ""
    dtype: str = ""
    method: str = ""
    target_id: int | None = None  # 0: a target that does not exist

    @classmethod
    def of(cls, filters: dict[str, str], targets: dict[str, int]) -> OperatorFilter:
        """From what a subscription keeps; ``targets`` maps keys to rows."""
        target = filters.get("target", "")
        return cls(
            Words.of(filters.get("q", "")),
            filters.get("op_type", ""),
            filters.get("dtype", ""),
            filters.get("method", ""),
            targets.get(target, 0) if target else None,
        )

    def passes(self, operator: Operator, event: Event) -> bool:
        """As the list filters: by the same words, and what the event tells of method and target."""
        if self.dtype and operator.dtype != self.dtype:
            return False
        if self.method and event.method != self.method:
            return False
        if self.target_id is not None and event.target_id != self.target_id:
            return False
        if self.op_type and operator.op_type != self.op_type:
            return False
        return self.words.match(operator)


class Matcher:
    """Subscriptions to one kind of event, asked batch by batch; filters are read once."""

    def __init__(self, happening: Happening | None) -> None:
        """None: alerts, of which each event says what it is."""
        told = {f"on_{happening.value}": True} if happening else {"subject__in": _OF_ALERTS}
        wanted = Subscription.objects.filter(**told, user__is_active=True)
        self._wanted = wanted.select_related("job", "model")
        self._hits = happening == Happening.HIT
        self._is_alert = happening is None
        self._filters: list[tuple[OperatorFilter, list[Subscription]]] | None = None

    def pairs(self, events: Sequence[Event]) -> list[Pair]:
        """Who is to be told of what: those that may hear of it, of what happened since they subscribed."""
        if not events:
            return []
        found = {(one.pk, event.key): (one, event) for one, event in self._found(events)}
        heard_by = audiences(list({one.pk: one for one, _ in found.values()}.values()))
        return [
            (one, event)
            for one, event in found.values()
            if event.at >= one.created_at and may_hear(one, heard_by[one.pk], event)
        ]

    def _found(self, events: Sequence[Event]) -> Iterator[Pair]:
        if self._is_alert:
            for one, event in product(self._wanted, events):
                if getattr(one, f"on_{event.happening.value}"):
                    yield one, event
            return
        by_operator: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            by_operator[event.operator_id or 0].append(event)
        yield from self._of_operators(by_operator)
        yield from self._of_jobs(events, by_operator)
        yield from self._through(by_operator, SubjectKind.MODEL)
        yield from self._of_filters(by_operator)

    def _of_operators(self, by_operator: dict[int, list[Event]]) -> Iterator[Pair]:
        for one in self._wanted.filter(subject=SubjectKind.OPERATOR, operator_id__in=by_operator):
            for event in by_operator[one.operator_id or 0]:
                if one.target_id in (None, event.target_id) and one.setting_id in (None, event.setting_id):
                    yield one, event

    def _of_jobs(self, events: Sequence[Event], by_operator: dict[int, list[Event]]) -> Iterator[Pair]:
        if not self._hits:
            yield from self._through(by_operator, SubjectKind.JOB)
            return
        of_job: dict[int, list[Event]] = defaultdict(list)
        for event in events:
            if event.job_id is not None:
                of_job[event.job_id].append(event)
        for one in self._wanted.filter(subject=SubjectKind.JOB, job_id__in=of_job):
            for event in of_job[one.job_id or 0]:
                yield one, event

    def _through(self, by_operator: dict[int, list[Event]], subject: SubjectKind) -> Iterator[Pair]:
        """Of jobs or models: by the operators that they have."""
        column = f"{subject.value}__operators__operator_id"
        wanted: QuerySet[Subscription] = self._wanted.filter(
            Q(subject=subject), Q(**{f"{column}__in": list(by_operator)})
        )
        links = list(wanted.values_list("pk", column))
        rows = self._wanted.in_bulk({pk for pk, _ in links})
        for pk, operator in links:
            for event in by_operator.get(operator, ()):
                yield rows[pk], event

    def _of_filters(self, by_operator: dict[int, list[Event]]) -> Iterator[Pair]:
        if self._filters is None:
            self._filters = _read_filters(self._wanted.filter(subject=SubjectKind.FILTER))
        if not self._filters:
            return
        operators = Operator.objects.only("key", "summary", "op_type", "dtype").in_bulk(list(by_operator))
        for number, events in by_operator.items():
            operator = operators.get(number)
            if operator is not None:
                yield from _passing(self._filters, operator, events)


def _passing(
    filters: Iterable[tuple[OperatorFilter, list[Subscription]]], operator: Operator, events: list[Event]
) -> Iterator[Pair]:
    for one, subscriptions in filters:
        for event in events:
            if one.passes(operator, event):
                for subscription in subscriptions:
                    yield subscription, event


def _read_filters(rows: QuerySet[Subscription]) -> list[tuple[OperatorFilter, list[Subscription]]]:
    """Equal filters are asked once, however many people have them."""
    found = list(rows)
    named = {one.filters["target"] for one in found if one.filters.get("target")}
    targets = dict(Target.objects.filter(key__in=named).values_list("key", "pk"))
    grouped: dict[OperatorFilter, list[Subscription]] = defaultdict(list)
    for one in found:
        grouped[OperatorFilter.of(one.filters, targets)].append(one)
    return list(grouped.items())
