"""A month of bills for pages: price rules, charges by real lookups, payments, something withheld."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from unittest import mock

from django.utils import timezone


def bills(factory: Any, days: int = 24) -> Any:
    """Charge the factory's organisation and a tenant, day by day; gives the tenant. Every charge is made by
    the service itself, under a clock that is set back."""
    from catalog import models as c
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup
    from dashboard.billing import accounts, pricelist
    from dashboard.billing.models import PriceRule

    tenant, _ = c.Organisation.objects.get_or_create(name="Tenant Works")
    chance, now = random.Random(11), timezone.now()
    began = now - timedelta(days=days)
    by = {"actor": "admin"}
    drafts = (
        PriceRule(name="Compiled code", currency="EUR", method="compiler", per_hit_micros=4_000,
                  tiers=[{"from_hit": 501, "per_hit_micros": 2_500}], cap_month_micros=40_000_000),
        PriceRule(name="Hand-written kernels", currency="EUR", method="manual", mode="withhold",
                  per_saved_second_micros=60_000, per_hit_micros=20_000, priority=2),
        PriceRule(name="Default library", currency="EUR", route="eager", mode="free", priority=5),
    )  # fmt: skip
    with mock.patch("django.utils.timezone.now", return_value=began):
        for draft in drafts:
            pricelist.add(draft, by)
        accounts.give_credit(tenant, 2_000_000, "Welcome credit", currency="EUR", by=by)
    keys = list(c.Best.objects.filter(rank=0).values_list("operator__key", flat=True))
    for day in range(days):
        with mock.patch("django.utils.timezone.now", return_value=began + timedelta(days=day, minutes=7)):
            if day == days - 3:
                accounts.give_credit(tenant, 25_000_000, "Bank transfer 2026-118", currency="EUR", by=by)
            for organisation, most in ((factory.organisation, 30), (tenant, 18)):
                asked = chance.sample(keys, chance.randint(6, min(most, len(keys))))
                lookup(
                    LookupRequest(
                        target=factory.target,
                        setting=factory.setting,
                        operators=[AskedOperator(key, chance.randint(1, 40) * 50.0) for key in asked],
                        organisation=organisation,
                        job=chance.choice(("nightly-train", "serve-resnet", "notebook")),
                    )
                )
        with mock.patch("django.utils.timezone.now", return_value=began + timedelta(days=day, minutes=9)):
            _limited(factory, factory.organisation, day, keys[day % len(keys)], chance.randint(1, 900))
    return tenant


def _limited(factory: Any, organisation: Any, day: int, key: str, uses: int) -> None:
    """A job that set a limit: one lookup, and a report of what its caches answered."""
    from catalog.charging import SpendLimit
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup

    job = f"fine-tune-{day // 8}"
    request = LookupRequest(
        factory.target, factory.setting, [AskedOperator(key)], organisation=organisation, job=job,
        spend_limit=SpendLimit(4_000_000, "EUR"),
    )  # fmt: skip
    for result in lookup(request).results:
        if result.terms is not None and result.terms.agreed is not None:
            report_uses(organisation, job, day, {result.terms.agreed.id: uses})


def report_uses(organisation: Any, job: str, sequence: int, agreed: dict[str, int]) -> None:
    """As a client does."""
    from catalog.lookup.reporting import CacheReport, record_report

    record_report(organisation, job, CacheReport("c" * 32, sequence, {}, {}, agreed=agreed))


def booked(organisation: Any, units: float, at: Any = None, *, entries: int = 1, **said: Any) -> Any:
    """Charges of so many units in all, as the service books them; gives the account. ``said``: of the entries
    (``operator_key``, ``job_name``, ``key_prefix``)."""
    from django.db.models import Max

    from dashboard.billing.accounts import add_days
    from dashboard.billing.models import Account, LedgerEntry, PriceRule

    rule = PriceRule.objects.first() or PriceRule.objects.create(
        name="all", currency="EUR", created_by="tests", from_at=timezone.now(), per_hit_micros=1
    )
    account, _ = Account.objects.get_or_create(organisation=organisation, defaults={"currency": "EUR"})
    number = LedgerEntry.objects.aggregate(last=Max("usage_number"))["last"] or 0
    made = []
    for one in range(1, entries + 1):
        account.balance_micros -= round(units * 1e6 / entries)
        made.append(
            LedgerEntry(
                organisation=organisation, at=at or timezone.now(), kind="charge", currency="EUR",
                amount_micros=-round(units * 1e6 / entries), balance_after_micros=account.balance_micros,
                usage_number=number + one, rule=rule, **said,
            )
        )  # fmt: skip
    LedgerEntry.objects.bulk_create(made)
    account.save()
    add_days(organisation.pk, made, [0.0] * entries)
    return account
