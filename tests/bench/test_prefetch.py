"""Models that are held apart share little with those that are learnt from."""

from __future__ import annotations

from bench.prefetch import dealt, families_of, known_elsewhere, sample, zip_all
from tests.catalog.making import relu


def models(**lengths):
    return {name: [relu(length) for length in of] for name, of in lengths.items()}


def test_models_that_share_much_are_a_family_also_by_others_between_them():
    of = models(a=[1, 2, 3, 4], b=[3, 4, 5, 6], c=[5, 6, 7, 8], d=[8, 9, 10, 11], e=[20, 21])
    families = families_of(of)
    assert families == [["a", "b", "c"], ["d"], ["e"]], "a quarter is not more than a quarter"
    assert known_elsewhere(of, families) == round(2 / 18, 4), "the 8 of c and of d"


def test_a_family_is_never_in_two_parts():
    families = [["a", "b", "c"], ["d"], ["e"], ["f"]]
    parts = dealt(families, 3)
    assert parts == [["a", "b", "c", "f"], ["d"], ["e"]]


def test_what_has_an_order_is_judged_first_and_giants_are_not():
    of = models(**{f"log/{n}": range(5) for n in range(20)}, **{"onnx/x": range(5), "onnx/big": range(300)})
    chosen = sample(list(of), of)
    assert chosen[0] == "onnx/x" and len(chosen) == 12 and "onnx/big" not in chosen
    assert chosen == sample(list(of)[::-1], of)


def test_turns_go_on_when_one_has_no_more():
    assert [list(pair) for pair in zip_all("abc", "x")] == [["a", "x"], ["b"], ["c"]]
