"""What one worker process holds: one row under a lease, a fence on every write, and one frame around the
work."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from django.db import models
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from tuning.conf import conf
from tuning.queue.clock import DATABASE_GONE, now_in

logger = logging.getLogger(__name__)

RUNNING = "running"  # whatever is held is in this state, by its own enumeration
UNLEASED: Mapping[str, Any] = {"lease_owner": "", "lease_expires_at": None}
UNHELD: Mapping[str, Any] = {**UNLEASED, "doing": ""}
"""Columns of a row that nobody works on; the second set also clears the present action."""

Row = TypeVar("Row", bound=models.Model)


class StaleLease(Exception):
    """It is no longer held: the lease expired and was swept, or the work was paused or discarded."""


class Stopping(Exception):
    """The worker was told to stop: work that was begun is given back and not counted as a failure."""


class DiskFull(Exception):
    """This worker's disk or store is full; no work is to blame."""


@dataclass(frozen=True, slots=True)
class HeldRow(Generic[Row]):
    """One row held by one worker process, for all of its writes to it."""

    pk: int
    fence: int

    model: ClassVar[Any]
    related: ClassVar[Sequence[str]]  # what the work reads of it

    def __str__(self) -> str:
        return f"{self.model._meta.verbose_name.capitalize()} {self.pk}"

    def row(self) -> QuerySet[Row]:
        """The row, while it is held."""
        return self.model.objects.filter(pk=self.pk, fence=self.fence, state=RUNNING)

    def update(self, **columns: Any) -> None:
        """Write to it; raises StaleLease and writes nothing if it was lost."""
        if self.row().update(**columns) != 1:
            raise self._stale()

    def load(self) -> Row:
        """The row with what belongs to it; raises StaleLease."""
        found = self.row().select_related(*self.related).first()
        if found is None:
            raise self._stale()
        return found

    def _stale(self) -> StaleLease:
        return StaleLease(f"{self} is no longer held under fence {self.fence}.")


def take(row: models.Model, owner: str, **columns: Any) -> int | None:
    """Take a row by compare-and-swap, as it was read: waiting, or with an expired lease. Returns its fence,
    or None if another was faster."""
    seen: Any = row
    unchanged: dict[str, Any] = {"pk": seen.pk, "fence": seen.fence, "state": seen.state}
    if seen.state == RUNNING:
        unchanged["lease_expires_at__lt"] = Now()  # it may have been renewed since we looked
    columns |= {"state": RUNNING, "fence": F("fence") + 1, "lease_owner": owner[:100]}
    leased = type(seen).objects.filter(**unchanged).update(**columns, lease_expires_at=now_in(conf().lease_s))
    return seen.fence + 1 if leased else None


def renew(held: Sequence[HeldRow[Any]]) -> list[HeldRow[Any]]:
    """Extend the leases; returns those that were lost."""
    return [one for one in held if one.row().update(lease_expires_at=now_in(conf().lease_s)) != 1]


def work_on(
    held: HeldRow[Any],
    work: Callable[[], object],
    give_back: Callable[[], object],
    fail: Callable[[Exception], object],
) -> bool:
    """Do the held work; False if it was lost meanwhile. Raises Stopping and DiskFull (it was given back) and
    DATABASE_GONE; any other error is this piece's failure, and the next one goes on."""
    try:
        work()
    except Stopping:
        give_back()
        raise
    except StaleLease as error:
        logger.warning("%s", error)
        return False
    except DATABASE_GONE:
        raise
    except Exception as error:
        if _is_of_a_full_disk(error):
            give_back()
            raise DiskFull(f"No space is left where this worker works or stores ({error}).") from error
        logger.exception("%s broke.", held)
        try:
            fail(error)
        except StaleLease:
            return False
        except DATABASE_GONE:
            raise
        except Exception:
            # Its lease runs out, and whoever sweeps counts the try: others' work goes on meanwhile.
            logger.exception("%s broke, and that could not be written down.", held)
            return False
    return True


def _is_of_a_full_disk(error: BaseException | None) -> bool:
    """Whatever was raised on the way from there."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        error = error.__cause__ or error.__context__
    return False
