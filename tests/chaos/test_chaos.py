"""The judge finds what is broken, the seed makes the schedule, and a short run breaks nothing."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from catalog import failpoints
from tests.chaos import oracle
from tests.chaos.faults import FAULTS
from tests.chaos.hearing import Hearer
from tests.chaos.schedule import PLACES, SLOW, schedule
from tests.chaos.uploading import hostile
from tests.dashboard.webhooks.receiver import receiving
from tests.databases import ROOT

ANSWERED = [
    {"charged": 2, "free": 1, "misses": ["o1:a"], "operators": 4, "tries": 1, "refused": []},
    {"charged": 1, "free": 2, "misses": [], "operators": 3, "tries": 3, "refused": []},
]
BOOKS = oracle.Books(
    free_usages=3, charged_usages=3, entries=3, entries_usages=3, day_entries=3, month_hits=3, tally_hits=6,
    balance_micros=-3000, entered_micros=-3000,
)  # fmt: skip


def test_the_seed_reproduces_the_schedule_and_minutes_have_every_kind() -> None:
    names = list(FAULTS)
    assert schedule(7, 3, names) == schedule(7, 3, names) != schedule(8, 3, names)
    assert {fault.name for fault in schedule(7, 3, names)} == set(names)
    assert [fault.at_s for fault in schedule(7, 3, names)] == sorted(
        fault.at_s for fault in schedule(7, 3, names)
    )


def test_what_is_armed_are_places_that_there_are() -> None:
    assert {place for places in PLACES.values() for place in places} | set(SLOW.values()) <= set(
        failpoints.PLACES
    )


def test_books_that_agree_are_fine() -> None:
    assert list(oracle.what_was_served_is_what_is_booked(ANSWERED, BOOKS)) == []
    lost = replace(BOOKS, free_usages=9, tally_hits=12)  # attempts without an answer may have counted
    assert list(oracle.what_was_served_is_what_is_booked(ANSWERED, lost)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"entries": 4}, {"entries": 2}, {"charged_usages": 4, "tally_hits": 7}, {"entries_usages": 2},
        {"day_entries": 2}, {"month_hits": 4}, {"free_usages": 2, "tally_hits": 5},
        {"free_usages": 10, "tally_hits": 13}, {"tally_hits": 5}, {"balance_micros": -2000},
    ],
    ids=str,
)  # fmt: skip
def test_a_unit_too_many_or_too_few_is_found(change) -> None:
    assert len(list(oracle.what_was_served_is_what_is_booked(ANSWERED, replace(BOOKS, **change)))) == 1


@pytest.mark.parametrize(
    ("state", "reason", "fine"),
    [("explored", "", True), ("failed", "Gave up after 3 tries.", True), ("failed", "", False),
     ("waiting", "", False), ("promoted", "It is explored.", False)],
)  # fmt: skip
def test_a_miss_ends_explored_or_with_a_reason(state, reason, fine) -> None:
    broken = list(oracle.every_miss_has_ended(ANSWERED, {"o1:a": (state, reason)}))
    assert (broken == []) == fine


def test_a_miss_that_is_gone_is_found() -> None:
    assert list(oracle.every_miss_has_ended(ANSWERED, {})) == ["The accepted miss of o1:a ended as 'lost'."]


def test_who_writes_after_another_was_given_the_claim_is_found() -> None:
    def line(s: float, place: str, fence: int) -> dict[str, object]:
        return {"s": s, "place": place, "exploration_id": 5, "fence": fence}

    fine = [
        line(1, "claimed", 1),
        line(2, "publish-committing", 1),
        line(3, "claimed", 2),
        line(4, "published", 1),
    ]
    assert list(oracle.nothing_is_explored_twice_at_once(fine)) == []
    assert list(oracle.nothing_is_explored_twice_at_once([*fine, line(5, "settling", 1)])) == [
        "Exploration 5 was written under fence 1 after 2 was given."
    ]
    assert list(oracle.trials_follow_fences([(5, 1), (5, 2), (6, 1)])) == []
    assert len(list(oracle.trials_follow_fences([(5, 2), (5, 1)]))) == 1


def test_a_correct_lookup_that_is_called_wrong_is_found() -> None:
    assert list(oracle.nothing_was_refused([{"refused": [422]}])) == ["A correct lookup was answered 422."]


UPLOADED = {
    "name": "uploader1 1", "kind": "model", "operators": 2, "refused": "", "status": 202, "tries": 1,
    "cancelled": False, "id": 7, "state": "done", "reason": "", "operators_done": 2,
}  # fmt: skip
CLAIMED = {"s": 1, "place": "upload-claimed", "upload_id": 7, "fence": 1}


@pytest.mark.parametrize(
    ("change", "claims", "fine"),
    [
        ({}, 1, True),
        ({"state": "waiting"}, 1, False),
        ({"state": "lost"}, 1, False),
        ({"state": "refused", "reason": "no valid JSON"}, 1, False),
        ({"state": "refused", "reason": "no valid JSON", "refused": "valid JSON"}, 1, True),
        ({"state": "refused", "reason": "", "refused": "valid JSON"}, 1, False),
        ({"refused": "valid JSON"}, 1, False),
        ({"state": "cancelled", "cancelled": True}, 1, True),
        ({"state": "cancelled"}, 1, False),
        ({"state": "dead", "reason": "It fell silent."}, 3, True),
        ({"state": "dead", "reason": "It fell silent."}, 2, False),
        ({"state": "dead", "reason": ""}, 3, False),
        ({"operators_done": 1}, 1, False),
        ({"status": 400, "error": "No."}, 0, False),
    ],
    ids=str,
)
def test_an_upload_ends_done_refused_for_what_it_is_or_cancelled(
    change: dict[str, Any], claims: int, fine: bool
) -> None:
    broken = list(oracle.every_upload_ends_as_it_must([UPLOADED | change], [CLAIMED] * claims))
    assert (broken == []) == fine


@pytest.mark.parametrize(
    ("change", "models", "fine"),
    [
        ({}, [2], True),
        ({}, [], False),
        ({}, [1], False),
        ({}, [2, 2], False),
        ({"state": "refused", "refused": "JSON"}, [], True),
        ({"state": "refused", "refused": "JSON"}, [2], False),
        ({"state": "cancelled"}, [], True),
    ],
    ids=str,
)
def test_a_done_upload_is_one_model_with_all_its_operators(
    change: dict[str, Any], models: list[int], fine: bool
) -> None:
    rows = [("uploader1 1", count) for count in models]
    assert (list(oracle.every_done_upload_is_one_model([UPLOADED | change], rows)) == []) == fine


def test_who_ends_an_upload_late_or_twice_is_found() -> None:
    later = CLAIMED | {"s": 3, "fence": 2}
    ending, ended = CLAIMED | {"s": 2, "place": "upload-ending"}, CLAIMED | {"s": 5, "place": "upload-ended"}
    assert list(oracle.nothing_is_taken_apart_twice_at_once([CLAIMED, ending, later, ended])) == []
    assert list(oracle.nothing_is_taken_apart_twice_at_once([CLAIMED, later, ending | {"s": 4}])) == [
        "Upload 7 was written under fence 1 after 2 was given."
    ]
    assert list(oracle.nothing_is_taken_apart_twice_at_once([CLAIMED, ended, ended])) == [
        "Upload 7 ended 2 times."
    ]
    assert list(oracle.nothing_is_left_of_uploads(["7.upload"])) == [
        "7.upload is left, and its upload has ended."
    ]


def told(name: str, facts: dict[str, Any], at: str = "9:00") -> dict[str, Any]:
    return {"id": name, "sha256": name, "type": "exploration.ended", "data": {"facts": facts, "at": at}}


FIRST = told("msg_1", {"exploration": 5, "after_s": 0.3})
DONE = told("msg_2", {"exploration": 5, "state": "done"})
PAID = {"id": "msg_3", "sha256": "msg_3", "type": "ledger.charged",
        "data": {"entries": [{"entry": 1}, {"entry": 2}, {"entry": 3}]}}  # fmt: skip


def test_what_ended_and_was_charged_is_told_and_what_was_not_is_found() -> None:
    settled = [{"place": "settled", "exploration_id": 5, "state": state} for state in ("queued", "done")]
    assert list(oracle.what_ended_was_told(settled, [(5, True, "done")], [FIRST, DONE, DONE])) == []
    assert list(oracle.what_ended_was_told(settled, [], [FIRST])) == ["Exploration 5: 'done' was not told."]
    assert list(oracle.what_ended_was_told([], [(5, True, "")], [DONE])) == [
        "Exploration 5: 'first' was not told."
    ]
    assert list(oracle.every_charge_was_told(ANSWERED, [PAID, PAID])) == []
    assert len(list(oracle.every_charge_was_told(ANSWERED, [FIRST]))) == 1


def test_a_message_counts_once_by_its_id_and_is_signed() -> None:
    assert list(oracle.what_happened_is_one_message([FIRST, FIRST, DONE, PAID, PAID])) == []
    assert len(list(oracle.what_happened_is_one_message([DONE, DONE | {"id": "msg_9"}]))) == 1
    again = told("msg_9", {"exploration": 5, "state": "done"}, at="9:05")
    assert list(oracle.what_happened_is_one_message([DONE, again])) == [], "a further round has ended"
    assert len(list(oracle.what_happened_is_one_message([PAID, PAID | {"id": "msg_9"}]))) == 3
    assert len(list(oracle.what_happened_is_one_message([PAID, PAID | {"sha256": "other"}]))) == 1
    unsigned = {"id": "msg_1", "sha256": "", "unsigned": "No matching signature found"}
    assert list(oracle.every_message_is_signed([FIRST])) == []
    assert len(list(oracle.every_message_is_signed([FIRST, unsigned]))) == 1


def test_a_receiver_believes_its_secret_alone_and_hears_nothing_while_it_is_down(tmp_path: Path) -> None:
    secret, other = (f"whsec_{base64.b64encode(bytes([n] * 24)).decode()}" for n in (1, 2))
    trace = tmp_path / "told"

    def send(key: str) -> int:
        body, at = json.dumps({"type": "credit.added", "data": {"n": 1}}), datetime.now(UTC)
        connection = http.client.HTTPConnection(receiver.host, receiver.port)
        signature = Webhook(key).sign("msg_1", at, body)
        headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(at.timestamp())),
                   "webhook-signature": signature}  # fmt: skip
        connection.request("POST", "/hooks", body, headers)
        return connection.getresponse().status

    with receiving() as receiver:
        hearer = Hearer(receiver, trace)
        hearer.secret, hearer.is_down = secret, True
        assert send(secret) == 503 and not trace.exists()
        hearer.is_down = False
        assert (send(secret), send(other)) == (200, 400)
    first, second = map(json.loads, trace.read_text().splitlines())
    assert (first["id"], first["type"], first["data"]) == ("msg_1", "credit.added", {"n": 1})
    assert "unsigned" in second


def test_hostile_uploads_are_of_three_kinds_and_within_what_is_read() -> None:
    assert {one.kind for one in hostile()} == {"too many nodes", "nested", "bomb"}
    assert all(one.refused and 64 << 10 < len(one.body) < 16 << 20 for one in hostile()[1:])


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.services
@pytest.mark.timeout(600)
def test_two_minutes_of_chaos_break_nothing(private_postgres, private_redis) -> None:
    """The fixtures only say whether the programs are there: chaos brings its own servers."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", "2"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
