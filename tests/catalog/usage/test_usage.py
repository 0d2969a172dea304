import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from catalog import models
from catalog.conf import conf, journal_folder
from catalog.errors import JournalError
from catalog.file_lock import only_one
from catalog.models import JobOperator, JournalSegment, LookupTally, StepFailure, Usage
from catalog.usage import draining, journal, usage_rows
from catalog.usage.draining import (
    KEPT,
    OF_LINES,
    OF_SEGMENTS,
    SET_ASIDE,
    drain_journal,
    forget_old_segments,
    is_held_up,
)


@pytest.fixture
def lines():
    """Lines of all journal files."""

    def read():
        return [line for path in journal.segments() for line in path.read_bytes().splitlines(keepends=True)]

    return read


def due_now():
    """As if what is held back had waited."""
    StepFailure.objects.exclude(due_at=None).update(due_at=timezone.now())


@pytest.fixture
def broken(organisation, monkeypatch):
    """A line that can be read, and that no database takes."""
    line = {"at": 1.7e9, "org": organisation.pk, "job": "broken", "hits": [], "misses": [[1, 1.0]]}

    def refuse(lines, jobs):
        if any(one.job == "broken" for one in lines):
            raise OverflowError("too large")
        usage_rows.count(lines, jobs)

    monkeypatch.setattr(draining, "count", refuse)
    return line


def totals():
    tally = LookupTally.objects.get()
    return tally.hits, tally.misses, tally.hit_calls, tally.miss_calls


def test_a_hit_is_journalled_before_the_answer_and_drained_into_usage(ask, put, organisation):
    published = put(64, "eager", 1.0)
    ask(64, job="run 1", calls=4.0)
    assert not Usage.objects.exists()
    assert drain_journal() == 1
    row = Usage.objects.get()
    assert (row.organisation, row.job.name, row.route, row.method) == (
        organisation,
        "run 1",
        "eager",
        "library",
    )
    assert (row.implementation, row.calls, row.median_us, row.default_us) == (
        published.implementation, 4.0, 100.0, 100.0,
    )  # fmt: skip
    assert totals() == (1, 0, 4.0, 0.0)
    assert JobOperator.objects.get().hits == 1


def test_misses_are_tallied_too(ask):
    ask(64, job="run 1", calls=2.0)
    ask(64, job="run 1", calls=2.0)
    drain_journal()
    assert totals() == (0, 2, 0.0, 4.0)
    assert JobOperator.objects.get().misses == 2
    assert not Usage.objects.exists()


def test_what_was_published_while_asking_is_no_miss(ask, put, monkeypatch):
    from catalog.lookup import lookups

    record = lookups.record_misses

    def publish_then_record(wanted, where):
        put(64, "eager", 1.0)
        return record(wanted, where)

    monkeypatch.setattr(lookups, "record_misses", publish_then_record)
    ask(64, calls=3.0)
    drain_journal()
    assert totals() == (1, 0, 3.0, 0.0)


def test_a_forked_process_writes_a_file_of_its_own():
    journal.append({"from": "parent"})
    if (child := os.fork()) == 0:
        try:
            journal.append({"from": "child"})
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    journal.append({"from": "parent"})
    written = {path.name.split("-")[1]: path.read_bytes().splitlines() for path in journal.segments()}
    assert written == {
        str(os.getpid()): [b'{"from":"parent"}'] * 2,
        str(child): [b'{"from":"child"}'],
    }


def test_draining_again_adds_nothing(ask, put):
    put(64, "eager", 1.0)
    for _ in range(3):
        ask(64)
    assert drain_journal() == 3
    assert drain_journal() == 0
    assert Usage.objects.count() == 3
    assert totals()[0] == 3


