"""Figures of money (``catalog.figures.money`` says what each means), shared by pages and API.

Sums come from :class:`LedgerDay`, which is kept in the same transactions as the ledger; only
:func:`audit_ledger` reads every entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

from django.db.models import Count, Max, Min, OuterRef, Q, QuerySet, Subquery, Sum
from django.utils import timezone

from catalog.models import Operator, Organisation, Usage
from catalog.timerange import TimeRange
from catalog.usage import closing
from catalog.usage.recording import CHARGED
from dashboard.billing.models import (
    Account,
    Held,
    JobSpending,
    Kind,
    LedgerDay,
    LedgerEntry,
    PriceRule,
)

FORECAST_DAYS = 7
"""The forecast goes by the mean of so many whole days before today."""


@dataclass(frozen=True)
class Money:
    """What a range of whole days (UTC) came to, in one currency. Amounts in millionths."""

    currency: str
    hits_billed: int = 0  # charges: one for each hit, and for each agreement in a report
    charged_micros: int = 0
    saved_us: float = 0.0  # of hits billed
    credited_micros: int = 0  # payments and credit by hand
    adjusted_micros: int = 0
    refunded_micros: int = 0  # paid back: positive

    @property
    def saved_s_per_unit(self) -> float | None:
        """Seconds saved for each unit of the currency that was charged; None where nothing was."""
        return self.saved_us / self.charged_micros if self.charged_micros else None


@dataclass(frozen=True)
class DaySum:
    """One day's charges of one method."""

    day: date
    method: str
    hits_billed: int
    charged_micros: int
    saved_us: float


@dataclass(frozen=True)
class Forecast:
    """What this month will have been charged by its end, if it goes on like the last whole days."""

    so_far_micros: int
    per_day_micros: float  # the mean of the last FORECAST_DAYS whole days
    days_left: float  # of the month, today's remainder included

    @property
    def micros(self) -> int:
        return round(self.so_far_micros + self.per_day_micros * self.days_left)


def days_of(chosen: TimeRange) -> tuple[date, date]:
    """The first and the last day (UTC) that a range touches: the ledger is summed by whole days."""
    last = (chosen.until - timedelta(microseconds=1)).astimezone(UTC).date()
    return chosen.since.astimezone(UTC).date(), last


def account_of(organisation_id: int) -> Account | None:
    return Account.objects.filter(organisation_id=organisation_id).first()


def totals(owned: Q, first: date, last: date) -> list[Money]:
    """Sums of these days by currency. ``owned`` is ``viewer.owned()``: of one organisation, or of all."""
    rows = (
        LedgerDay.objects.filter(owned, day__range=(first, last))
        .values("organisation__account__currency", "kind")
        .annotate(n=Sum("entries"), amount=Sum("amount_micros"), saved=Sum("saved_us"))
        .order_by()
    )
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        sums = found.setdefault(row["organisation__account__currency"], {})
        if row["kind"] == Kind.CHARGE:
            # -0 is no price.
            sums |= {"hits_billed": row["n"], "charged_micros": -row["amount"], "saved_us": row["saved"]}
        elif row["kind"] == Kind.CREDIT:
            sums["credited_micros"] = row["amount"]
        elif row["kind"] == Kind.REFUND:
            sums["refunded_micros"] = -row["amount"]
        else:
            sums["adjusted_micros"] = row["amount"]
    return [Money(currency, **sums) for currency, sums in sorted(found.items())]


def by_day(owned: Q, first: date, last: date) -> list[DaySum]:
    """Charges by day and method, the earliest first."""
    rows = (
        LedgerDay.objects.filter(owned, kind=Kind.CHARGE, day__range=(first, last))
        .values("day", "method")
        .annotate(n=Sum("entries"), amount=Sum("amount_micros"), saved=Sum("saved_us"))
        .order_by("day", "method")
    )
    return [DaySum(row["day"], row["method"], row["n"], -row["amount"], row["saved"]) for row in rows]


def drift(owned: Q) -> int:
    """By how much balances differ from the sums of their ledgers, in millionths: always 0."""
    balances = Account.objects.filter(owned).aggregate(sum=Sum("balance_micros"))["sum"] or 0
    booked = LedgerDay.objects.filter(owned).aggregate(sum=Sum("amount_micros"))["sum"] or 0
    return balances - booked


@dataclass(frozen=True)
class AccountAudit:
    """One account held against every entry of its ledger."""

    account: Account
    ledger_micros: int
    day_micros: int
    charges: int
    charged_usages: int  # usage rows of its charged segments

    @property
    def is_right(self) -> bool:
        return (
            self.account.balance_micros == self.ledger_micros == self.day_micros
            and self.charges == self.charged_usages
        )


