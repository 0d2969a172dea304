"""Steps of periodic work, and loops over rows, in which a failure stops nothing else.

:func:`step` does one step of a round; :func:`each` loops over rows that others wrote. Both note failures
(``StepFailure``), so that ``/readyz`` and the alerts show them, and note when it works again. If the database
is away, that is raised: no step or row is to blame.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from catalog.errors import SystemFault
from catalog.models import StepFailure
from catalog.upsert import insert_or
from opatlas.errors import OpatlasError, first_line

logger = logging.getLogger(__name__)

Row = TypeVar("Row")
Done = TypeVar("Done")

LASTS = 3
"""After so many failures in a row a step's trouble is no passing one, …"""
LASTS_FOR = timedelta(minutes=5)
"""… nor if it has not worked for so long, however rarely it runs."""
AGAIN_S, MOST_AGAIN_S = 5.0, 6 * 3600.0
"""A row that failed is tried again after so long; each time that it fails, after four times as long, …"""
SOON_S = 60.0
"""… but never after longer than this if the host was to blame or many wait for the row."""
KEPT = timedelta(days=1)
"""How long a row is shown as set aside. Longer than any row is held back."""

_LOOK_EVERY_S = 60.0
"""How often we look whether another process has noted a failure of what works here."""
_OF_OTHERS_FOR = timedelta(minutes=3)
"""How long another process's failure is shown although it works here. Shorter than ``LASTS_FOR`` by more than
a look takes: what has passed must not seem to last."""

PASSING = (OperationalError, InterfaceError, OSError, MemoryError)
"""Troubles of the host or the database, which do not condemn the row that met them."""

_look_at: dict[str, float] = {}
_failed_here: dict[str, int] = {}


def _log_seldom(name: str) -> None:
    """A step that fails every second would fill the log with one trace."""
    _failed_here[name] = count = _failed_here.get(name, 0) + 1
    if count & (count - 1) == 0:
        logger.exception("This step failed (%d in a row here), the others go on: %s", count, name)


@dataclass
class StepDone:
    """The result of a step; ``error``: what it failed with, empty if it did not."""

    error: str = ""


@contextmanager
def step(name: str, raises: tuple[type[Exception], ...] = ()) -> Iterator[StepDone]:
    """One step of a round; the next one runs whatever became of it. Raises DatabaseError if the database is
    away, and what ``raises`` names: those are no failures."""
    done = StepDone()
    try:
        yield done
    except Exception as error:
        if isinstance(error, raises) or is_away(error):
            raise
        _log_seldom(name)
        done.error = told(error)
        note_failure(name, error)
    else:
        _note_success(name)


def each(
    name: str,
    rows: Iterable[Row],
    work: Callable[[Row], Done],
    aside: Callable[[Row, str], object] | None = None,
    raises: tuple[type[Exception], ...] = (),
    *,
    shared: bool = False,
) -> list[Done]:
    """Do ``work`` for each row; returns the results of those that did not fail. ``aside`` sets a failing row
    aside for good, with the reason as a sentence for anybody. Without it, or if the host was to blame, the
    row is held back for a while; callers that take some rows of many leave out those of :func:`held_back`.
    Within a transaction each row has a savepoint. ``raises``: errors that end the loop, if a skipped row
    would be lost. ``shared``: many wait for each row, which is held back for at most ``SOON_S``."""
    done: list[Done] = []
    noted: dict[int, datetime | None] | None = None
    for row in rows:
        if noted is None:
            failures = StepFailure.objects.filter(step=name).exclude(row=0)
            noted = dict(failures.values_list("row", "due_at"))
        number = number_of(row)
        if (due_at := noted.get(number)) and due_at > timezone.now():
            continue
        try:
            with _savepoint():
                done.append(work(row))
        except Exception as error:
            if isinstance(error, raises) or is_away(error):
                raise
            set_aside(name, row, error, aside, shared=shared)
            continue
        if number in noted:
            StepFailure.objects.filter(step=name, row=number).delete()
    return done


def first_that_works(name: str, rows: Iterable[Row], work: Callable[[Row], Done | None]) -> Done | None:
    """The result of ``work`` for the first row with a result; rows that fail are held back."""
    for row in rows:
        try:
            with _savepoint():
                found = work(row)
        except Exception as error:
            if is_away(error):
                raise
            set_aside(name, row, error)
            continue
        if found is not None:
            return found
    return None


