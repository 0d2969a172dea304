"""Prices hits and uses one after the other, while the account is locked."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from catalog.best.served import Hit
from catalog.charging import Payer, Terms, absolute
from dashboard.billing import words
from dashboard.billing.accounts import limit_micros, plan_runs
from dashboard.billing.models import Account, Mode, MonthCount, Plan, PriceRule, UseAgreement
from dashboard.billing.pricing import MOST_MICROS, SoFar, quote, quote_run, quote_uses
from dashboard.billing.recording import Charge, WithheldHit
from dashboard.web.wording import money

PAY_URL = "/billing/"
"""Where people see their prices and pay: the page named ``billing``."""

MOST_OWED_MICROS = 10**18
"""The most that an account can owe: balances stay within 64 bits."""

Priced = Hit | UseAgreement


def month_of(moment: datetime) -> date:
    """The first day of the calendar month (UTC) of tiers and caps."""
    return moment.astimezone(UTC).date().replace(day=1)


class Desk:
    """For one lookup or one report. ``spent_micros``: by the job before, if it has a limit."""

    def __init__(
        self,
        account: Account,
        payer: Payer,
        now: datetime,
        priced: Sequence[tuple[Priced, PriceRule]],
        spent_micros: int = 0,
    ) -> None:
        self.charges: list[Charge] = []
        self.held: list[WithheldHit] = []  # until credit or a plan covers it
        self.beyond: list[WithheldHit] = []  # the job's limit
        self._account = account
        self._payer = payer
        self._balance = account.balance_micros
        self._floor = -limit_micros(account, now)
        self._flat = account.plan == Plan.PREPAID and plan_runs(account, now)
        self._counts = _counts(account.organisation_id, month_of(now), priced)
        self._spent = spent_micros

    def take(self, hit: Hit, calls: float, rule: PriceRule) -> None:
        """Charge a hit, or withhold it."""
        so_far = self._so_far(hit, rule)
        price = quote(rule.price, so_far, calls, hit.default_us, hit.median_us)
        amount = 0 if self._flat else price.micros
        if amount and amount > self._limit_left():
            self.beyond.append(WithheldHit(hit, rule, amount))
        elif amount and amount > self._credit(rule):
            self.held.append(WithheldHit(hit, rule, amount))
        else:
            balance, opens = self._balance - amount, amount > 0 and rule.price.sells_at(so_far.hits + 1)
            self._charge(Charge(hit, calls, rule, price.list_micros, amount, balance, opens=opens))

    def take_uses(self, agreement: UseAgreement, uses: int) -> None:
        """Charge as many of these uses as are covered."""
        price = quote_uses(
            agreement.rule.price,
            self._so_far(agreement, agreement.rule),
            uses,
            MOST_MICROS if self._flat else self.left_under(agreement),
            agreement.calls,
            agreement.default_us,
            agreement.median_us,
        )
        covered, amount = (uses, 0) if self._flat else (price.uses, price.micros)
        calls, balance = uses * agreement.calls, self._balance - amount
        listed = price.list_micros
        self._charge(Charge(agreement, calls, agreement.rule, listed, amount, balance, covered))

    def further(self, charge: Charge) -> tuple[int, int]:
        """The price of a further use of a charged hit, and how many are covered at it."""
        hit, rule = charge.hit, charge.rule
        price, run = quote_run(
            rule.price, self._so_far(hit, rule), charge.calls, hit.default_us, hit.median_us
        )
        if self._flat or not price.micros:
            return 0, run
        return price.micros, min(run, self.left(rule) // price.micros)

    def left(self, rule: PriceRule) -> int:
        """What may still be spent under a rule: of the job's limit, and of credit if the rule withholds."""
        return max(0, min(self._credit(rule), self._limit_left()))

    def left_under(self, agreement: UseAgreement) -> int:
        """The same under an agreement, by its own limit."""
        return max(0, min(self._credit(agreement.rule), agreement.limit_micros - self._spent))

    @property
    def spent_micros(self) -> int:
        """The sum of the charges made here."""
        return sum(charge.amount_micros for charge in self.charges)

    def terms(self) -> dict[str, Terms]:
        """Terms of hits, by operator key."""
        currency = self._account.currency
        found = {
            charge.hit.key: self._terms(
                charge.rule, charge.amount_micros, False,
                f"{money(charge.amount_micros, currency)} was charged. {words.sentence(charge.rule)}",
            )
            for charge in self.charges if isinstance(charge.hit, Hit)
        }  # fmt: skip
        for one in self.held:
            found[one.hit.key] = self._terms(
                one.rule, one.price_micros, True,
                f"Withheld until it is paid: this hit costs {money(one.price_micros, currency)}. "
                f"Add credit at {absolute(PAY_URL)}.",
            )  # fmt: skip
        for one in self.beyond:
            price = money(one.price_micros, currency)
            found[one.hit.key] = self._terms(one.rule, one.price_micros, True, self._beyond(price))
        return found

    def _terms(self, rule: PriceRule, amount: int, withheld: bool, sentence: str) -> Terms:
        due = max(0, -self._balance)
        return Terms(withheld, amount, self._account.currency, rule.pk, PAY_URL, sentence, due)

    def _beyond(self, price: str) -> str:
        limit, currency = self._payer.limit, self._account.currency
        assert limit is not None
        if limit.currency != currency:
            return f"Withheld: this hit costs {price}, and the job's spend limit is in {limit.currency}."
        return (
            f"Withheld: this hit costs {price}, and the job {self._payer.job} has spent "
            f"{money(self._spent, currency)} of its limit of {money(limit.micros, currency)}."
        )

    def _charge(self, charge: Charge) -> None:
        self.charges.append(charge)
        self._balance, self._spent = charge.balance_micros, self._spent + charge.amount_micros
        for operator in (0, charge.hit.operator_id):
            hits, micros = self._counts.get((charge.rule.line, operator), (0, 0))
            counted = hits + charge.uses, micros + charge.amount_micros
            self._counts[charge.rule.line, operator] = counted

    def _so_far(self, hit: Priced, rule: PriceRule) -> SoFar:
        hits, micros = self._counts.get((rule.line, 0), (0, 0))
        return SoFar(hits, micros, self._counts.get((rule.line, hit.operator_id), (0, 0))[1])

    def _credit(self, rule: PriceRule) -> int:
        return self._balance - (self._floor if rule.mode == Mode.WITHHOLD else -MOST_OWED_MICROS)

    def _limit_left(self) -> int:
        """A limit in another currency than the account's covers nothing."""
        limit = self._payer.limit
        if limit is None:
            return MOST_MICROS
        return limit.micros - self._spent if limit.currency == self._account.currency else 0


def _counts(
    organisation_id: int, month: date, priced: Sequence[tuple[Priced, PriceRule]]
) -> dict[tuple[object, int], tuple[int, int]]:
    """(line, operator or 0) → (hits, amount) of the month so far."""
    lines = {rule.line for _, rule in priced}
    capped = any(rule.price.cap_operator_month_micros is not None for _, rule in priced)
    numbers = {0} | ({hit.operator_id for hit, _ in priced} if capped else set())
    rows = MonthCount.objects.filter(
        organisation_id=organisation_id, month=month, line__in=lines, operator_number__in=numbers
    )
    found = rows.values_list("line", "operator_number", "hits", "amount_micros")
    return {(line, operator): (hits, amount) for line, operator, hits, amount in found}