def test_a_position_that_was_lost_charges_nobody_twice(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    drain_journal()
    JournalSegment.objects.all().delete()
    drain_journal()
    assert Usage.objects.count() == 1
    assert totals()[0] == 1


def test_a_transaction_that_fails_is_done_again_in_full(ask, put, monkeypatch):
    put(64, "eager", 1.0)
    ask(64)
    ask(64)
    with monkeypatch.context() as patched:
        patched.setattr(usage_rows, "add_job_days", lambda *a: (_ for _ in ()).throw(RuntimeError("killed")))
        assert drain_journal() == 0
    assert not Usage.objects.exists()
    assert not LookupTally.objects.exists()
    assert is_held_up() and drain_journal() == 0, "not before it is due"
    due_now()
    assert drain_journal() == 2
    assert not StepFailure.objects.filter(step=OF_SEGMENTS).exists()
    assert totals()[0] == 2


def test_a_line_that_cannot_be_saved_is_kept_aside_once_it_has_failed_thrice(
    transactional_db, ask, put, broken
):
    put(64, "eager", 1.0)
    ask(64, job="before")
    journal.append(broken)
    journal.append_line(b"no JSON at all")
    ask(64, job="after")
    drained = []
    for _ in range(3):
        drained.append(drain_journal())
        due_now()
    assert drained == [1, 0, 3]
    assert set(Usage.objects.values_list("job__name", flat=True)) == {"before", "after"}
    (path,) = (journal_folder() / SET_ASIDE).iterdir()
    assert [json.loads(path.read_bytes().splitlines()[0]), path.read_bytes().splitlines()[1]] == [
        broken, b"no JSON at all",
    ]  # fmt: skip
    said = StepFailure.objects.filter(step=OF_LINES).order_by("pk").values_list("said", flat=True)
    assert [one.partition(":")[0] for one in said] == ["OverflowError", "JSONDecodeError"]


def test_several_lines_that_cannot_be_saved_hold_their_segment_up_for_no_longer_each(
    transactional_db, ask, put, broken
):
    put(64, "eager", 1.0)
    for _ in range(3):
        journal.append(broken)
    ask(64, job="after")
    waits = []
    while not Usage.objects.exists() and len(waits) < 20:
        drain_journal()
        rows = StepFailure.objects.exclude(due_at=None)
        waits += [(row.due_at - row.last_at).total_seconds() for row in rows]
        due_now()
    assert len(waits) == 6 and max(waits) == pytest.approx(20)


def test_a_segment_that_cannot_be_read_leaves_the_others_drained(ask, put):
    put(64, "eager", 1.0)
    (journal_folder() / "00000000T000000-1-x.jsonl").mkdir(parents=True)
    ask(64)
    assert drain_journal() == 1 and is_held_up()


def test_a_limit_leaves_the_rest_for_later(ask, put):
    put(64, "eager", 1.0)
    for _ in range(5):
        ask(64)
    assert [drain_journal(2) for _ in range(3)] == [2, 2, 1]
    assert totals()[0] == 5


def test_a_torn_last_line_waits_for_its_end_while_the_writer_lives(ask, put, lines):
    put(64, "eager", 1.0)
    ask(64)
    (path,) = journal.segments()
    whole = path.read_bytes()
    with path.open("ab") as writer:
        writer.write(whole[:40])
    assert drain_journal() == 1
    assert drain_journal() == 0
    with path.open("ab") as writer:
        writer.write(whole[40:])
    assert drain_journal() == 1
    assert totals()[0] == 2


def test_a_torn_last_line_of_a_dead_writer_is_passed_over_and_the_file_goes(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    (path,) = journal.segments()
    journal.close()
    with path.open("ab") as writer:
        writer.write(b'{"at": 1, "or')
    drain_journal()
    assert Usage.objects.count() == 1
    assert not path.exists()
    assert JournalSegment.objects.get().closed


def test_segments_that_were_closed_long_ago_are_forgotten_and_no_other(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    journal.close()
    drain_journal()
    ask(64)
    drain_journal()
    assert forget_old_segments() == 0 and JournalSegment.objects.count() == 2
    JournalSegment.objects.filter(closed=True).update(closed_at=timezone.now() - KEPT - timedelta(minutes=1))
    assert forget_old_segments() == 1
    assert not JournalSegment.objects.get().closed, "that one is being written"


def test_garbage_in_the_middle_does_not_hold_up_the_rest(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    (path,) = journal.segments()
    with path.open("ab") as writer:
        writer.write(b"\x00\xffgarbage\n[1]\n{}\n")
        writer.write(b'{"at":1,"org":1,"job":"","hits":[[1,2,"eager"]],"misses":[]}\n')  # too few columns
        writer.write(b'{"at":1e300,"org":1,"job":"","hits":[],"misses":[]}\n')
    ask(64)
    drain_journal()
    assert Usage.objects.count() == 2


def test_rows_deleted_since_do_not_hold_up_the_rest(ask, put, organisation):
    put(64, "eager", 1.0)
    put(65, "eager", 1.0)
    ask(64, 65)
    models.Best.objects.filter(operator__summary__contains="64").delete()
    published = models.Implementation.objects.get(operator__summary__contains="64")
    published.measurements.all().delete()
    published.delete()
    models.Best.objects.all().delete()
    models.Implementation.objects.all()[0].measurements.all().delete()
    models.Implementation.objects.all().delete()
    models.Operator.objects.filter(summary__contains="64").delete()
    drain_journal()
    (row,) = Usage.objects.all()
    assert row.implementation is None
    assert row.item == 1


def test_an_open_file_is_kept_and_a_full_one_makes_way(ask, put, configure):
    put(64, "eager", 1.0)
    ask(64)
    drain_journal()
    assert len(journal.segments()) == 1
    configure(journal_segment_bytes=10)
    ask(64)
    ask(64)
    assert len(journal.segments()) >= 2
    drain_journal()
    assert len(journal.segments()) == 1
    assert totals()[0] == 3


def test_tallies_are_by_the_hour_of_the_lookup(ask, put, lines):
    put(64, "eager", 1.0)
    ask(64)
    (line,) = lines()
    entry = json.loads(line) | {"at": datetime(2026, 3, 1, 11, 59, 59, 999000, tzinfo=UTC).timestamp()}
    journal.append(entry)
    drain_journal()
    hours = set(LookupTally.objects.values_list("hour", flat=True))
    assert datetime(2026, 3, 1, 11, tzinfo=UTC) in hours
    assert len(hours) == 2


def test_a_hit_that_cannot_be_journalled_is_not_served(ask, put):
    put(64, "eager", 1.0)
    conf().home.mkdir(parents=True)
    journal_folder().write_text("a file where the folder should be")
    with pytest.raises(JournalError, match="journal"):
        ask(64)


def test_only_one_drains_at_a_time(ask, put):
    put(64, "eager", 1.0)
    ask(64)
    with only_one(journal_folder() / "drain.lock"):
        assert drain_journal() == 0
    assert drain_journal() == 1


def test_a_batch_of_many_lines_is_drained_with_few_statements(ask, put, django_assert_max_num_queries):
    put(64, "eager", 1.0)
    for _ in range(100):
        ask(64, job="run")
    with django_assert_max_num_queries(34):
        drain_journal()
    assert Usage.objects.count() == 100
