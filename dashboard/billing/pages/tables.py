"""Billing's tables: what stands on its pages and is exported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.urls import reverse

from dashboard.billing import words
from dashboard.billing.models import Kind, LedgerEntry, PriceRule
from dashboard.billing.preview import OrganisationPreview
from dashboard.billing.selectors import DaySum, OrganisationSum, SpendingSum, WithheldSum
from dashboard.web.tables import Column, Table, page

MOST_NAMED = 20

_ORGANISATION = Column("organisation", "Organisation")


def days_table(sums: Sequence[DaySum], currency: str) -> Table:
    columns = (
        Column("day", "Day (UTC)"),
        Column("method", "Method", "method"),
        Column("hits_billed", "Hits billed", "count", figure="hits_billed"),
        Column("charged_micros", "Charged", "money", beside=lambda one: currency, figure="charged"),
        Column("saved_s", "Time saved", "seconds", lambda one: one.saved_us / 1e6, figure="saved_per_unit"),
    )
    every, empty = sums[::-1], "Nothing was charged in this time."
    return Table("charges", "Charges by day and method", columns, every[:62], empty, every)


_WITHHELD = (
    Column("operator", "Operator", value="summary", link=page("operator", "operator"), css="lead"),
    Column("route", "Route", "method"),
    Column("times", "Asked for", "count", figure="withheld_asked"),
    Column("price_micros", "Price of a hit", "money", figure="list_price"),
    Column("last_at", "Last", "when"),
)


def withheld_table(rows: Sequence[WithheldSum], several: bool) -> Table:
    columns = (_ORGANISATION, *_WITHHELD) if several else _WITHHELD
    return Table("withheld", "Asked for and withheld", columns, rows, "Nothing was withheld.")


_SPENDING = (
    Column("job", "Job"),
    Column("spent_micros", "Spent", "money", figure="spent"),
    Column("limit_micros", "Its limit", "money"),
    Column("left_micros", "Left", "money"),
    Column("uses", "Uses", "count", figure="uses_billed"),
    Column("last_at", "Last", "when"),
    Column("ended_at", "Ended", "when"),
    Column("end", "Actions", "actions", part="billing/_end_spending.html", only="page"),
)


def spending_table(rows: Sequence[SpendingSum], several: bool) -> Table:
    columns = (_ORGANISATION, *_SPENDING) if several else _SPENDING
    return Table("spending", "Jobs with a spend limit", columns, rows, "No job has set a limit.")


_MODES = {"prompt": "charged, with a prompt to pay", "withhold": "withheld", "free": "free"}


def prices_table(rows: Sequence[PriceRule], *, manage: bool = False) -> Table:
    columns = (
        Column("name", "Price", link=page("billing-rule", "line") if manage else None),
        Column("sentence", "In words", value=lambda row: words.sentence(row), css="wide-text lead"),
        Column("organisation", "Organisation", value=lambda row: str(row.organisation or "all")),
        Column("mode", "If it is not covered", value=lambda row: _MODES[row.mode]),
        Column("priority", "Priority", "count"),
        Column("version", "Version", "count"),
        Column("from_at", "Since", "when"),
        Column("until_at", "Until", "when"),
    )
    return Table("prices", "Prices", columns, rows, "No price: every hit is free.")


_PREVIEW = (
    Column("organisation", "Organisation"),
    Column("hits", "Hits", "count"),
    Column("micros", "Would have paid", "money"),
)


def preview_table(rows: Sequence[OrganisationPreview]) -> Table:
    """Who would have paid what last month; the most on top."""
    return Table("preview", "Last month", _PREVIEW, rows[:MOST_NAMED], "Nobody had such a hit last month.")


def _summary(entry: LedgerEntry) -> str:
    """Of the operator, which may be gone: as ``selectors.ledger`` gives it along."""
    return getattr(entry, "summary", None) or ""


def _what(entry: LedgerEntry) -> str:
    return _summary(entry) or entry.operator_key or entry.reason


def _uses(entry: LedgerEntry) -> int | None:
    return entry.uses if entry.kind == Kind.CHARGE else None


def _listed(entry: LedgerEntry) -> int | None:
    return entry.list_micros if entry.kind == Kind.CHARGE else None


def _operator(entry: LedgerEntry) -> str:
    return reverse("operator", args=[entry.operator_key]) if _summary(entry) else ""


_AT = Column("at", "When", "when")
_KIND = Column("kind", "Kind", "badge")
_WHAT = Column("what", "What", value=_what, link=_operator, css="lead", room_px=170)
_AMOUNT = Column("amount_micros", "Amount", "money", figure="charged", link=page("billing-entry"))
_USES = Column("uses", "Uses", "count", _uses, figure="uses_billed")
_BALANCE = Column("balance_after_micros", "Credit after", "money", figure="credit")


def recent_table(rows: Sequence[LedgerEntry]) -> Table:
    """The ledger's last entries, in few columns."""
    return Table("ledger", "Ledger", (_AT, _KIND, _WHAT, _USES, _AMOUNT, _BALANCE), rows, "No entries.")


def ledger_table(
    rows: Sequence[LedgerEntry], several: bool, every: Iterable[LedgerEntry] | None = None
) -> Table:
    columns = (
        _AT,
        *([Column("organisation", "Organisation", value="organisation.name")] if several else []),
        _KIND,
        _WHAT,
        _USES,
        _AMOUNT,
        Column("list_micros", "List price", "money", _listed, figure="list_price"),
        _BALANCE,
        Column("rule_name", "Price", value=lambda entry: str(entry.rule or "")),
        Column("job", "Job", value="job_name"),
        Column("key", value="key_prefix", only="export"),
        Column("agreement", "Agreement", "code", only="export"),
    )
    return Table("ledger", "Ledger", columns, rows, "No entries.", every)


_ORGANISATIONS = (
    Column(
        "organisation", "Organisation", value="organisation.name", link=page("billing-of", "organisation.pk")
    ),
    Column("charged_micros", "Charged", "money", figure="charged"),
    Column("hits_billed", "Hits billed", "count", figure="hits_billed"),
    Column("balance_micros", "Credit", "money", "account.balance_micros", "credit"),
    Column("plan", "Plan", value="account.plan"),
    Column("plan_until", "Until", "when", "account.plan_until"),
    Column("account", "Account", "code", "account.reference", room_px=246),
)


def organisations_table(rows: Sequence[OrganisationSum]) -> Table:
    return Table("organisations", "Organisations", _ORGANISATIONS, rows)
