"""Keys of an older version, made by hand: what stood under them stays in one piece."""

from catalog.lookup.rekeying import rekey_operators
from catalog.models import Best, JobOperator, LookupTally, Miss, Operator, Usage
from catalog.usage.closing import TALLIED
from catalog.usage.draining import drain_journal
from tests.catalog import making

OLD_KEY = "o0:" + "a" * 64


def age(length: int) -> Operator | None:
    """Put a Relu's row, if there is one, under a key of old."""
    Operator.objects.filter(key=making.relu(length).key).update(key=OLD_KEY)
    return Operator.objects.filter(key=OLD_KEY).first()


def test_todays_keys_stay(put):
    put(64, "eager", 1.0)
    done = rekey_operators()
    assert (done.kept, done.changed, done.merged, done.refused) == (1, 0, 0, [])


def test_an_old_key_is_changed_in_place_and_hits_again(put, ask):
    put(64, "eager", 1.0)
    row = age(64)
    assert ask(64, with_graph=False).results[0].status == "need_graph"
    assert rekey_operators().changed == 1
    row.refresh_from_db()
    assert row.key == making.relu(64).key
    assert ask(64, with_graph=False).results[0].status == "hit"


def test_two_that_became_one_are_merged(put, ask):
    put(64, "eager", 1.0)
    put(64, "tvm", 1.5)
    ask(64, job="run")
    ask(64, with_graph=True, related=(65,))
    old = age(64)
    put(64, "eager", 1.0)
    put(64, "onednn", 1.8)
    ask(64, job="run")
    assert rekey_operators().merged == 1
    assert not Operator.objects.filter(pk=old.pk).exists()
    assert list(Best.objects.order_by("rank").values_list("route", "rank")) == [
        ("onednn", 0), ("tvm", 1), ("eager", 2),
    ]  # fmt: skip
    assert ask(64).results[0].best.route == "onednn"
    drain_journal()
    assert Usage.objects.count() == 4
    assert JobOperator.objects.get(operator__key=making.relu(64).key, job__name="run").hits == 2


def test_merged_misses_are_counted_together(ask):
    ask(64, calls=2.0)
    age(64)
    ask(64, calls=3.0)
    rekey_operators()
    miss = Miss.objects.get()
    assert (miss.count, miss.calls) == (2, 5.0)


def test_tallies_of_two_that_became_one_are_added_up(put, ask):
    for calls in (2.0, 3.0):
        age(64)  # the first time there is none
        put(64, "eager", 1.0)
        put(64, "tvm", 1.5)
        ask(64, calls=calls)
        drain_journal()
    apart = list(LookupTally.objects.values_list(*TALLIED))
    assert len(apart) == 2
    rekey_operators()
    [together] = LookupTally.objects.values_list(*TALLIED)
    assert together == tuple(map(sum, zip(*apart, strict=True)))
    assert together[TALLIED.index("saved_us")] > max(row[TALLIED.index("saved_us")] for row in apart) > 0


def test_what_todays_rules_refuse_is_left_and_named(put):
    put(64, "eager", 1.0)
    row = age(64)
    Operator.objects.update(graph={"op": "Rulu", "inputs": []})
    (refused,) = rekey_operators().refused
    assert refused[0] == OLD_KEY
    assert Operator.objects.filter(pk=row.pk).exists()
