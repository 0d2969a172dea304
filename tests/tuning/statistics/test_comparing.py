"""Two implementations compared: in words, and never against what the catalogue chooses."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from catalog.choosing import beats, rank
from opatlas.evidence import Ratios
from tuning.failures.reasons import reason_of
from tuning.statistics.comparing import Taken, compare


def taken(ratio: float, spread: float = 0.02, samples: int = 30, against: str = "") -> Taken:
    return Taken(Ratios(ratio, ratio * (1 - spread), ratio * (1 + spread)), samples, against)


def test_a_clear_difference_is_said_with_its_interval_samples_and_confidence() -> None:
    found = compare(taken(1.5), taken(1.0, samples=28))
    assert found.verdict == "faster"
    said = found.sentence("tvm (compiler)", "eager (library)")
    assert said == (
        "tvm (compiler) is faster than eager (library) by 1.50× (1.46× – 1.54×), 30 and 28 samples, "
        "confidence 99.9 %."
    )


def test_the_faster_is_named_first_whoever_was_asked_about() -> None:
    said = compare(taken(1.0), taken(1.5)).sentence("a", "b")
    assert said.startswith("b is faster than a by 1.50×")


def test_overlapping_intervals_are_no_difference() -> None:
    found = compare(taken(1.05, 0.06), taken(1.0, 0.06))
    assert found.verdict == "same"
    assert found.sentence("a", "b").startswith(
        "No significant difference between a and b: 1.05× (0.96× – 1.14×)"
    )


def test_less_than_two_per_cent_is_none_however_sure() -> None:
    found = compare(taken(1.015, 0.001), taken(1.0, 0.001))
    assert (found.verdict, found.confidence) == ("same", 0.999)


def test_other_defaults_do_not_compare() -> None:
    found = compare(taken(3.0, against="eager 1"), taken(1.0, against="eager 2"))
    assert found.verdict == "incomparable"
    assert "different defaults" in found.sentence("a", "b")
    assert compare(taken(3.0, against="eager 1"), taken(1.0)).verdict == "faster"  # one was not noted


def test_no_interval_at_all() -> None:
    assert compare(taken(1.0, 0), taken(1.0, 0)).confidence == 0
    assert compare(taken(2.0, 0), taken(1.0, 0)).verdict == "faster"


def test_what_the_chooser_would_not_replace_is_never_called_faster() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        entries = {
            name: taken(chance.uniform(0.5, 2), chance.choice([0, 0.005, 0.02, 0.2, 0.5])) for name in "abcd"
        }
        ratios = {name: one.ratios for name, one in entries.items()}
        winner = rank(ratios, chance.choice([None, *"abcd"]))[0]
        for one, other in combinations(entries, 2):
            found = compare(entries[one], entries[other])
            assert (found.verdict == "faster") == beats(ratios[one], ratios[other])
            assert (found.verdict == "slower") == beats(ratios[other], ratios[one])
            assert found.low <= found.factor <= found.high
            if found.verdict != "same":
                assert found.confidence >= 0.95
        for name in "abcd":
            if name != winner and ratios[winner].high >= 1 and not ratios[name].confirmed_slower:
                assert compare(entries[name], entries[winner]).verdict != "faster" or not beats(
                    ratios[name], ratios[winner]
                )


def test_turning_it_round_says_the_same() -> None:
    one = compare(taken(1.3), taken(1.0))
    other = compare(taken(1.0), taken(1.3))
    assert other.turned().factor == pytest.approx(one.factor)
    assert (other.turned().low, other.turned().high) == pytest.approx((one.low, one.high))
    assert other.turned().verdict == one.verdict


@pytest.mark.parametrize(
    ("detail", "reason"),
    [
        ("14.2 times slower than the default", "# times slower than the default"),
        ("a first run took 0.67 s, the default's 20.13 ms", "a first run took # s, the default's # s"),
        ("max error 0.31 at [0, 3, 1, 1]; tolerance 1e-4", "max error # at [#]; tolerance #"),
        ("cannot read /usr/lib/a.so\nTraceback", "cannot read …"),
        ("input 1 is not dense", "input # is not dense"),
        ("TVM's code reads float32 only", "TVM's code reads float32 only"),
        ("", ""),
    ],
)
def test_a_reason_is_what_was_said_without_its_numbers(detail: str, reason: str) -> None:
    assert reason_of(detail) == reason


def test_long_reasons_are_cut() -> None:
    assert len(reason_of("word " * 100)) == 160
