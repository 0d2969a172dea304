"""How the workers are shared out by organisation, in figures and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from django.db.models import Count, QuerySet

from catalog.models import Organisation
from tuning.kernels.claims import WHOSE
from tuning.kernels.claims import waiting as waiting_evaluations
from tuning.models import Exploration, State
from tuning.queue.shares import payer, shares_and_spent
from tuning.queue.sharing import Share, portions
from tuning.uploads.claims import waiting as waiting_uploads

MOST_SHOWN = 200


@dataclass(frozen=True)
class OrganisationShare:
    """What one organisation has of the workers."""

    organisation: Annotated[int, "Its number."]
    name: str
    weight: Annotated[float, "What it weighs beside the others: 1 unless it was set."]
    recent_s: Annotated[float, "Seconds of workers that it had lately: forgotten by halves."]
    portion: Annotated[float, "Its part of what all had lately, of 1."]
    due: Annotated[float, "Its part by weight among those that have work waiting, of 1; 0 without any."]
    spent_s: Annotated[float, "Seconds of workers in all."]
    explorations: Annotated[int, "That wait."]
    evaluations: Annotated[int, "Of kernels, that wait."]
    uploads: Annotated[int, "That wait."]

    @property
    def waiting(self) -> int:
        return self.explorations + self.evaluations + self.uploads

    @property
    def said(self) -> str:
        """In words, as the page says it."""
        if not self.waiting:
            return "Nothing of it waits: the others have its part."
        if self.due == 1.0:
            return "Nobody else waits: it has everything."
        had, due = f"{100 * self.portion:.0f} %", f"{100 * self.due:.0f} %"
        if self.portion < self.due:
            return f"Had {had} lately, and {due} are due to it: it goes before the others."
        return f"Had {had} lately, where {due} are due to it: the others go before it."


def organisations_shares(only: int | None = None) -> Sequence[OrganisationShare]:
    """Those that had something lately or wait, who had the most first; ``only``: of one of them."""
    explorations = _counted(Exploration.objects.filter(state=State.QUEUED), "asked_by")
    waiting = (
        explorations,
        _counted(waiting_evaluations(), WHOSE),
        _counted(waiting_uploads(), "organisation"),
    )
    found = shares_and_spent()
    known = {number: share for number, (share, _) in found.items()}
    spent = {number: seconds for number, (_, seconds) in found.items()}
    weights = {number: known.get(number, Share()).weight for count in waiting for number in count}
    whole, parts = sum(weights.values()), portions(known)
    numbers = known.keys() | weights.keys()
    rows = [
        OrganisationShare(
            number, name, known.get(number, Share()).weight, known.get(number, Share()).recent_s,
            parts.get(number, 0.0), weights[number] / whole if number in weights else 0.0,
            spent.get(number, 0.0), *(count[number] for count in waiting),
        )
        for number, name in Organisation.objects.filter(pk__in=numbers).values_list("pk", "name")
        if only in (None, number)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.recent_s, -row.waiting, row.organisation))[:MOST_SHOWN]


def _counted(rows: QuerySet, whose: str) -> Counter[int]:  # type: ignore[type-arg]
    found: Counter[int] = Counter()
    for number, count in rows.order_by().values_list(whose).annotate(n=Count("pk")):
        found[payer(number)] += count
    return found
