"""What the catalogue asks when it serves: which hits are charged, which are withheld, and at what price."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime

from django.utils import timezone

from catalog.best.seats import timed_as_default
from catalog.best.served import Hit
from catalog.charging import Batch, Charging, Terms
from catalog.models import Best, Implementation, Usage
from dashboard.billing import words
from dashboard.billing.accounts import limit_micros, locked, plan_runs
from dashboard.billing.models import Account, Mode, MonthCount, Plan, PriceRule, Purchase
from dashboard.billing.pricing import SoFar, quote
from dashboard.billing.recording import Charge, WithheldHit, record_charges, record_held
from dashboard.billing.rules import in_force, op_types_of, rule_for
from dashboard.web.wording import money

PAY_URL = "/billing/"
"""Where people read their prices and pay: the page named ``billing``."""


class Billing(Charging):
    """Decides by price rules, credit and plans."""

    def has_prices(self, organisation_id: int) -> bool:
        return bool(in_force(organisation_id))

    def concerns(self, organisation_id: int, hits: Batch) -> bool:
        rules = in_force(organisation_id)
        if not rules:
            return False
        op_types = op_types_of([hit.operator_id for hit, _ in hits], rules)
        return any(rule_for(rules, hit, hit.is_default, op_types) is not None for hit, _ in hits)

    def settle(
        self, organisation_id: int, hits: Batch, record: Callable[[Batch], Sequence[Usage]]
    ) -> Mapping[str, Terms]:
        now = timezone.now()
        rules = in_force(organisation_id, now)
        op_types = op_types_of([hit.operator_id for hit, _ in hits], rules)
        concerned = (rule_for(rules, hit, hit.is_default, op_types) for hit, _ in hits)
        first = next(filter(None, concerned), None)
        if first is None:
            return {}
        account = locked(organisation_id, first.currency)
        priced = [
            (hit, calls, rule)
            for hit, calls in hits
            if (rule := rule_for(rules, hit, hit.is_default, op_types, account.currency)) is not None
        ]
        desk = _Desk(account, now, priced)
        for hit, calls, rule in priced:
            desk.take(hit, calls, rule)
        if desk.charges:
            usages = record([(charge.hit, charge.calls) for charge in desk.charges])
            record_charges(account, now, month_of(now), desk.charges, usages)
        if desk.held:
            record_held(account, now, desk.held)
        return desk.terms()

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


def month_of(moment: datetime) -> date:
    """The first day of the calendar month (UTC) that tiers and caps count in."""
    return moment.astimezone(UTC).date().replace(day=1)


class _Desk:
    """One lookup's hits, decided one after the other while the account is locked."""

    def __init__(
        self, account: Account, now: datetime, priced: Sequence[tuple[Hit, float, PriceRule]]
    ) -> None:
        self.charges: list[Charge] = []
        self.held: list[WithheldHit] = []
        self._account = account
        self._balance = account.balance_micros
        self._floor = -limit_micros(account, now)
        self._flat = account.plan == Plan.PREPAID and plan_runs(account, now)
        self._counts = _counts(account.organisation_id, month_of(now), priced)

    def take(self, hit: Hit, calls: float, rule: PriceRule) -> None:
        hits, micros = self._counts.get((rule.line, 0), (0, 0))
        mine = self._counts.get((rule.line, hit.operator_id), (0, 0))
        price = quote(rule.price, SoFar(hits, micros, mine[1]), calls, hit.default_us, hit.median_us)
        amount = 0 if self._flat else price.micros
        if rule.mode == Mode.WITHHOLD and amount and self._balance - amount < self._floor:
            self.held.append(WithheldHit(hit, rule, amount))
            return
        self._balance -= amount
        self._counts[rule.line, 0] = (hits + 1, micros + amount)
        self._counts[rule.line, hit.operator_id] = (mine[0] + 1, mine[1] + amount)
        self.charges.append(Charge(hit, calls, rule, price.list_micros, amount, self._balance))

    def terms(self) -> dict[str, Terms]:
        pay_url, due = PAY_URL, max(0, -self._balance)
        currency = self._account.currency
        found = {
            one.hit.key: Terms(
                False, one.amount_micros, currency, one.rule.pk, pay_url,
                f"{money(one.amount_micros, currency)} was charged. {words.sentence(one.rule)}", due,
            )
            for one in self.charges
        }  # fmt: skip
        return found | {
            one.hit.key: Terms(
                True, one.price_micros, currency, one.rule.pk, pay_url,
                f"Withheld until it is paid: this hit costs {money(one.price_micros, currency)}. "
                f"Add credit at {pay_url}.", due,
            )
            for one in self.held
        }  # fmt: skip


def _counts(
    organisation_id: int, month: date, priced: Sequence[tuple[Hit, float, PriceRule]]
) -> dict[tuple[object, int], tuple[int, int]]:
    """(line, operator or 0) → (hits, amount) of the month so far."""
    lines = {rule.line for _, _, rule in priced}
    capped = any(rule.price.cap_operator_month_micros is not None for _, _, rule in priced)
    numbers = {0} | ({hit.operator_id for hit, _, _ in priced} if capped else set())
    rows = MonthCount.objects.filter(
        organisation_id=organisation_id, month=month, line__in=lines, operator_number__in=numbers
    )
    found = rows.values_list("line", "operator_number", "hits", "amount_micros")
    return {(line, operator): (hits, amount) for line, operator, hits, amount in found}


def _terms_on_pages(
    organisation_id: int,
    account: Account | None,
    chosen: Mapping[int, PriceRule],
    implementations: Sequence[Implementation],
) -> dict[int, Terms]:
    now = timezone.now()
    holding = [pk for pk, rule in chosen.items() if rule.mode == Mode.WITHHOLD]
    mine = Purchase.objects.filter(organisation_id=organisation_id, implementation__in=holding)
    bought = set(mine.values_list("implementation_id", flat=True))
    flat = account is not None and account.plan == Plan.PREPAID and plan_runs(account, now)
    room = account.balance_micros + limit_micros(account, now) if account else 0
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
            said += " Open to you: your plan covers it." if flat else " Open to you: it was charged before."
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
