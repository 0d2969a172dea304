"""Billing's tables: what stands on its pages and is exported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.urls import reverse

from dashboard.billing import words
from dashboard.billing.models import LedgerEntry, PriceRule
from dashboard.billing.rules import rule_of
from dashboard.billing.selectors import DaySum, entry_row
from dashboard.web.tables import Column, Table


def days_table(sums: Sequence[DaySum], currency: str) -> Table:
    rows = [
        {
            "day": one.day,
            "route": one.method,
            "method": one.method,
            "hits_billed": one.hits_billed,
            "charged_micros": one.charged_micros,
            "currency": currency,
            "saved_s": one.saved_us / 1e6,
        }
        for one in reversed(sums)
    ]
    return Table(
        "charges",
        "Charges by day and method",
        [
            Column("day", "Day (UTC)"),
            Column("method", "Method", "method"),
            Column("hits_billed", "Hits billed", "count", figure="hits_billed"),
            Column("charged_micros", "Charged", "money", figure="charged"),
            Column("saved_s", "Time saved", "seconds", figure="saved_per_unit"),
        ],
        rows[:62],
        empty="Nothing was charged in this time.",
        every=rows,
    )


def withheld_table(rows: Sequence[Mapping[str, Any]], several: bool) -> Table:
    shown = [{**row, "address": reverse("operator", args=[row["operator_key"]])} for row in rows]
    columns = [
        Column("operator", "Operator", link="address"),
        Column("route", "Route", "method"),
        Column("times", "Asked for", "count", figure="withheld_asked"),
        Column("price_micros", "Price of a hit", "money", figure="list_price"),
        Column("last_at", "Last", "when"),
    ]
    if several:
        columns.insert(0, Column("organisation", "Organisation"))
    return Table("withheld", "Asked for and withheld", columns, shown, empty="Nothing was withheld.")


def prices_table(rows: Sequence[PriceRule], *, manage: bool = False) -> Table:
    return Table(
        "prices",
        "Prices",
        [
            Column("name", "Price", link="address"),
            Column("sentence", "In words"),
            Column("organisation", "Organisation"),
            Column("mode", "If it is not covered"),
            Column("priority", "Priority", "count"),
            Column("version", "Version", "count"),
            Column("from_at", "Since", "when"),
            Column("until_at", "Until", "when"),
        ],
        [_rule(row, manage) for row in rows],
        empty="No price: every hit is free.",
    )


_MODES = {"prompt": "charged, with a prompt to pay", "withhold": "withheld", "free": "free"}


def _rule(row: PriceRule, manage: bool) -> dict[str, Any]:
    return {
        "name": row.name,
        "sentence": words.sentence(rule_of(row)),
        "organisation": row.organisation.name if row.organisation else "all",
        "mode": _MODES[row.mode],
        "priority": row.priority,
        "version": row.version,
        "from_at": row.from_at,
        "until_at": row.until_at,
        "address": reverse("billing-rule", args=[row.line]) if manage else "",
    }


def recent_table(rows: Sequence[LedgerEntry]) -> Table:
    """The ledger's last entries, in few columns."""
    whole = ledger_table(rows, False)
    kept = ("at", "kind", "what", "amount_micros", "balance_after_micros")
    return replace(whole, columns=[column for column in whole.columns if column.key in kept])


def ledger_table(
    rows: Sequence[LedgerEntry], several: bool, every: Iterable[LedgerEntry] | None = None
) -> Table:
    columns = [
        Column("at", "When", "when"),
        Column("kind", "Kind", "badge"),
        Column("what", "What", link="address"),
        Column("amount_micros", "Amount", "money", figure="charged"),
        Column("list_micros", "List price", "money", figure="list_price"),
        Column("balance_after_micros", "Credit after", "money", figure="credit"),
        Column("rule_name", "Price", link="rule_address"),
        Column("job", "Job"),
    ]
    if several:
        columns.insert(1, Column("organisation", "Organisation"))
    return Table(
        "ledger",
        "Ledger",
        columns,
        [ledger_row(row) for row in rows],
        empty="No entries.",
        every=None if every is None else (ledger_row(row) for row in every),
    )


def ledger_row(entry: LedgerEntry) -> dict[str, Any]:
    usage, row = entry.usage, entry_row(entry)
    return row | {
        "what": usage.operator.summary if usage else entry.reason,
        "address": reverse("operator", args=[usage.operator.key]) if usage else "",
        "list_micros": entry.list_micros if usage else None,
        "rule_name": str(entry.rule) if entry.rule else "",
        "rule_address": "",
    }


def organisations_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = [{**row, "address": reverse("billing-of", args=[row["number"]])} for row in rows]
    return Table(
        "organisations",
        "Organisations",
        [
            Column("organisation", "Organisation", link="address"),
            Column("charged_micros", "Charged", "money", figure="charged"),
            Column("hits_billed", "Hits billed", "count", figure="hits_billed"),
            Column("balance_micros", "Credit", "money", figure="credit"),
            Column("plan", "Plan"),
            Column("plan_until", "Until", "when"),
            Column("account", "Account", "code"),
        ],
        shown,
    )
