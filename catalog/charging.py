"""What hits cost, as far as the catalogue knows: an interface to the billing app.

``settings.OPATLAS_CHARGING`` names the class that decides (``dashboard.billing.charging.Billing``); without
it everything is free. What is *withheld* is shown with its times and its price, but not served: a lookup's
item is empty, and the artifact's address and the code answer 402.
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
    """Whose hits are charged: an organisation (0: none) and its job. With a limit, the job gets agreements on
    further uses, and never spends more under them. ``key``: the prefix of the caller's API key."""

    organisation_id: int
    job: str = ""
    limit: SpendLimit | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class AgreedUses:
    """An agreement on further uses of a charged hit: a client's caches may repeat it, and each use is charged
    when it is reported."""

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
    """What a hit costs one organisation; amounts in millionths of the currency. In a lookup, ``price_micros``
    is the cost of this hit, charged or not. On pages and artifact addresses it is what one hit of one call
    costs now, and ``sentence`` says the whole price in words."""

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
        """From the result of ``asdict``."""
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
    """A full address for a job's log or a message."""
    return f"{opatlas_conf().service_url}{path}"


class PaymentRequired(RequestError):
    """An artifact or code is withheld until it is paid: 402, with the price and where to pay."""

    status = 402

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms.sentence)
        self.details = {"price": terms.as_json()}


Batch = Sequence[tuple["Hit", float]]
"""Hits, with how often a run calls them."""


class Charging:
    """Decides on prices; this one charges nothing. Organisations are named by ids; 0 is none, which pays like
    any other. None is the service itself, which sees everything."""

    def has_prices(self, organisation_id: int) -> bool:
        """Whether any price rule applies to this organisation. No statement: rules are cached for a
        second."""
        return False

    def may_withhold(self, organisation_id: int) -> Q | None:
        """Bests that may be withheld until they are paid; None if none may. No statement, as above."""
        return None

    def may_charge(self) -> bool:
        """Whether anything may have a price, for anybody, now or at a time that has already come. No
        statement, as above."""
        return type(self).concerns is not Charging.concerns  # who decides otherwise says so

    def concerns(self, organisation_id: int, hits: Batch) -> bool:
        """Whether a price rule applies to any of these. No statement, as above (one if a rule depends on op
        types of operators that are new to this process)."""
        return False

    def settle(
        self, payer: Payer, hits: Batch, record: Callable[[Batch], Sequence[Usage]]
    ) -> Mapping[str, Terms]:
        """Charge or withhold, inside the caller's transaction; by operator key, without the free ones.
        ``record`` writes the charged ones' Usage rows, in their order; a ledger entry is written for each."""
        return {}

    def bill_uses(
        self, payer: Payer, uses: Mapping[str, int], record: Callable[[Sequence[JournalHit]], Sequence[Usage]]
    ) -> int | None:
        """Charge uses that a client reported, by agreement, inside the caller's transaction, within the
        limits. Agreements of other jobs are ignored. As above ``record`` writes their Usage rows, one for
        each agreement. Returns what the job may still spend under these agreements; None if none is its
        own."""
        return None

    def terms_of(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        """For pages: what costs something, by implementation id. Without price rules no statement,
        otherwise a constant number. An organisation that paid a price a hit before has it: it is not
        withheld any more."""
        return {}

    def withheld_now(
        self, organisation_id: int | None, implementations: Sequence[Implementation]
    ) -> Mapping[int, Terms]:
        """Those of these, by implementation id, that a job of the organisation would not get: withheld, and
        not covered by its credit. Statements as above."""
        return {}


@lru_cache(maxsize=8)
def _made(path: str) -> Charging:
    made: Charging = import_string(path)() if path else Charging()
    return made


def charging() -> Charging:
    """The class in force."""
    return _made(getattr(settings, "OPATLAS_CHARGING", ""))


def withheld(organisation_id: int | None, implementation: Implementation) -> Terms | None:
    """Why this organisation does not get an implementation's artifact and code; None if it does. On pages the
    organisation is ``request.viewer.payer``: 0 for a person without one; the service's operators (None) see
    everything."""
    terms = charging().terms_of(organisation_id, [implementation]).get(implementation.pk)
    return terms if terms is not None and terms.withheld else None


def check_not_withheld(organisation_id: int | None, implementation: Implementation) -> None:
    """Raises :class:`PaymentRequired` if :func:`withheld` has a reason."""
    terms = withheld(organisation_id, implementation)
    if terms is not None:
        raise PaymentRequired(terms)


def check_artifact(organisation_id: int | None, scopes: Sequence[str], artifact: Artifact) -> None:
    """Raises :class:`PaymentRequired` if every implementation with this artifact in these scopes is withheld.
    Without price rules no statement."""
    if organisation_id is None or not charging().has_prices(organisation_id):
        return
    if terms := withheld_all(organisation_id, list(artifact.implementations.filter(scope__in=scopes))):
        raise PaymentRequired(terms)


def withheld_all(organisation_id: int | None, implementations: Sequence[Implementation]) -> Terms | None:
    """Why this organisation gets none of these; None if it gets one."""
    terms = charging().terms_of(organisation_id, implementations)
    reasons = [terms[one.pk] for one in implementations if one.pk in terms and terms[one.pk].withheld]
    return reasons[0] if reasons and len(reasons) == len(implementations) else None
