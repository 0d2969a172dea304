"""No price takes effect unseen: a draft is tried on last month, and put in force by somebody who confirms the
result. Pages and REST share this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

from django.core import signing
from django.forms import model_to_dict

from catalog.errors import RequestError
from catalog.models import Organisation
from dashboard.billing import pricelist, words
from dashboard.billing.models import PriceRule
from dashboard.billing.preview import Preview, preview

SEEN_FOR = timedelta(hours=1)
"""How long after a trial a price may be put in force; then it must be tried again."""

_SIGNER = signing.TimestampSigner(salt="dashboard.billing.trying")


@dataclass(frozen=True)
class TriedPrice:
    """What must be seen before a price takes effect: its words, whom it concerns, and what it would have cost
    whom last month. Nothing was changed."""

    words: Annotated[str, "The price in a sentence."]
    begins: Annotated[datetime | None, "null: at once."]
    holds_for: Annotated[str, "One organisation's name; empty: every organisation."]
    everybody: Annotated[int | None, "How many organisations there are today, where it holds for each."]
    preview: Preview
    digest: str  # of the draft, of the version that it follows, and of what it would have cost

    @property
    def confirm(self) -> str:
        """Sent back with the same price within an hour, this puts it in force."""
        return _SIGNER.sign(self.digest)

    def is_confirmed_by(self, confirm: str) -> bool:
        """Whether exactly this was shown, and not long ago."""
        try:
            return _SIGNER.unsign(confirm, max_age=SEEN_FOR) == self.digest
        except signing.BadSignature:
            return False


class NotConfirmed(RequestError):
    """A price whose present trial nobody has seen."""

    status = 409
    details: Mapping[str, Any] = {}  # what REST adds to its answer

    def __init__(self, tried: TriedPrice, confirm: str) -> None:
        why = (
            "this price, or what it would have cost, is not what was tried, or that was over an hour ago"
            if confirm
            else "nobody has confirmed this price"
        )
        super().__init__(
            f"Nothing was changed, because {why}: {words.would_have_cost(tried.preview)}; "
            'send it with "confirm" as it stands in what was tried.',
            where="confirm",
        )
        self.tried = tried


def try_on_last_month(draft: PriceRule, last: PriceRule | None) -> TriedPrice:
    """``last``: the version before it. Raises :class:`RequestError` for an impossible price."""
    pricelist.check(draft)
    if last is not None:
        pricelist.check_open(last)
    found, everybody = preview(draft), draft.organisation is None
    return TriedPrice(
        words.sentence(draft),
        draft.from_at,
        "" if everybody else str(draft.organisation),
        Organisation.objects.count() if everybody else None,
        found,
        _digest(draft, last, found),
    )


def put_in_force(draft: PriceRule, last: PriceRule | None, confirm: str, by: Mapping[str, Any]) -> PriceRule:
    """Add the price, or the next version after ``last``; ``by`` as in :mod:`dashboard.billing.pricelist`.

    Raises :class:`NotConfirmed` where ``confirm`` is not of what trying it says now."""
    tried = try_on_last_month(draft, last)
    if not tried.is_confirmed_by(confirm):
        raise NotConfirmed(tried, confirm)
    return pricelist.change(last, draft, by) if last else pricelist.add(draft, by)


def _digest(draft: PriceRule, last: PriceRule | None, found: Preview) -> str:
    said = {"draft": model_to_dict(draft), "after": last and last.pk, "preview": asdict(found)}
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
