"""What jobs asked next is learnt from their own order, once for each job, by their own organisation alone."""

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.models import JobOperator, JournalSegment, Organisation, StepFailure, Succession
from catalog.usage import journal, succession
from catalog.usage.draining import drain_journal
from catalog.usage.succession import asked_next, forget_old_successions
from tests.catalog import making


def key(length):
    return making.relu(length).key


@pytest.fixture
def after(organisation):
    """``after(64)``: lengths that jobs asked for after a Relu of that length, the likeliest first."""
    lengths = {key(length): length for length in range(64, 200)}

    def asked(*before, of=organisation):
        drain_journal()
        return [lengths[one] for one in asked_next(of, [key(length) for length in before])]

    return asked


def test_hits_and_misses_are_learnt_in_the_order_of_the_request(ask, put, after):
    put(65, "eager", 1.0)
    put(67, "eager", 1.0)
    ask(64, 65, 66, 67, job="run")
    assert after(64) == [65, 66, 67] and after(66) == [67] and after(67) == []
    assert after(64, 65) == [66, 67], "who is named comes not along"


def test_an_order_goes_on_over_lookups_and_drains(ask, after):
    ask(64, job="run")
    drain_journal()
    ask(65, job="run")
    ask(66, job="run")
    drain_journal()
    ask(67, job="run")
    assert after(64) == [65, 66, 67]
    numbers = JobOperator.objects.order_by("number").values_list("number", flat=True)
    assert list(numbers) == [0, 1, 2, 3]


def test_a_pair_counts_once_for_each_job(ask, after):
    for _ in range(3):
        ask(64, 65, job="loops")
        drain_journal()
    ask(64, 66, job="other")
    ask(64, 66, job="third")
    ask(64, 67)  # of no job: of no order
    assert after(64) == [66, 65]
    pairs = Succession.objects.values_list("after__key", "jobs", "weight")
    assert sorted(pairs) == sorted([(key(65), 1, 1.0), (key(66), 2, 2.0)])


def test_only_the_window_behind_and_the_strongest_are_kept(ask, after, monkeypatch):
    monkeypatch.setattr(succession, "WINDOW", 3)
    monkeypatch.setattr(succession, "STRONGEST", 2)
    ask(64, 65, 66, 67, 68, job="run")
    assert after(64) == [65, 66] and after(65) == [66, 67]
    ask(64, 67, job="second")
    ask(64, 67, job="third")
    assert after(64) == [67, 65]


def test_an_organisations_rows_are_bounded_and_the_oldest_go(ask, organisation, after, monkeypatch):
    ask(64, 65, job="old")
    drain_journal()
    Succession.objects.update(last_at=timezone.now() - timedelta(days=1))
    monkeypatch.setattr(succession, "MOST_ROWS", 3)
    ask(70, 71, 72, job="new")
    assert after(64) == [] and after(70) == [71, 72]
    Succession.objects.filter(before__key=key(70)).update(last_at=timezone.now() - timedelta(days=91))
    assert forget_old_successions() == 2 and after(70) == [] and after(71) == [72]


def test_a_drain_that_is_killed_and_one_that_lost_its_place_count_once(ask, put, after, monkeypatch):
    put(64, "eager", 1.0)
    put(65, "eager", 1.0)
    ask(64, 65, 66, job="run")
    with monkeypatch.context() as patched:
        patched.setattr(JournalSegment, "save", lambda *a, **b: (_ for _ in ()).throw(RuntimeError("killed")))
        drain_journal()
    assert not Succession.objects.exists()
    StepFailure.objects.update(due_at=timezone.now())
    assert after(64) == [65, 66]
    JournalSegment.objects.all().delete()
    drain_journal()
    assert set(Succession.objects.values_list("jobs", flat=True)) == {1}


def test_charged_hits_have_their_places_too(after, organisation, put, ask):
    from catalog.usage.recording import journal_lookup

    numbers = [put(length, "eager", 1.0).implementation.operator_id for length in (64, 65)]
    ask(64, 65, job="run")
    drain_journal()
    JobOperator.objects.update(number=None)  # as rows are that a charged lookup wrote
    journal_lookup(organisation.pk, "run", [], [], numbers[::-1])
    assert after(65) == [64]


def test_lines_from_before_orders_were_noted_are_read(organisation, put):
    rows = [put(length, "eager", 1.0).implementation for length in (64, 65)]
    hits = [(row.operator_id, row.pk, "eager", "library", 1.0, 2.0, 1.0) for row in rows]
    journal.append({"at": 1.7e9, "org": organisation.pk, "job": "run", "hits": hits, "misses": []})
    drain_journal()
    assert asked_next(organisation, [key(64)]) == [key(65)]


# ---- whom it is told ------------------------------------------------------------------------------------


def test_nobody_learns_from_another_organisation(ask, put, after, organisation):
    """An attacker knows a public operator and guesses what a competitor runs after it: names its job as
    theirs, asks for the same, repeats it, poisons. Nothing of either reaches the other."""
    theirs = Organisation.objects.create(name="theirs")
    for length in (64, 65, 66, 70):
        put(length, "eager", 1.0)
    ask(64, 65, job="training", organisation=theirs)
    drain_journal()
    for number in range(5):
        ask(64, 70, job=f"poison {number}")
    ask(64, job="training")  # named as theirs is
    probe = {"job": "training", "include": frozenset({"next", "manifest"})}
    drain_journal()
    mine = ask(64, **probe)
    assert [one.key for one in mine.next] == [key(70)], "its own only"
    assert len(mine.artifacts) == 2, "not even a manifest says more"
    told = ask(64, organisation=theirs, **probe)
    assert [one.key for one in told.next] == [key(65)], "what others asked moves nothing"
    nobody = Organisation.objects.create(name="new here")
    assert ask(64, organisation=nobody, **probe).next == ()
    assert ask(64, organisation=None, **probe).next == ()
    assert after(64, of=nobody) == []
