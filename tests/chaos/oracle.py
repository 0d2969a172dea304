"""What must hold after whatever was done, judged by traces that the service does not read, and by its rows.

``answers``: a line for each lookup that was answered (``asking.py`` writes it). ``uploads``: a line for each
upload that has ended (``uploading.py``). ``told``: a line for each message that the receiver was sent
(``hearing.py``). ``passed``: who passed which place of ``catalog.failpoints`` when. Each rule gives a
sentence for each time that it was broken.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ENDED = {"explored": False, "failed": True, "unsupported": True, "discarded": True}
"""States of a miss that ended, and whether a reason is due."""
UPLOAD_TRIES = 3
"""So often an upload is claimed before it is given up."""
EXPLORED, CHARGED = "exploration.ended", "ledger.charged"

Line = Mapping[str, Any]


@dataclass(frozen=True)
class FencedWork:
    """Work under a lease, by what the trace says of it: what names it, the place where it was claimed, and
    places within a transaction that holds its row under the claim's fence."""

    number: str
    claimed: str
    writing: tuple[str, ...]


EXPLORATION = FencedWork("exploration_id", "claimed", ("publish-committing", "settling"))
UPLOAD = FencedWork("upload_id", "upload-claimed", ("upload-ending",))


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
    return _nobody_writes_late(passed, EXPLORATION, "Exploration")


def _nobody_writes_late(passed: Iterable[Line], work: FencedWork, what: str) -> Iterator[str]:
    """Nobody writes under a fence after somebody was given a later one."""
    newest: dict[int, int] = defaultdict(int)
    for line in sorted(passed, key=lambda line: line["s"]):
        number, fence = line.get(work.number), line.get("fence", 0)
        if number is None:
            continue
        if line["place"] == work.claimed:
            newest[number] = max(newest[number], fence)
        elif line["place"] in work.writing and fence < newest[number]:
            yield f"{what} {number} was written under fence {fence} after {newest[number]} was given."


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


def every_upload_ends_as_it_must(uploads: Iterable[Line], passed: Iterable[Line]) -> Iterator[str]:
    """A model becomes one, what is hostile is refused for what it is; either may have been cancelled, where
    that was asked for, or be given up once it was claimed as often as is tried."""
    claims = Counter(line[UPLOAD.number] for line in passed if line["place"] == UPLOAD.claimed)
    for line in uploads:
        if line["status"] != 202:
            yield f"The {line['kind']} {line['name']} was answered {line['status']}: {line.get('error')}"
            continue
        state, reason = line["state"], line.get("reason", "")
        given_up = state == "dead" and reason and claims[line["id"]] >= UPLOAD_TRIES
        if given_up or (state == "cancelled" and line["cancelled"]):
            continue
        what = f"Upload {line['id']} ({line['kind']}) ended as {state!r}"
        if line["refused"]:
            if state != "refused" or line["refused"] not in reason:
                yield f"{what}, to be refused with {line['refused']!r}: {reason!r}"
        elif state != "done":
            yield f"{what}: {reason!r}"
        elif line["operators_done"] != line["operators"]:
            yield f"{what} with {line['operators_done']} of {line['operators']} operators."


def every_done_upload_is_one_model(
    uploads: Iterable[Line], models: Iterable[tuple[str, int]]
) -> Iterator[str]:
    """``models``: the name of each that there is, and how many operators it has."""
    found: dict[str, list[int]] = defaultdict(list)
    for name, operators in models:
        found[name].append(operators)
    for line in uploads:
        has = found[line["name"]]
        if line.get("state") == "done" and has != [line["operators"]]:
            yield f"{line['name']} has {line['operators']} operators; its models have {has}."
        if line["refused"] and has:
            yield f"{line['name']} is hostile, and became a model."


def nothing_is_taken_apart_twice_at_once(passed: Sequence[Line]) -> Iterator[str]:
    yield from _nobody_writes_late(passed, UPLOAD, "Upload")
    ends = Counter(line[UPLOAD.number] for line in passed if line["place"] == "upload-ended")
    for number in sorted(number for number, times in ends.items() if times > 1):
        yield f"Upload {number} ended {ends[number]} times."


def nothing_is_left_of_uploads(files: Iterable[str]) -> Iterator[str]:
    """``files``: what lies where the bytes of uploads are kept."""
    for name in sorted(files):
        yield f"{name} is left, and its upload has ended."


def every_message_is_signed(told: Iterable[Line]) -> Iterator[str]:
    for line in told:
        if "unsigned" in line:
            yield f"Message {line['id']} cannot be believed: {line['unsigned']}."


def what_happened_is_one_message(told: Iterable[Line]) -> Iterator[str]:
    """However often it is sent it has one id, and an id one body: whoever counts ids counts what happened."""
    bodies: dict[str, set[str]] = defaultdict(set)
    ids: dict[Any, set[str]] = defaultdict(set)
    for line in told:
        bodies[line["id"]].add(line["sha256"])
        for happened in _happenings(line):
            ids[happened].add(line["id"])
    for name in sorted(name for name, different in bodies.items() if len(different) > 1):
        yield f"Message {name} was sent with {len(bodies[name])} bodies."
    for happened, names in ids.items():
        if len(names) > 1:
            yield f"{happened} was told as {len(names)} messages."


def what_ended_was_told(
    passed: Iterable[Line], explorations: Iterable[tuple[int, bool, str]], told: Iterable[Line]
) -> Iterator[str]:
    """``explorations``: number, whether it has a first result, and its state where it has ended."""
    due = {(line["exploration_id"], line["state"]) for line in passed if line["place"] == "settled"}
    due = {one for one in due if one[1] != "queued"}
    for number, has_result, state in explorations:
        due |= ({(number, "first")} if has_result else set()) | ({(number, state)} if state else set())
    heard = {happened[1:3] for line in told for happened in _happenings(line) if happened[0] == EXPLORED}
    for number, what in sorted(due - heard):
        yield f"Exploration {number}: {what!r} was not told."


def every_charge_was_told(answers: Iterable[Line], told: Iterable[Line]) -> Iterator[str]:
    charged = sum(line["charged"] for line in answers)
    heard = {happened for line in told for happened in _happenings(line) if happened[0] == CHARGED}
    if len(heard) != charged:
        yield f"{charged} charged hits were delivered, and {len(heard)} charges were told."


def _happenings(line: Line) -> list[tuple[Any, ...]]:
    """What a message tells: its type, and what tells it from others of its type."""
    data = line.get("data", {})
    if line.get("type") == CHARGED:
        return [(CHARGED, entry["entry"]) for entry in data["entries"]]
    if line.get("type") == EXPLORED:
        facts = data["facts"]
        what = "first" if "after_s" in facts else facts["state"]
        return [(EXPLORED, facts["exploration"], what, data["at"])]
    return []