def audit_ledger() -> list[AccountAudit]:
    """Every account against all of its entries, and its charges against the usage rows that were written to
    be charged, from the first on that is kept: reads the whole ledger."""
    ledger = dict(
        LedgerEntry.objects.values_list("organisation").annotate(amount=Sum("amount_micros")).order_by()
    )
    days = dict(
        LedgerDay.objects.values_list("organisation").annotate(amount=Sum("amount_micros")).order_by()
    )
    used: Any = Usage.objects.filter(segment__startswith=CHARGED).values("organisation")
    usages = {row["organisation"]: row for row in used.annotate(n=Count("pk"), first=Min("pk")).order_by()}
    closed_before = closing.closed_before()
    return [
        AccountAudit(
            account,
            ledger.get(account.organisation_id, 0),
            days.get(account.organisation_id, 0),
            _charges(account, usages.get(account.organisation_id, {}).get("first", 0), closed_before),
            usages.get(account.organisation_id, {}).get("n", 0),
        )
        for account in Account.objects.select_related("organisation").order_by("pk")
    ]


def _charges(account: Account, first_usage: int, closed_before: datetime) -> int:
    """How many; where older usage is forgotten by rule, those of usage that is still there."""
    charges = LedgerEntry.objects.filter(organisation=account.organisation_id, kind=Kind.CHARGE)
    if closed_before > closing.EVER:
        # Rows are numbered in the order of their entries: both are written under the account's lock.
        charges = charges.filter(usage_number__gte=first_usage, at__gte=closed_before)
    return charges.count()


def forecast(owned: Q, now: datetime | None = None) -> Forecast:
    """By the mean of the last seven whole days."""
    now = (now or timezone.now()).astimezone(UTC)
    today = now.date()
    month = today.replace(day=1)
    next_month = (month + timedelta(days=32)).replace(day=1)
    charges = LedgerDay.objects.filter(owned, kind=Kind.CHARGE)
    sums = charges.aggregate(
        so_far=Sum("amount_micros", filter=Q(day__gte=month)),
        week=Sum(
            "amount_micros", filter=Q(day__range=(today - timedelta(days=FORECAST_DAYS), _before(today)))
        ),
    )
    ends = datetime.combine(next_month, datetime.min.time(), UTC)
    return Forecast(
        -(sums["so_far"] or 0), -(sums["week"] or 0) / FORECAST_DAYS, (ends - now) / timedelta(days=1)
    )


def _before(day: date) -> date:
    return day - timedelta(days=1)


@dataclass(frozen=True)
class LedgerFilters:
    """What part of a ledger is asked for; empty: all. ``before``: entries with a smaller number."""

    kind: str = ""
    method: str = ""
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None


def ledger(owned: Q, filters: LedgerFilters) -> QuerySet[LedgerEntry]:
    """Entries, the newest first, with the operator's ``summary`` where there is one. Take a slice."""
    query = LedgerEntry.objects.filter(owned)
    if filters.kind:
        query = query.filter(kind=filters.kind)
    if filters.method:
        query = query.filter(method=filters.method)
    if filters.since:
        query = query.filter(at__gte=filters.since)
    if filters.until:
        query = query.filter(at__lt=filters.until)
    if filters.before is not None:
        query = query.filter(pk__lt=filters.before)
    operators = Operator.objects.filter(key=OuterRef("operator_key"))
    query = query.annotate(summary=Subquery(operators.values("summary")[:1]))
    return query.select_related("organisation", "rule").order_by("-pk")


def hit_of(entry: LedgerEntry) -> Usage | None:
    """The served hit that a charge belongs to; None for other entries, and once its month is forgotten."""
    if entry.usage_number is None:
        return None
    rows = Usage.objects.filter(pk=entry.usage_number, organisation=entry.organisation_id)
    heavy = ("operator__graph", "implementation__source", "implementation__schedule")
    return rows.select_related("job", "operator", "implementation").defer(*heavy).first()


@dataclass(frozen=True)
class WithheldSum:
    """An implementation that was asked for and withheld."""

    organisation: str
    operator: str  # its key
    implementation: int
    method: str
    route: str
    times: int
    price_micros: int
    currency: str | None
    last_at: datetime
    summary: str  # the operator's


_WITHHELD = (
    "organisation__name",
    "implementation__operator__key",
    "implementation",
    "implementation__method",
    "implementation__route",
    "asked",
    "price",
    "organisation__account__currency",
    "last",
    "implementation__operator__summary",
)
"""Columns of a :class:`WithheldSum`."""


