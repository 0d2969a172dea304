"""Sudden spending: organisations that were charged far more within a day than usual, and for what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.db.models import Sum

from catalog.models import UNNAMED, ApiKey, Operator
from dashboard.billing.models import Account, Kind, LedgerDay, LedgerEntry
from dashboard.conf import conf

HISTORY_DAYS = 14
"""How many whole days (UTC) before the last 24 hours define what is usual."""

BUSIEST_TIMES = 1.5
"""A rise must exceed the busiest of these days by this factor: some spend a week's money on one day."""

HOUR_SHARE = 0.5
"""A rise is reported within its first hours if one hour reached this share of a usual day."""

MOST_NAMED = 8
"""The most operators, jobs and keys that explain a charge, each; the rest is one line."""

OTHERS = "all others"
NOT_NOTED = "not noted"
"""For charges older than the noting of keys."""


@dataclass(frozen=True)
class UsualSpending:
    """What an organisation was charged on the days before, from its first charge within them on; ``days`` 0:
    there were none."""

    days: int = 0
    mean_micros: float = 0.0
    busiest_micros: int = 0


@dataclass(frozen=True)
class SuddenSpending:
    """Of one organisation, in the hour and in the day that end ``until``."""

    account: Account
    until: datetime
    hour_micros: int
    day_micros: int
    usual: UsualSpending

    @property
    def since(self) -> datetime:
        return self.until - timedelta(days=1)

    @property
    def times(self) -> float | None:
        """How many usual days the last one came to; None where nothing is usual yet."""
        return self.day_micros / self.usual.mean_micros if self.usual.mean_micros else None


def is_sudden(hour_micros: int, day_micros: int, usual: UsualSpending) -> bool:
    """Whether the last hour and day are far above what is usual. PURE, except for the configuration. Without
    a history only the least amount counts."""
    if day_micros < _least_micros():
        return False
    if not usual.days:
        return True
    if day_micros <= BUSIEST_TIMES * usual.busiest_micros:
        return False
    in_an_hour = hour_micros >= HOUR_SHARE * usual.mean_micros
    return in_an_hour or day_micros >= conf().alert_spend_times * usual.mean_micros


def sudden_spendings(now: datetime) -> Iterator[SuddenSpending]:
    """Organisations with sudden spending now. One statement if nobody was charged the least amount within two
    days; otherwise some more for each that was, however many entries it has."""
    today = now.astimezone(UTC).date()
    lately = _charges().filter(day__gte=today - timedelta(days=1))
    sums = lately.values_list("organisation").annotate(amount=Sum("amount_micros")).order_by()
    much = {number for number, amount in sums if -amount >= _least_micros()}
    usual = _usual(much, (now - timedelta(days=1)).astimezone(UTC).date()) if much else {}
    accounts = Account.objects.filter(organisation__in=much) if much else ()
    for account in sorted(accounts, key=lambda one: one.organisation_id):
        number = account.organisation_id
        day = charged_since(number, now - timedelta(days=1))
        hour = charged_since(number, now - timedelta(hours=1))
        if is_sudden(hour, day, usual.get(number, UsualSpending())):
            yield SuddenSpending(account, now, hour, day, usual.get(number, UsualSpending()))


def charged_since(organisation_id: int, since: datetime) -> int:
    """Exact millionths, from two balances and other movements between: no charge is read."""
    entries = LedgerEntry.objects.filter(organisation=organisation_id)
    columns = ("pk", "balance_after_micros")
    last, balance = entries.order_by("-pk").values_list(*columns).first() or (0, 0)
    earlier = entries.filter(at__lt=since).order_by("-at", "-pk").values_list(*columns)
    first, before = earlier.first() or (0, 0)
    others = [kind for kind in Kind if kind != Kind.CHARGE]
    moved = entries.filter(kind__in=others, pk__gt=first, pk__lte=last)
    sum_: int = moved.aggregate(sum=Sum("amount_micros"))["sum"] or 0
    return before + sum_ - balance


def charged_for(organisation_id: int, since: datetime, until: datetime) -> dict[str, list[dict[str, Any]]]:
    """What an organisation was charged for in this time, the most first: by operator, job and key. Reads its
    charges of that time."""
    entries = LedgerEntry.objects.filter(
        organisation=organisation_id, kind=Kind.CHARGE, at__gte=since, at__lte=until, amount_micros__lt=0
    )
    columns = ("operator_key", "job_name", "key_prefix")
    sums: dict[str, Counter[str]] = {name: Counter() for name in columns}
    uses: dict[str, Counter[str]] = {name: Counter() for name in columns}
    for row in entries.values(*columns).annotate(micros=-Sum("amount_micros"), n=Sum("uses")).order_by():
        for name in columns:
            sums[name][row[name] or ""] += row["micros"]
            uses[name][row[name] or ""] += row["n"]
    named = {name: [text for text, _ in sums[name].most_common(MOST_NAMED)] for name in columns}
    said = (
        _said(Operator.objects.filter(key__in=named["operator_key"]).values_list("key", "summary")),
        {"": UNNAMED},
        {"": NOT_NOTED}
        | _said(ApiKey.objects.filter(prefix__in=named["key_prefix"]).values_list("prefix", "name")),
    )
    kinds = ("operators", "jobs", "keys")
    return {
        kind: list(_lines(sums[name], uses[name], called))
        for kind, name, called in zip(kinds, columns, said, strict=True)
    }


def _said(pairs: Any) -> dict[str, str]:
    return dict(pairs)


def _lines(sums: Counter[str], uses: Counter[str], called: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    shown = sums.most_common(MOST_NAMED)
    for text, micros in shown:
        yield {"id": text, "name": called.get(text, text), "micros": micros, "uses": uses[text]}
    if left := sums.total() - sum(micros for _, micros in shown):
        count = uses.total() - sum(uses[text] for text, _ in shown)
        yield {"id": "", "name": OTHERS, "micros": left, "uses": count}


def _charges() -> Any:
    return LedgerDay.objects.filter(kind=Kind.CHARGE, amount_micros__lt=0)


def _usual(organisations: Collection[int], before: date) -> dict[int, UsualSpending]:
    """By organisation, of the days before that one; none for who had none."""
    history = _charges().filter(
        organisation__in=organisations, day__lt=before, day__gte=before - timedelta(days=HISTORY_DAYS)
    )
    sums = history.values_list("organisation", "day").annotate(amount=-Sum("amount_micros")).order_by()
    spent: dict[int, dict[date, int]] = {}
    for number, day, amount in sums:
        spent.setdefault(number, {})[day] = amount
    return {
        number: UsualSpending(
            days := (before - min(by_day)).days, sum(by_day.values()) / days, max(by_day.values())
        )
        for number, by_day in spent.items()
    }


def _least_micros() -> float:
    return conf().alert_spend_least * 1e6
