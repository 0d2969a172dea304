"""A diff's hunks lead from one text to the other, and take no time that a text could choose."""

from __future__ import annotations

import difflib
import random
import re
import time

import pytest

from catalog.line_diff import MOST_COMPARED, unified_diff


def applied(before: list[str], lines: list[str]) -> list[str]:
    """What a diff makes of a text."""
    made, at = [], 0
    for line in lines[2:]:
        if found := re.fullmatch(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            start = int(found[1]) - (found[2] != "0")
            made += before[at:start]
            at = start
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert before[at] == line[1:]
            made += [line[1:]] if line.startswith(" ") else []
            at += 1
    return made + before[at:]


@pytest.mark.parametrize("seed", range(60))
def test_it_leads_from_one_to_the_other(seed: int) -> None:
    chance = random.Random(seed)
    before = [chance.choice("abcdefgh") for _ in range(chance.randint(0, 40))]
    after = before.copy()
    for _ in range(chance.randint(0, 4)):
        at = chance.randint(0, len(after))
        after[at : at + chance.randint(0, 3)] = chance.choices("xyz", k=chance.randint(0, 3))
    lines = unified_diff(before, after, "old", "new")
    assert (applied(before, lines) if lines else before) == after
    assert bool(lines) == (before != after)


def test_a_small_change_reads_as_difflib_says() -> None:
    before = [f"line {number}" for number in range(5000)]
    after = [*before[:4000], "another", *before[4001:]]
    assert unified_diff(before, after, "a", "b") == list(
        difflib.unified_diff(before, after, "a", "b", lineterm="")
    )


@pytest.mark.parametrize("shared", [0, 5])
@pytest.mark.parametrize("way", [1, -1])
@pytest.mark.parametrize("lines", [1, MOST_COMPARED, MOST_COMPARED + 1])
def test_what_is_only_added_or_taken_away_is_where_diff_says(shared: int, way: int, lines: int) -> None:
    """A range of no lines is named by the line that it follows: ``-0,0`` at a text's beginning."""
    kept, more = [f"kept {n}" for n in range(shared)], [f"more {n}" for n in range(lines)]
    texts = [kept, kept + more][::way]
    made = unified_diff(*texts, "a", "b")
    if lines > MOST_COMPARED:
        ranges = [f"{shared},0", f"{shared + 1},{lines}"][::way]
        assert made[2] == f"@@ -{ranges[0]} +{ranges[1]} @@"
    else:
        assert made == list(difflib.unified_diff(*texts, "a", "b", lineterm=""))
    assert applied(texts[0], made) == texts[1]


@pytest.mark.parametrize("lines", [60_000, 2 * MOST_COMPARED])
def test_texts_that_share_lines_in_another_order(lines: int) -> None:
    """65,000 lines in reverse took difflib the square of that."""
    before = [str(number // 2) for number in range(lines)]
    began = time.thread_time()
    made = unified_diff(before, before[::-1], "a", "b")
    assert time.thread_time() - began < 5
    assert applied(before, made) == before[::-1]
