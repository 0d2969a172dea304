"""What hits cost, as far as the catalogue knows: whom to ask, and what is answered.

``settings.OPATLAS_CHARGING`` names the class that decides (``dashboard.billing.charging.Billing``); without
it everything is free. What is *withheld* is shown with its times and its price, and neither served nor handed
out: a lookup's item is empty, the artifact's address and the code answer 402.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.db.models import Q
from django.utils import timezone
from django.utils.module_loading import import_string

from catalog.errors import RequestError
from opatlas.conf import conf as opatlas_conf

if TYPE_CHECKING:
    from catalog.best.served import Hit
    from catalog.models import Artifact, Implementation, Usage
    from catalog.usage.journal_line import JournalHit


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """What a job may spend in all: millionths of a currency (ISO 4217)."""

    micros: int
    currency: str


@dataclass(frozen=True, slots=True)
class Payer:
    """Whose hits are charged: an organisation (0: none) and its job. With a limit the job has agreements on
    further uses, and never spends more under them. ``key``: the prefix of the API key that asked."""

    organisation_id: int
    job: str = ""
    limit: SpendLimit | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class AgreedUses:
    """An agreement on further uses of what was charged: a client's caches may give it again, and each use is
    charged when it is reported."""

    id: str
    per_use_micros: int
    uses: int  # so many at this price; then a lookup says how it goes on
    left_micros: int  # of the job's limit, and of credit where the rule withholds; of all its agreements
    valid_until: float  # seconds since 1970

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "per_use_micros": self.per_use_micros,
            "uses": self.uses,
            "left_micros": self.left_micros,
            "valid_until": datetime.fromtimestamp(self.valid_until, UTC).isoformat(),
            "expires_s": max(0.0, round(self.valid_until - timezone.now().timestamp(), 3)),
        }


@dataclass(frozen=True, slots=True)
class Terms:
    """What a hit costs one organisation. Amounts in millionths of the currency.

    From a lookup ``price_micros`` is what this hit cost, or would have; on pages and artifact addresses it is
    what one hit of one call costs now, and ``sentence`` says the whole price in words.
    """

    withheld: bool
    price_micros: int
    currency: str  # ISO 4217: "EUR"
    rule: int  # the price rule's number
    pay_url: str  # a path of this service: where to read the price and pay
    sentence: str  # "0.01 EUR a hit; withheld until credit or a plan covers it."
    due_micros: int = 0  # what the organisation owes in all, this hit included
    agreed: AgreedUses | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Of what ``asdict`` gives."""
        agreed = document["agreed"]
        return cls(**{**document, "agreed": agreed and AgreedUses(**agreed)})

    def as_json(self) -> dict[str, Any]:
        agreement = {"agreement": self.agreed.as_json()} if self.agreed is not None else {}
        return agreement | {
            "amount_micros": self.price_micros,
            "currency": self.currency,
            "rule": self.rule,
            "pay_url": absolute(self.pay_url),
            "due_micros": self.due_micros,
            "sentence": self.sentence,
        }


def absolute(path: str) -> str:
    """An address that a job's log or a message can lead to."""
    return f"{opatlas_conf().service_url}{path}"


class PaymentRequired(RequestError):
    """An artifact or code that is withheld until it is paid: 402, with the price and where to pay."""

    status = 402

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms.sentence)
        self.details = {"price": terms.as_json()}


Batch = Sequence[tuple["Hit", float]]
"""Hits with how often a run calls them."""


class Charging:
    """What decides on prices: this one, that nothing costs anything. Organisations are named by their ids; 0
    is none, which pays as any would, and None is the service itself, to which everything is open."""

    def has_prices(self, organisation_id: int) -> bool:
        """Whether any price rule is in force for this organisation. No statement: rules are known for a
        second."""
        return False

    def may_withhold(self, organisation_id: int) -> Q | None:
        """Bests that one of them may withhold while they are not paid; None where none does. No statement, as
        above."""
        return None

    def may_charge(self) -> bool:
        """Whether anything may have its price, for anybody, now or at a time that has come already. No
        statement, as above."""
        return type(self).concerns is not Charging.concerns  # who decides otherwise says so

    def concerns(self, organisation_id: int, hits: Batch) -> bool:
        """Whether a price rule applies to any of these. No statement, as above (one where a rule goes by the
        op type of operators that this process has not seen)."""
        return False

    def settle(
        self, payer: Payer, hits: Batch, record: Callable[[Batch], Sequence[Usage]]
    ) -> Mapping[str, Terms]:
        """Charge or withhold, inside the caller's transaction; by operator key, and who is missing is free.

        ``record`` writes the Usage rows of those that are charged, in their order; a ledger entry is written
        for each.
        """
        return {}

    def bill_uses(
        self, payer: Payer, uses: Mapping[str, int], record: Callable[[Sequence[JournalHit]], Sequence[Usage]]
    ) -> int | None:
        """Charge uses that a client reported, by agreement, inside the caller's transaction: as many as the
        limits cover. Those that are not this job's agreements are left out. As above ``record`` writes their
        Usage rows, one for each agreement.

        Gives what the job may still spend under these agreements; None where they are none of its own.
        """
        return None

    def terms_of(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        """For pages: what costs something, by implementation id. Without price rules no statement, with them
        a constant number. Whoever paid a price a hit for one before has it: it is withheld no more."""
        return {}

    def withheld_now(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        """Of these, by implementation id, what a job of the organisation would be answered empty for:
        withheld, and not covered by its credit either. Statements as above."""
        return {}


@lru_cache(maxsize=8)
def _made(path: str) -> Charging:
    made: Charging = import_string(path)() if path else Charging()
    return made


def charging() -> Charging:
    """Who decides here."""
    return _made(getattr(settings, "OPATLAS_CHARGING", ""))


def withheld(organisation_id: int | None, implementation: Implementation) -> Terms | None:
    """Why this organisation does not get an implementation's artifact and code; None where it does.

    On pages the organisation is ``request.viewer.payer``: 0 is somebody who belongs to none; who runs the
    service (None) sees everything.
    """
    terms = charging().terms_of(organisation_id, [implementation]).get(implementation.pk)
    return terms if terms is not None and terms.withheld else None


def check_not_withheld(organisation_id: int | None, implementation: Implementation) -> None:
    """Raises :class:`PaymentRequired` where :func:`withheld` has a reason."""
    terms = withheld(organisation_id, implementation)
    if terms is not None:
        raise PaymentRequired(terms)


def check_artifact(organisation_id: int | None, scopes: Sequence[str], artifact: Artifact) -> None:
    """Raises :class:`PaymentRequired` where every implementation that has this artifact, and that these
    scopes show, is withheld. Without price rules no statement."""
    if organisation_id is None or not charging().has_prices(organisation_id):
        return
    if terms := withheld_all(organisation_id, list(artifact.implementations.filter(scope__in=scopes))):
        raise PaymentRequired(terms)


def withheld_all(organisation_id: int | None, implementations: Sequence[Implementation]) -> Terms | None:
    """Why this organisation does not get what all of these are made of; None where it has one of them."""
    terms = charging().terms_of(organisation_id, implementations)
    reasons = [terms[one.pk] for one in implementations if one.pk in terms and terms[one.pk].withheld]
    return reasons[0] if reasons and len(reasons) == len(implementations) else None
