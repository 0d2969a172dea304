from hypothesis import given
from hypothesis import strategies as st

from catalog.choosing import Contender, RaceDecision, beats, beats_in_pairs, decide, rank
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


def race(ratios_of, incumbent=None, loads=(), spread=0.01):
    finalists = {
        name: Contender(ratios(value), dict(loads).get(name, 0.0)) for name, value in ratios_of.items()
    }
    pairs = {
        (one, other): ratios(ratios_of[other] / ratios_of[one], spread)
        for one in ratios_of
        for other in ratios_of
        if one != other
    }
    return decide(finalists, pairs, incumbent)


def test_the_fastest_of_a_race_wins():
    assert race({"a": 1.0, "b": 1.5, "c": 1.4}) == RaceDecision("b")
    assert race({"a": 1.0, "b": 1.5, "c": 1.4}, incumbent="c") == RaceDecision("b")


def test_an_incumbent_that_is_not_told_apart_stays_and_the_others_are_equal():
    assert race({"a": 1.51, "b": 1.5, "c": 1.2}, incumbent="b") == RaceDecision("b", frozenset({"a"}))
    assert race({"a": 1.6, "b": 1.5}, incumbent="b", spread=0.1) == RaceDecision("b", frozenset({"a"}))


def test_a_first_decision_takes_the_cheapest_to_load_of_those_as_fast():
    nearly = {"heavy": 1.51, "light": 1.5, "slow": 1.45}
    loads = {"heavy": 900.0, "light": 20.0, "slow": 1.0}
    assert race(nearly, loads=loads, spread=0.1).winner == "light"
    assert race(nearly, loads=loads, spread=0.1).equal == {"heavy", "slow"}


def test_what_is_confirmed_slower_than_the_default_wins_only_where_all_are():
    assert race({"default": 1.0, "a": 0.97}, incumbent="a", spread=0.05).winner == "default"
    assert race({"a": 0.9, "b": 0.5}).winner == "a"


def test_pairs_below_the_margin_say_nothing():
    assert not beats_in_pairs(Ratios(1.015, 1.01, 1.02))


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
    assert rank(entries, "held") == ["quick", "held"]
    assert rank(entries, "held", margin=0.5) == ["held", "quick"]
    assert rank(entries, "held", margin=0.5, winner="quick") == ["quick", "held"]
