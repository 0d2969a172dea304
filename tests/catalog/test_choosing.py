from hypothesis import given
from hypothesis import strategies as st

from catalog.choosing import beats, beats_in_pairs, rank
from opatlas.evidence import Ratios


def ratios(ratio: float, spread: float = 0.01) -> Ratios:
    return Ratios(ratio, ratio * (1 - spread), ratio * (1 + spread))


DEFAULT = Ratios(1.0, 1.0, 1.0)

some_ratios = st.builds(ratios, st.floats(0.01, 100), st.floats(0, 0.5))


def test_clearly_faster_beats():
    assert beats(ratios(1.5), ratios(1.2))


def test_a_difference_within_the_noise_keeps_the_incumbent():
    assert not beats(ratios(1.25, spread=0.1), ratios(1.2, spread=0.1))
    assert beats(ratios(1.25, spread=0.001), ratios(1.2, spread=0.001))


def test_a_difference_below_the_margin_is_none_however_sure():
    assert not beats(Ratios(1.21, 1.21, 1.21), Ratios(1.2, 1.2, 1.2))


def test_the_default_is_not_beaten_by_what_is_slower():
    assert not beats(ratios(0.9), DEFAULT)
    assert rank({"eager": DEFAULT, "tvm": ratios(0.9)}, "eager")[0] == "eager"


def test_an_incumbent_confirmed_slower_than_the_default_goes_even_within_the_margin():
    slower = Ratios(0.99, 0.985, 0.995)
    assert rank({"eager": DEFAULT, "tvm": slower}, "tvm") == ["eager", "tvm"]


def test_the_incumbent_stays_first_within_noise_and_the_rest_go_by_ratio():
    entries = {"a": ratios(1.3, 0.05), "b": ratios(1.33, 0.05), "c": ratios(1.1), "d": ratios(0.5)}
    assert rank(entries, "a") == ["a", "b", "c", "d"]
    assert rank(entries, "c") == ["b", "a", "c", "d"]


def test_without_an_incumbent_the_fastest_is_first():
    assert rank({"a": ratios(1.1), "b": ratios(1.4)}, None) == ["b", "a"]
    assert rank({"a": ratios(1.1), "b": ratios(1.4)}, "gone") == ["b", "a"]


@given(some_ratios, some_ratios)
def test_two_never_beat_each_other(one, other):
    assert not (beats(one, other) and beats(other, one))


@given(some_ratios)
def test_nothing_beats_itself(one):
    assert not beats(one, one)


@given(st.dictionaries(st.sampled_from("abcdef"), some_ratios, min_size=1), st.sampled_from("abcdef"))
def test_ranking_names_everyone_once_and_never_lets_the_slow_lead(entries, incumbent):
    order = rank(entries, incumbent)
    assert sorted(order) == sorted(entries)
    if not all(entry.confirmed_slower for entry in entries.values()):
        assert not entries[order[0]].confirmed_slower
    # Ranking again with the new winner changes nothing: a tie does not go back and forth.
    assert rank(entries, order[0]) == order


def test_who_ran_in_turns_with_the_incumbent_is_judged_by_those_rounds():
    """A wide interval against the default hides what the rounds with the incumbent show (and the reverse)."""
    entries = {"held": Ratios(3.7, 3.2, 4.9), "new": Ratios(5.0, 4.25, 5.53)}
    assert rank(entries, "held")[0] == "held"
    assert rank(entries, "held", paired={"new": Ratios(1.35, 1.15, 1.5)})[0] == "new"
    clear = {"held": ratios(3.0, 0.001), "new": ratios(3.3, 0.001)}
    assert rank(clear, "held")[0] == "new"
    assert rank(clear, "held", paired={"new": Ratios(1.1, 0.97, 1.2)})[0] == "held"


def test_pairs_below_the_margin_or_slower_than_the_default_change_nothing():
    assert not beats_in_pairs(Ratios(1.015, 1.01, 1.02))
    entries = {"eager": DEFAULT, "tvm": ratios(0.9)}
    assert rank(entries, "eager", paired={"tvm": Ratios(1.5, 1.4, 1.6)})[0] == "eager"


def test_of_two_slower_ones_the_less_slow_beats():
    assert beats(ratios(0.9), ratios(0.5))
    assert not beats(ratios(0.5), ratios(0.9))


def test_what_is_no_more_than_the_noise_or_the_margin_is_none():
    same = Ratios(1.2, 1.2, 1.2)
    assert not beats(same, same, margin=0.0)
    assert not beats_in_pairs(Ratios(1.5, 1.0, 2.0))
    assert beats_in_pairs(Ratios(1.5, 1.001, 2.0))
    assert not beats_in_pairs(Ratios(1.25, 1.2, 1.3), margin=0.25)
    assert beats_in_pairs(Ratios(1.25, 1.2, 1.3), margin=0.125)


def test_a_ranking_goes_by_the_margin_that_is_given():
    entries = {"held": ratios(1.0), "quick": ratios(1.3)}
    pairs = {"quick": ratios(1.3)}
    for paired in (None, pairs):
        assert rank(entries, "held", paired=paired) == ["quick", "held"]
        assert rank(entries, "held", margin=0.5, paired=paired) == ["held", "quick"]
