"""An invented price and the ledger that it gives: hits of tenants by hand-written kernels are charged.

Counted from the usage rows by the database itself, so that charges, balances and sums agree to the unit.
"""

from __future__ import annotations

from datetime import timedelta

from django.db import connection

from bench.seed.catalogue import World
from bench.seed.implementations import NAME
from catalog.models import Operator, Organisation, Usage
from dashboard.billing.models import (
    Account,
    Kind,
    LedgerDay,
    LedgerEntry,
    MonthCount,
    Plan,
    PriceRule,
    Purchase,
)

CURRENCY = "EUR"
PRICE_MICROS = 200
CREDIT_MICROS = 5_000_000_000
LOADED = (LedgerEntry, LedgerDay, MonthCount, Purchase)


def add_money(world: World) -> None:
    """A rule, an account with credit for each tenant, and a charge for each hit by a manual kernel."""
    tenants = world.organisations[1:]
    rule = PriceRule.objects.create(
        name=f"{NAME}: manual kernels",
        method="manual",
        currency=CURRENCY,
        per_hit_micros=PRICE_MICROS,
        from_at=world.began,
        created_by=NAME,
    )
    for organisation in Organisation.objects.filter(pk__in=tenants):
        Account.objects.create(organisation=organisation, currency=CURRENCY, plan=Plan.NONE)
        LedgerEntry.objects.create(
            organisation=organisation, at=world.began - timedelta(hours=1), kind=Kind.CREDIT,
            amount_micros=CREDIT_MICROS, currency=CURRENCY, balance_after_micros=CREDIT_MICROS,
            reason=NAME, actor=NAME,
        )  # fmt: skip
    with connection.cursor() as cursor:
        for statement in _statements(rule.pk, rule.line.hex):
            cursor.execute(statement)


def _statements(rule: int, line: str) -> list[str]:
    usage, entry, operator = (model._meta.db_table for model in (Usage, LedgerEntry, Operator))
    host = f"SELECT id FROM {Organisation._meta.db_table} WHERE host"
    day = "served_at::date" if connection.vendor == "postgresql" else "date(served_at)"
    month = (
        "date_trunc('month', served_at)::date"
        if connection.vendor == "postgresql"
        else "date(served_at, 'start of month')"
    )
    credited = day.replace("served_at", "at")
    charged = f"{usage} WHERE method = 'manual' AND organisation_id NOT IN ({host})"
    # The database numbers entries itself, as it does in use: charges in the order of their usage rows.
    return [
        f"""INSERT INTO {entry} (organisation_id, at, kind, amount_micros, currency, balance_after_micros,
                usage_id, operator_key, rule_id, list_micros, method, route,
                reason, actor, provider, event_id, event_sha256)
            SELECT organisation_id, served_at, 'charge', -{PRICE_MICROS}, '{CURRENCY}', {CREDIT_MICROS}
                - {PRICE_MICROS} * row_number() OVER (PARTITION BY organisation_id ORDER BY id),
                id, (SELECT key FROM {operator} WHERE {operator}.id = operator_id), {rule},
                {PRICE_MICROS}, method, route, '', '', '', '', '' FROM {charged} ORDER BY id""",
        f"""INSERT INTO {LedgerDay._meta.db_table}
                (organisation_id, day, kind, method, entries, amount_micros, saved_us)
            SELECT organisation_id, {day}, 'charge', method, count(*), -{PRICE_MICROS} * count(*),
                sum(calls * (default_us - median_us))
            FROM {charged} GROUP BY organisation_id, {day}, method""",
        f"""INSERT INTO {LedgerDay._meta.db_table}
                (organisation_id, day, kind, method, entries, amount_micros, saved_us)
            SELECT organisation_id, {credited}, kind, '', count(*), sum(amount_micros), 0
            FROM {entry} WHERE kind = 'credit' GROUP BY organisation_id, {credited}, kind""",
        f"""INSERT INTO {MonthCount._meta.db_table}
                (organisation_id, line, month, operator_number, hits, amount_micros)
            SELECT organisation_id, '{line}', {month}, 0, count(*), {PRICE_MICROS} * count(*)
            FROM {charged} GROUP BY organisation_id, {month}""",
        f"""INSERT INTO {Purchase._meta.db_table} (organisation_id, implementation_id, first_at)
            SELECT organisation_id, implementation_id, min(served_at)
            FROM {charged} GROUP BY organisation_id, implementation_id""",
        f"""UPDATE {Account._meta.db_table} SET balance_micros = (SELECT coalesce(sum(amount_micros), 0)
            FROM {entry} WHERE {entry}.organisation_id = {Account._meta.db_table}.organisation_id)""",
    ]
