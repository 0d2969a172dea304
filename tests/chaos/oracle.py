"""What must hold after whatever was done, judged by traces that the service does not read, and by its rows.

``answers``: a line for each lookup that was answered (``asking.py`` writes it). ``passed``: who passed which
place of ``catalog.failpoints`` when. Each rule gives a sentence for each time that it was broken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENDED = {"explored": False, "failed": True, "unsupported": True, "discarded": True}
"""States of a miss that ended, and whether a reason is due."""
WRITING = ("publish-committing", "settling")
"""Places within a transaction that holds the exploration's row under its fence."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Books:
    """What the service says that it served, after its journals were drained."""

    free_usages: int
    charged_usages: int
    entries: int
    entries_usages: int  # different usage rows among them
    day_entries: int
    month_hits: int
    tally_hits: int
    balance_micros: int
    entered_micros: int


def every_miss_has_ended(answers: Iterable[Line], misses: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """``misses``: operator → state and reason."""
    for key in sorted({key for line in answers for key in line["misses"]}):
        state, reason = misses.get(key, ("lost", ""))
        if state not in ENDED:
            yield f"The accepted miss of {key} ended as {state!r}."
        elif ENDED[state] and not reason:
            yield f"The accepted miss of {key} is {state} without a reason."


def nothing_is_explored_twice_at_once(passed: Iterable[Line]) -> Iterator[str]:
    """Nobody writes under a fence after somebody was given a later one."""
    newest: dict[int, int] = defaultdict(int)
    for line in sorted(passed, key=lambda line: line["s"]):
        number, fence = line.get("exploration_id"), line.get("fence", 0)
        if number is None:
            continue
        if line["place"] == "claimed":
            newest[number] = max(newest[number], fence)
        elif line["place"] in WRITING and fence < newest[number]:
            yield f"Exploration {number} was written under fence {fence} after {newest[number]} was given."


def trials_follow_fences(trials: Sequence[tuple[int, int]]) -> Iterator[str]:
    """``trials``: exploration and fence, in the order in which they were written."""
    newest: dict[int, int] = defaultdict(int)
    for number, fence in trials:
        if fence < newest[number]:
            yield f"A trial of exploration {number} has fence {fence} after {newest[number]}."
        newest[number] = max(newest[number], fence)


def what_was_served_is_what_is_booked(answers: Sequence[Line], books: Books) -> Iterator[str]:
    """Charged hits to the unit; free ones to what may have been lost on the way: each attempt that had no
    answer may have been written down."""
    charged = sum(line["charged"] for line in answers)
    free = sum(line["free"] for line in answers)
    lost = sum((line["tries"] - 1) * line["operators"] for line in answers)
    equal = {
        "ledger entries": books.entries,
        "usage rows that were charged": books.charged_usages,
        "usage rows with an entry": books.entries_usages,
        "entries in the days' sums": books.day_entries,
        "hits in the month's counts": books.month_hits,
    }
    for what, number in equal.items():
        if number != charged:
            yield f"{charged} charged hits were delivered, and there are {number} {what}."
    if not free <= books.free_usages <= free + lost:
        yield f"{free} to {free + lost} free hits were delivered, and {books.free_usages} are counted."
    usages = books.free_usages + books.charged_usages
    if books.tally_hits != usages:
        yield f"There are {usages} usage rows, and {books.tally_hits} hits in tallies."
    if books.balance_micros != books.entered_micros:
        yield f"The balance is {books.balance_micros}, its entries are {books.entered_micros}."


def nothing_was_refused(answers: Iterable[Line]) -> Iterator[str]:
    """Whatever happens, a correct request is answered, or answered later; it is never called wrong."""
    for line in answers:
        for status in line["refused"]:
            yield f"A correct lookup was answered {status}."
