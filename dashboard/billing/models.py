"""Accounts, price rules, and the ledger. Amounts are whole millionths of a currency (``…_micros``).

The ledger and the price rules are append-only: the models refuse to change or delete a row, and so does the
database itself, by triggers (migration 0002).
"""

from __future__ import annotations

import secrets
import uuid
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from django.db import models
from django.db.models import Q

from catalog.models import Implementation, Method, Organisation
from dashboard.billing.conditions import CONDITIONS, OpTypes, PriceCondition
from dashboard.billing.pricing import Price, PriceTier


class AppendOnly(models.Model):
    """A row that is only ever added."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            self.refuse()
        super().save(*args, **{**kwargs, "force_insert": True})

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse()

    def refuse(self) -> NoReturn:
        raise TypeError(f"{self._meta.verbose_name_plural} are only ever added.".capitalize())


class Plan(models.TextChoices):
    """What covers hits beside credit."""

    NONE = "none"  # credit alone
    PREPAID = "prepaid"  # paid for until a date: hits cost nothing more
    POSTPAID = "postpaid"  # invoiced: hits are debited, down to the credit limit


def new_reference() -> str:
    return f"acct_{secrets.token_hex(12)}"


class Account(models.Model):
    """One organisation's money: its credit (negative: its debt). Made with its first charge or payment. The
    balance is the sum of its ledger entries, and changes only with one."""

    organisation = models.OneToOneField(Organisation, models.PROTECT, related_name="account")
    # How a payment names the account: says nothing about the organisation.
    reference = models.CharField(max_length=40, unique=True, default=new_reference)
    currency = models.CharField(max_length=3)
    balance_micros = models.BigIntegerField(default=0)
    plan = models.CharField(max_length=10, choices=Plan, default=Plan.NONE)
    plan_until = models.DateTimeField(null=True, blank=True)
    credit_limit_micros = models.BigIntegerField(default=0)  # how far below zero a postpaid plan may go
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(credit_limit_micros__gte=0), name="credit_limit_not_negative")
        ]

    def __str__(self) -> str:
        return f"{self.organisation}: {self.reference}"

    @classmethod
    def none(cls, currency: str = "") -> Account:
        """What is shown where there is no account yet."""
        return cls(reference="", currency=currency)


class Mode(models.TextChoices):
    PROMPT = "prompt"  # served and charged, shown with a prompt to pay
    WITHHOLD = "withhold"  # not served until credit or a plan covers it
    FREE = "free"  # an exception: costs nothing and makes no ledger entry


class PriceRule(AppendOnly):
    """One version of a price. A change adds a version to the same ``line`` and ends the one before
    (``until_at``), the only later change to a version. An unsaved one is a draft; without ``from_at`` it
    begins at once."""

    line = models.UUIDField(default=uuid.uuid4, editable=False)
    version = models.PositiveIntegerField(default=1)
    name = models.CharField(max_length=100)
    # Whose hits, and which (``conditions``); empty: all.
    organisation = models.ForeignKey(Organisation, models.PROTECT, null=True, blank=True, related_name="+")
    method = models.CharField(max_length=20, choices=Method, blank=True)
    route = models.CharField(max_length=40, blank=True)
    op_type = models.CharField(max_length=100, blank=True)
    scope = models.CharField(max_length=10, blank=True, choices=[(one, one) for one in ("shared", "private")])
    mode = models.CharField(max_length=10, choices=Mode, default=Mode.PROMPT)
    # Else a hit that serves the default itself, which the caller has anyway, costs nothing.
    charges_default = models.BooleanField(default=False, db_default=False)
    currency = models.CharField(max_length=3)
    priority = models.IntegerField(default=0)  # the highest that matches is the one that counts
    per_hit_micros = models.BigIntegerField(default=0)
    per_saved_second_micros = models.BigIntegerField(default=0)
    # [{"from_hit": 1001, "per_hit_micros": …, "per_saved_second_…": …}], by rising ``from_hit``, from 2.
    tiers = models.JSONField(default=list)
    cap_month_micros = models.BigIntegerField(null=True, blank=True)
    cap_operator_month_micros = models.BigIntegerField(null=True, blank=True)
    from_at = models.DateTimeField()
    until_at = models.DateTimeField(null=True, blank=True)
    note = models.CharField(max_length=300, blank=True)  # why, for who reads the history
    created_by = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["line", "version"], name="one_row_per_rule_version"),
            models.CheckConstraint(
                condition=Q(per_hit_micros__gte=0) & Q(per_saved_second_micros__gte=0),
                name="prices_not_negative",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"

    @cached_property
    def asked(self) -> list[tuple[PriceCondition, str]]:
        """Its conditions with their values."""
        values = ((one, getattr(self, one.name)) for one in CONDITIONS)
        return [(one, value) for one, value in values if value]

    @property
    def past(self) -> Q:
        """Usage rows, or bests, that meet its conditions."""
        return Q(*(one.past(value) for one, value in self.asked))

    @cached_property
    def price(self) -> Price:
        first = PriceTier(1, self.per_hit_micros, self.per_saved_second_micros)
        further = tuple(PriceTier(**one) for one in self.tiers)
        return Price(
            (first, *further),
            self.cap_month_micros,
            self.cap_operator_month_micros,
            sells=self.mode == Mode.WITHHOLD,
        )

    @property
    def order(self) -> tuple[int, int, int]:
        """The first match counts: highest priority, then the most specific, then the newest."""
        return -self.priority, -len(self.asked) - (self.organisation_id is not None), -self.pk

    def holds(self, organisation_id: int, now: datetime) -> bool:
        """Whether it is in force for this organisation now."""
        mine = self.organisation_id is None or self.organisation_id == organisation_id
        return mine and self.from_at <= now and (self.until_at is None or now < self.until_at)

    def charges(self, is_default: bool) -> bool:
        """Whether what it matches costs anything; ``is_default``: what is served is the default itself."""
        return self.mode != Mode.FREE and (self.charges_default or not is_default)

    def matches(self, one: Any, op_types: OpTypes) -> bool:
        """Whether a hit or an implementation meets its conditions."""
        return all(condition.of(one, op_types) == value for condition, value in self.asked)


class MonthCount(models.Model):
    """What a rule has charged an organisation in one month (UTC), for tiers and caps. Added to in the
    transaction of the charge, while the account is locked."""

    organisation = models.ForeignKey(Organisation, models.PROTECT, related_name="+")
    line = models.UUIDField()  # of the rule: a new version goes on counting
    month = models.DateField()
    # 0 counts all operators; rows of one operator are kept where the rule has a cap for it. A plain number:
    # bringing operators under new keys must not add up money.
    operator_number = models.BigIntegerField(default=0)
    hits = models.PositiveBigIntegerField(default=0)
    amount_micros = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "line", "month", "operator_number"],
                name="one_count_per_rule_and_month",
            )
        ]


class JobSpending(models.Model):
    """What a job has spent under the limit that it set, until somebody ends that: a later job of its name
    then begins with nothing spent. Added to while the account is locked."""

    organisation = models.ForeignKey(Organisation, models.PROTECT, related_name="+")
    job = models.CharField(max_length=200)  # its name
    limit_micros = models.BigIntegerField()  # as its last lookup said
    spent_micros = models.BigIntegerField(default=0)
    uses = models.PositiveBigIntegerField(default=0)  # lookups that were charged, and uses that were covered
    last_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    # 0 is the one that goes on; of one that was ended its own number, so that another may begin.
    ended_as = models.PositiveBigIntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "job", "ended_as"], name="one_spending_per_job"),
            models.CheckConstraint(condition=Q(spent_micros__gte=0), name="spending_not_negative"),
        ]
        indexes = [models.Index(fields=["organisation", "-last_at"], name="spendings_latest_first")]


def new_agreement() -> str:
    return f"agr_{secrets.token_hex(16)}"


class UseAgreement(models.Model):
    """The price of further uses of an implementation, as a lookup told it to a job: a version of a price
    rule, which never changes, and what the hit was priced by. A lookup that finds the same prolongs it."""

    reference = models.CharField(max_length=40, unique=True, default=new_agreement)
    organisation = models.ForeignKey(Organisation, models.PROTECT, related_name="+")
    job = models.CharField(max_length=200)
    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="+")
    rule = models.ForeignKey(PriceRule, models.PROTECT, related_name="+")
    limit_micros = models.BigIntegerField()  # the job's
    calls = models.FloatField()  # of one use
    default_us = models.FloatField()
    median_us = models.FloatField()
    is_default = models.BooleanField(default=False)
    made_at = models.DateTimeField(auto_now_add=True)
    valid_until = models.DateTimeField(db_index=True)

    class Meta:
        indexes = [models.Index(fields=["organisation", "job", "implementation"], name="agreements_of_job")]

    @property
    def operator_id(self) -> int:
        return self.implementation.operator_id

    @property
    def key(self) -> str:
        return self.implementation.operator.key

    @property
    def method(self) -> str:
        return self.implementation.method

    @property
    def route(self) -> str:
        return self.implementation.route


class Kind(models.TextChoices):
    CHARGE = "charge"  # one hit served, or uses of one that a client reported
    CREDIT = "credit"  # a payment, or credit that was given
    ADJUSTMENT = "adjustment"  # a correction, either way
    REFUND = "refund"  # credit that was paid back


class LedgerEntry(AppendOnly):
    """One movement of an account. Positive adds credit. A charge belongs to one usage row, and one row has
    one charge."""

    organisation = models.ForeignKey(Organisation, models.PROTECT, related_name="ledger")
    at = models.DateTimeField()
    kind = models.CharField(max_length=10, choices=Kind)
    amount_micros = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    balance_after_micros = models.BigIntegerField()
    # Of a charge: what a statement needs of its usage row, which may be forgotten long before
    # (``catalog.usage.closing``), so that nothing refers to it. ``list_micros`` is its price before caps and
    # plans.
    usage_number = models.BigIntegerField(null=True, blank=True, unique=True, db_column="usage_id")
    operator_key = models.CharField(max_length=80, blank=True, default="", db_default="")
    job_name = models.CharField(max_length=200, blank=True, default="", db_default="")
    # Of the API key that asked; null: not noted yet then. It may be deleted since.
    key_prefix = models.CharField(max_length=16, null=True, blank=True)
    rule = models.ForeignKey(PriceRule, models.PROTECT, null=True, blank=True, related_name="+")
    list_micros = models.BigIntegerField(default=0)
    # Of a report: by which agreement, and how many of the uses that the usage row has were covered.
    agreement = models.CharField(max_length=40, blank=True, default="", db_default="")
    uses = models.PositiveBigIntegerField(default=1, db_default=1)
    method = models.CharField(max_length=20, blank=True)
    route = models.CharField(max_length=40, blank=True)
    # Of the others: who did it and why, or the payment's event.
    reason = models.CharField(max_length=300, blank=True)
    actor = models.CharField(max_length=200, blank=True)
    provider = models.CharField(max_length=40, blank=True)
    event_id = models.CharField(max_length=200, blank=True)
    event_sha256 = models.CharField(max_length=64, blank=True)
    # Of a refund: the payment that it takes back, in part or whole (the oldest refunds have none).
    refund_of = models.ForeignKey(
        "self", models.PROTECT, null=True, blank=True, related_name="refunds", db_index=False
    )

    class Meta:
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "event_id"], condition=~Q(provider=""), name="one_entry_per_payment"
            ),
            models.CheckConstraint(
                condition=(Q(kind=Kind.CHARGE) & Q(usage_number__isnull=False) & Q(rule__isnull=False))
                | (~Q(kind=Kind.CHARGE) & Q(usage_number__isnull=True)),
                name="a_charge_has_its_usage",
            ),
            models.CheckConstraint(
                condition=(Q(kind=Kind.CHARGE) & Q(amount_micros__lte=0))
                | (Q(kind=Kind.CREDIT) & Q(amount_micros__gt=0))
                | (Q(kind=Kind.REFUND) & Q(amount_micros__lt=0))
                | Q(kind=Kind.ADJUSTMENT),
                name="amounts_have_their_sign",
            ),
            models.CheckConstraint(
                condition=Q(kind=Kind.REFUND) | Q(refund_of__isnull=True),
                name="only_refunds_are_of_a_payment",
            ),
        ]
        indexes = [
            models.Index(fields=["organisation", "-id"], name="ledger_newest_first"),
            models.Index(fields=["organisation", "at"], name="ledger_by_time"),
            # Payments and corrections are few among charges.
            models.Index(fields=["kind", "-id"], name="ledger_by_kind"),
            models.Index(
                fields=["refund_of"], condition=Q(refund_of__isnull=False), name="refunds_of_payment"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount_micros} of {self.organisation_id}"


class LedgerDay(models.Model):
    """Sums of the ledger by day (UTC), kept in the transactions that add entries: what pages read."""

    organisation = models.ForeignKey(Organisation, models.PROTECT, related_name="+")
    day = models.DateField()
    kind = models.CharField(max_length=10, choices=Kind)
    method = models.CharField(max_length=20, blank=True)
    entries = models.PositiveBigIntegerField(default=0)
    amount_micros = models.BigIntegerField(default=0)
    saved_us = models.FloatField(default=0)  # of charges: calls × (default - served)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "day", "kind", "method"], name="one_ledger_sum_per_day"
            )
        ]
        indexes = [models.Index(fields=["day"], name="ledger_sums_by_day")]


class Purchase(models.Model):
    """An implementation that an organisation was served: its artifact and code are open to it, whatever
    withholds them. For ever if it paid a price a hit, under whichever rule. Until ``ends_at`` if a free tier,
    a cap or a plan made the hit free, or only time saved was paid."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="+")
    first_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "implementation"], name="one_purchase_per_implementation"
            )
        ]


class Held(models.Model):
    """How often an implementation was withheld from an organisation on one day (UTC)."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="+")
    day = models.DateField()
    times = models.PositiveBigIntegerField(default=0)
    price_micros = models.BigIntegerField(default=0)  # of the last time
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "implementation", "day"], name="one_row_per_withheld_and_day"
            )
        ]