def set_aside(
    name: str,
    row: object,
    error: Exception,
    aside: Callable[[Any, str], object] | None = None,
    *,
    shared: bool = False,
) -> None:
    """A row failed: set it aside for good by ``aside``, else hold it back for a while."""
    logger.error("Set aside, the others go on (%s): %r", name, row, exc_info=error)
    for_good = False
    if aside is not None and not isinstance(error, PASSING):
        try:
            with _savepoint():
                aside(row, reason_of(error))
            for_good = True
        except Exception as again:
            if is_away(again):
                raise
            logger.exception("It could not be set aside for good (%s): %r", name, row)
    note_failure(name, error, number_of(row), for_good=for_good, shared=shared)


def held_back(*names: str) -> QuerySet[StepFailure, int]:
    """Numbers of the rows that any of these steps must not try yet, as a subquery."""
    waiting = StepFailure.objects.filter(step__in=names, due_at__gt=timezone.now())
    return waiting.values_list("row", flat=True)


def lasting() -> QuerySet[StepFailure]:
    """Steps that keep failing as a whole."""
    long_ago = timezone.now() - LASTS_FOR
    return StepFailure.objects.filter(Q(failures__gte=LASTS) | Q(first_at__lt=long_ago), row=0)


def forget_old_failures() -> int:
    """The courier's chore: drop failures that are old, were set aside long ago, or whose step no longer
    runs."""
    return StepFailure.objects.filter(last_at__lt=timezone.now() - KEPT).delete()[0]


def reason_of(error: Exception) -> str:
    """A sentence for anybody: a deliberate error says what is wrong, a bug reveals nothing of the service."""
    if isinstance(error, OpatlasError) and not isinstance(error, SystemFault):
        said = first_line(error)
        return said if said.endswith(".") else f"{said}."
    return f"The service failed at it ({type(error).__name__}); who runs the service was told."


def told(error: Exception) -> str:
    """A text for the service's operators."""
    return f"{type(error).__name__}: {first_line(error)}"[:300]


def is_away(error: Exception) -> bool:
    """Whether the database itself is away, and not only one statement failed."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchone()
    except DatabaseError:
        return True
    return False


def note_failure(
    name: str, error: Exception, row: int = 0, *, for_good: bool = False, shared: bool = False
) -> int:
    """Note a failure or a repetition; returns how often in a row. If that cannot be written, the log has it.
    ``for_good``: such a row is not held back; ``shared``: for at most ``SOON_S``."""
    _look_at.pop(name, None)
    now = timezone.now()
    given = {
        "step": name[:100],
        "row": row,
        "said": told(error),
        "failures": 1,
        "first_at": now,
        "last_at": now,
    }
    # Processes that began before a row was held back, and fail beside each other, are one failure.
    failures = "CASE WHEN old.due_at > new.last_at THEN old.failures ELSE old.failures + 1 END"
    updates = {"said": "new.said", "failures": failures, "last_at": "new.last_at"}
    try:
        with _savepoint():
            insert_or(StepFailure, [given], unique=["step", "row"], updates=updates)
            noted = StepFailure.objects.get(step=name[:100], row=row)
            if row and not for_good:
                _hold_back(noted, SOON_S if shared or isinstance(error, PASSING) else MOST_AGAIN_S)
            return noted.failures
    except DatabaseError as again:
        logger.warning("It could not be noted that this step failed: %s (%s).", name, again)
        return 1


def _hold_back(noted: StepFailure, most_s: float) -> None:
    if noted.due_at is not None and noted.due_at > noted.last_at:
        return  # another process has done it
    wait_s = min(AGAIN_S * 4.0 ** min(noted.failures - 1, 20), most_s)
    due_at = noted.last_at + timedelta(seconds=wait_s)
    StepFailure.objects.filter(pk=noted.pk).update(due_at=due_at)


def _note_success(name: str) -> None:
    """It works (again) here: rarely looked up if this process knows of no failure. Another process's failure
    stays for a while: it may fail there only, again and again."""
    failed_here = _failed_here.pop(name, 0)
    now = time.monotonic()
    if now < _look_at.get(name, 0.0):
        return
    _look_at[name] = now + _LOOK_EVERY_S
    try:
        noted = StepFailure.objects.filter(step=name[:100], row=0)
        if not failed_here:
            noted = noted.filter(last_at__lt=timezone.now() - _OF_OTHERS_FOR)
        if noted.exists():
            noted.delete()
    except DatabaseError as error:
        logger.warning("It could not be noted that this step works: %s (%s).", name, error)


def _savepoint() -> AbstractContextManager[object]:
    """Within a transaction: what fails in it takes nothing else back."""
    return transaction.atomic() if connection.in_atomic_block else nullcontext()


def number_of(row: object) -> int:
    """A model's row by its number, anything else by a number made of its name."""
    number = getattr(row, "pk", row)
    return number if isinstance(number, int) else zlib.crc32(str(number).encode()) + 1
