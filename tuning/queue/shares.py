"""How much of the workers each organisation has had, as rows; :mod:`tuning.queue.sharing` has the rule."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import DatabaseError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from catalog.models import Organisation
from catalog.registry import default_organisation
from opatlas.errors import CallerError
from tuning.conf import conf
from tuning.models import Exploration, Stage, WorkerShare
from tuning.queue.claims import claimable
from tuning.queue.sharing import EXPECTED_S, Share, Work, WorkTurn, decayed, place_of

logger = logging.getLogger(__name__)

LEAST_WEIGHT, MOST_WEIGHT = 0.01, 100.0
WORK_OF_STAGE = {Stage.FIRST: Work.FIRST, Stage.CONTEST: Work.CONTEST, Stage.TUNE: Work.TUNE}


class BadWeight(CallerError):
    """A weight beyond the bounds."""


def payer(organisation_id: int | None) -> int:
    """The organisation whose share work counts for: the host's, if nobody asked for it (a round, a
    revalidation)."""
    return organisation_id if organisation_id is not None else _host()


def asked_by(organisation: int, field: str = "asked_by") -> Q:
    """Rows that count for this organisation."""
    mine = Q(**{field: organisation})
    return mine | Q(**{f"{field}__isnull": True}) if organisation == _host() else mine


def shares(organisations: Collection[int] | None = None) -> dict[int, Share]:
    """Of these organisations, or of all that have had something; recent seconds as of now."""
    return {number: share for number, (share, _) in shares_and_spent(organisations).items()}


def shares_and_spent(organisations: Collection[int] | None = None) -> dict[int, tuple[Share, float]]:
    """The same, each with its seconds of workers in all."""
    rows = WorkerShare.objects.annotate(now=Now())
    rows = rows if organisations is None else rows.filter(organisation__in=organisations)
    return {row.organisation_id: (Share(_left(row, row.now), row.weight), row.spent_s) for row in rows}


def set_weight(organisation: Organisation, weight: float) -> None:
    """Set its weight; organisations have 1 by default."""
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise BadWeight(f"A weight is a number from {LEAST_WEIGHT} to {MOST_WEIGHT:g}; 1 is everybody's.")
    WorkerShare.objects.update_or_create(
        organisation=organisation,
        defaults={"weight": weight},
        create_defaults={"weight": weight, "at": Now()},
    )


def charge(organisation: int, seconds: float) -> None:
    """Count seconds of a worker; negative ones are given back."""
    with transaction.atomic():
        WorkerShare.objects.get_or_create(organisation_id=organisation, defaults={"at": Now()})
        row = WorkerShare.objects.select_for_update().annotate(now=Now()).get(organisation=organisation)
        left = max(0.0, _left(row, row.now) + seconds)
        WorkerShare.objects.filter(pk=row.pk).update(recent_s=left, at=Now(), spent_s=F("spent_s") + seconds)


@contextmanager
def charged(organisation: int, work: Work) -> Iterator[None]:
    """Charge what happens inside: the expected seconds at once, so that other workers see them, and the
    difference at the end."""
    charge(organisation, EXPECTED_S[work])
    began = time.monotonic()
    try:
        yield
    finally:
        try:
            charge(organisation, time.monotonic() - began - EXPECTED_S[work])
        except DatabaseError as error:  # what ended the piece matters more
            logger.warning("Seconds of organisation %s were not counted (%s).", organisation, error)


def stages_waiting(target_id: int, reach: Q) -> list[WorkTurn]:
    """Of each organisation, the lowest stage in which something waits that a worker may claim."""
    rows = claimable(target_id, reach).order_by().values_list("asked_by", "stage").distinct()
    return [WorkTurn(payer(number), WORK_OF_STAGE[Stage(stage)]) for number, stage in rows]


def goes_before(row: Exploration, reach: Q) -> QuerySet[Exploration]:
    """Work that goes before an exploration that runs: of the same organisation, and of others whose turn it
    would be."""
    own, waiting = payer(row.asked_by_id), stages_waiting(row.target_id, reach)
    known = shares({own, *(one.organisation for one in waiting)})
    mine = known.get(own, Share()).after(0.0)  # its piece was charged when it began
    others = {one.organisation for one in waiting if place_of(one, known) < mine}
    before = asked_by(own)
    for number in others - {own}:
        before |= asked_by(number)
    return claimable(row.target_id, reach).filter(before)


def _left(row: WorkerShare, now: datetime) -> float:
    return decayed(row.recent_s, (now - row.at).total_seconds(), conf().share_half_life_s)


def _host() -> int:
    found = Organisation.objects.filter(host=True).order_by("pk").values_list("pk", flat=True).first()
    return found if found is not None else default_organisation().pk