def withheld_lately(owned: Q, first: date, last: date, most: int = 50) -> list[WithheldSum]:
    """What was withheld in these days, by implementation, the most asked for first."""
    rows = Held.objects.filter(owned, day__range=(first, last)).values("organisation", "implementation")
    sums = rows.annotate(asked=Sum("times"), price=Max("price_micros"), last=Max("last_at"))
    found = sums.order_by("-asked", "implementation_id").values_list(*_WITHHELD)
    return [WithheldSum(*row) for row in found[:most]]


@dataclass(frozen=True)
class WithheldTotal:
    """How often lookups were left empty because the hit had to be paid first, in one currency."""

    currency: str | None
    times: int
    implementations: int
    organisations: int
    least_micros: int  # of one hit, as last asked for
    most_micros: int


def withheld_totals(owned: Q, first: date, last: date, operator: int | None = None) -> list[WithheldTotal]:
    """Of these days, by currency; of everything, or of one operator's implementations."""
    rows = Held.objects.filter(owned, day__range=(first, last))
    if operator is not None:
        rows = rows.filter(implementation__operator=operator)
    sums = (
        rows.values("organisation__account__currency")
        .order_by()
        .annotate(
            asked=Sum("times"),
            made=Count("implementation", distinct=True),
            payers=Count("organisation", distinct=True),
            least=Min("price_micros"),
            most=Max("price_micros"),
        )
    )
    columns = ("organisation__account__currency", "asked", "made", "payers", "least", "most")
    return [WithheldTotal(*row) for row in sums.order_by("-asked").values_list(*columns)]


@dataclass(frozen=True)
class SpendingSum:
    """What a job spent under the limit that it set."""

    organisation: str
    id: int
    job: str
    limit_micros: Annotated[int, "As the job's last lookup said."]
    spent_micros: int
    uses: Annotated[int, "Lookups that were charged, and uses that clients reported and the limit covered."]
    last_at: datetime
    ended_at: Annotated[datetime | None, "Null while it goes on."]
    currency: str | None

    @property
    def left_micros(self) -> int:
        """What it may still spend; nothing once it has ended."""
        return 0 if self.ended_at else max(0, self.limit_micros - self.spent_micros)


def spendings(owned: Q, most: int = 20) -> list[SpendingSum]:
    """Of jobs that set a limit, the latest first, those that ended too."""
    columns = ("organisation__name", "id", "job", "limit_micros", "spent_micros", "uses")
    more = ("last_at", "ended_at", "organisation__account__currency")
    rows = JobSpending.objects.filter(owned).order_by("-last_at", "-pk")
    return [SpendingSum(*row) for row in rows.values_list(*columns, *more)[:most]]


def rules(organisation_id: int | None = None, *, ended: bool = False) -> QuerySet[PriceRule]:
    """Price rules that are in force or to come, and those that ended too where asked for; those that could
    apply to one organisation, or all."""
    query = PriceRule.objects.select_related("organisation")
    if organisation_id is not None:
        query = query.filter(Q(organisation=None) | Q(organisation=organisation_id))
    if not ended:
        query = query.filter(Q(until_at=None) | Q(until_at__gt=timezone.now()))
    return query.order_by("-priority", "name", "-version", "pk")


@dataclass(frozen=True)
class OrganisationSum:
    """An organisation with its account and what it was charged in some days."""

    organisation: Organisation
    account: Account
    hits_billed: int
    charged_micros: int

    @property
    def currency(self) -> str:
        return self.account.currency


def organisations(first: date, last: date) -> list[OrganisationSum]:
    """Every organisation: two statements."""
    charged = (
        LedgerDay.objects.filter(kind=Kind.CHARGE, day__range=(first, last))
        .values_list("organisation")
        .annotate(Sum("entries"), Sum("amount_micros"))
        .order_by()
    )
    sums = {pk: (entries, -amount) for pk, entries, amount in charged}
    return [
        OrganisationSum(row, getattr(row, "account", None) or Account.none(), *sums.get(row.pk, (0, 0)))
        for row in Organisation.objects.select_related("account").order_by("name")
    ]


def prices_of(organisation_id: int) -> list[PriceRule]:
    """Rules in force for an organisation, in the order in which they are tried; those in another currency
    than its account's never apply."""
    account = account_of(organisation_id)
    now = timezone.now()
    return [
        rule
        for rule in sorted(rules(organisation_id), key=lambda rule: rule.order)
        if rule.holds(organisation_id, now) and (account is None or rule.currency == account.currency)
    ]
