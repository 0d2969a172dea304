"""Billing's answers to the catalogue: which hits are charged, which are withheld, and at what price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import reduce
from operator import or_

from django.db.models import Q
from django.utils import timezone

from catalog.best.seats import timed_as_default
from catalog.best.served import Hit
from catalog.charging import Batch, Charging, Payer, Terms
from catalog.models import Best, Implementation, Usage
from catalog.usage.journal_line import JournalHit
from dashboard.billing import agreements, words
from dashboard.billing.accounts import limit_micros, locked, plan_runs
from dashboard.billing.desk import PAY_URL, Desk, month_of
from dashboard.billing.models import Account, Mode, MonthCount, Plan, PriceRule, Purchase
from dashboard.billing.pricing import SoFar, quote
from dashboard.billing.recording import record_charges, record_held
from dashboard.billing.rules import are_there_any, in_force, op_types_of, rule_for


class Billing(Charging):
    """Decides by price rules, credit and plans."""

    def has_prices(self, organisation_id: int) -> bool:
        return bool(in_force(organisation_id))

    def may_withhold(self, organisation_id: int) -> Q | None:
        asked = [rule.past for rule in in_force(organisation_id) if rule.mode == Mode.WITHHOLD]
        if not all(asked):
            return Q()  # one of them asks nothing
        return reduce(or_, asked) if asked else None

    def may_charge(self) -> bool:
        return are_there_any()

    def concerns(self, organisation_id: int, hits: Batch) -> bool:
        rules = in_force(organisation_id)
        if not rules:
            return False
        op_types = op_types_of([hit.operator_id for hit, _ in hits], rules)
        return any(rule_for(rules, hit, hit.is_default, op_types) is not None for hit, _ in hits)

    def settle(
        self, payer: Payer, hits: Batch, record: Callable[[Batch], Sequence[Usage]]
    ) -> Mapping[str, Terms]:
        now = timezone.now()
        rules = in_force(payer.organisation_id, now)
        op_types = op_types_of([hit.operator_id for hit, _ in hits], rules)
        concerned = (rule_for(rules, hit, hit.is_default, op_types) for hit, _ in hits)
        first = next(filter(None, concerned), None)
        if first is None:
            return {}
        account = locked(payer.organisation_id, first.currency)
        priced = [
            (hit, calls, rule)
            for hit, calls in hits
            if (rule := rule_for(rules, hit, hit.is_default, op_types, account.currency)) is not None
        ]
        spent = agreements.spent_micros(payer) if payer.limit is not None else 0
        desk = Desk(account, payer, now, [(hit, rule) for hit, _, rule in priced], spent)
        for hit, calls, rule in priced:
            desk.take(hit, calls, rule)
        if desk.charges:
            usages = record([(one.hit, one.calls) for one in desk.charges if isinstance(one.hit, Hit)])
            record_charges(account, now, month_of(now), desk.charges, usages, payer.key)
        if desk.held:
            record_held(account, now, desk.held)
        agreed = agreements.agree(payer, desk, now)
        return {key: replace(one, agreed=agreed.get(key)) for key, one in desk.terms().items()}

    def bill_uses(
        self, payer: Payer, uses: Mapping[str, int], record: Callable[[Sequence[JournalHit]], Sequence[Usage]]
    ) -> int | None:
        return agreements.bill_uses(payer, uses, record)

    def terms_of(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        if organisation_id is None or not (rules := in_force(organisation_id)):
            return {}
        op_types = op_types_of([one.operator_id for one in implementations], rules)
        account = Account.objects.filter(organisation_id=organisation_id).first()
        currency = account.currency if account else ""
        defaults = timed_as_default([one.pk for one in implementations])
        chosen = {
            one.pk: rule
            for one in implementations
            if (rule := rule_for(rules, one, one.pk in defaults, op_types, currency))
        }
        if not chosen:
            return {}
        return _terms_on_pages(organisation_id, account, chosen, implementations)

    def withheld_now(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        terms = self.terms_of(organisation_id, implementations)
        held = {pk: one for pk, one in terms.items() if one.withheld}
        if not held or organisation_id is None:
            return {}
        account = Account.objects.filter(organisation_id=organisation_id).first()
        room = _room(account, timezone.now())
        return {pk: one for pk, one in held.items() if one.price_micros > room}


def _room(account: Account | None, now: datetime) -> int:
    """What may be charged for hits that are otherwise withheld: credit, and how far below it a plan goes."""
    return account.balance_micros + limit_micros(account, now) if account else 0


def _terms_on_pages(
    organisation_id: int,
    account: Account | None,
    chosen: Mapping[int, PriceRule],
    implementations: Sequence[Implementation],
) -> dict[int, Terms]:
    now = timezone.now()
    holding = [pk for pk, rule in chosen.items() if rule.mode == Mode.WITHHOLD]
    mine = Purchase.objects.filter(
        Q(ends_at=None) | Q(ends_at__gt=now), organisation_id=organisation_id, implementation__in=holding
    )
    bought = set(mine.values_list("implementation_id", flat=True))
    flat = account is not None and account.plan == Plan.PREPAID and plan_runs(account, now)
    room = _room(account, now)
    prices = _prices_now(organisation_id, chosen, implementations, now)
    found = {}
    for pk, rule in chosen.items():
        withheld = rule.mode == Mode.WITHHOLD and pk not in bought and not flat
        said = words.sentence(rule)
        if withheld and room >= prices[pk]:
            said += (
                " Your credit covers it: it opens when a job's lookup is next served it, and is then charged."
            )
        elif rule.mode == Mode.WITHHOLD and not withheld:
            said += (
                " Open to you: your plan covers it."
                if flat
                else " Open to you: a job of yours was served it."
            )
        due = max(0, -account.balance_micros) if account else 0
        found[pk] = Terms(withheld, prices[pk], rule.currency, rule.pk, PAY_URL, said, due)
    return found


def _prices_now(
    organisation_id: int,
    chosen: Mapping[int, PriceRule],
    implementations: Sequence[Implementation],
    now: datetime,
) -> dict[int, int]:
    """What one hit of one call would cost now, by implementation."""
    lines = {rule.line for rule in chosen.values()}
    rows = MonthCount.objects.filter(
        organisation_id=organisation_id, month=month_of(now), line__in=lines, operator_number=0
    )
    counts = {
        line: SoFar(hits, amount) for line, hits, amount in rows.values_list("line", "hits", "amount_micros")
    }
    times: dict[int, tuple[float, float]] = {}
    if any(tier.per_saved_second_micros for rule in chosen.values() for tier in rule.price.tiers):
        bests = Best.objects.filter(implementation__in=list(chosen))
        times = {pk: (a, b) for pk, a, b in bests.values_list("implementation", "default_us", "median_us")}
    return {
        pk: quote(rule.price, counts.get(rule.line, SoFar()), 1.0, *times.get(pk, (0.0, 0.0))).micros
        for pk, rule in chosen.items()
    }
