"""Who runs in which stream: the document's rules, each with its claim, and ours where it is silent."""

from __future__ import annotations

from random import Random

import pytest

from opatlas.streams.manners import Manner
from opatlas.streams.placing import FEED, FEED_STREAM, Placeable, longest_ways, place_in_streams

SYNC, ASYNC = Manner.SYNC, Manner.ASYNC


def sync(*after: int, us: float = 1.0) -> Placeable:
    return Placeable(SYNC, frozenset(after), us)


def launched(*after: int, us: float = 1.0) -> Placeable:
    """An asynchronous one."""
    return Placeable(ASYNC, frozenset(after), us)


def test_asynchronous_ones_go_to_one_stream_and_synchronous_ones_to_another() -> None:
    """Claims 3 and 4."""
    operators = [sync(), launched(0), sync(1), sync(2), launched(0), launched(3, 4), sync(5)]
    placed = place_in_streams(operators, 1)
    of = {kind: {stream for stream, one in zip(placed, operators, strict=True) if one.manner is kind}
          for kind in Manner}  # fmt: skip
    assert of[SYNC] == {0} and of[ASYNC] == {1}


def test_a_single_synchronous_successor_of_a_synchronous_one_stays() -> None:
    """Claim 1: the number of successors is 1."""
    assert place_in_streams([sync(), sync(0), sync(1)], 3) == [0, 0, 0]


def test_of_several_synchronous_successors_one_stays_and_the_others_go_to_fourth_ones() -> None:
    """Claim 1: more than 1; there is at least one fourth thread, and it is not the current one."""
    placed = place_in_streams([sync(), sync(0), sync(0), sync(0)], 3)
    assert placed[0] == 0 and sorted(placed[1:]) == [0, 1, 2]
    placed = place_in_streams([sync(), sync(0), sync(0), sync(0)], 2)
    assert sorted(placed[1:]) == [0, 1, 1]  # one fourth thread has both


def test_an_asynchronous_successor_of_a_synchronous_one_goes_to_a_fifth() -> None:
    """Claim 1: neither the current nor a fourth."""
    placed = place_in_streams([sync(), sync(0), sync(0), launched(0)], 2)
    assert placed[3] not in placed[:3]


def test_an_asynchronous_successor_of_an_asynchronous_one_stays() -> None:
    """Claim 5."""
    placed = place_in_streams([launched(), launched(0), launched(0)], 2)
    assert placed == [2, 2, 2]


def test_a_synchronous_successor_of_an_asynchronous_one_goes_to_another() -> None:
    """Claim 5."""
    placed = place_in_streams([launched(), sync(0)], 2)
    assert placed[1] != placed[0]


def test_of_mixed_successors_only_synchronous_ones_are_counted() -> None:
    """Ours: a synchronous one beside asynchronous ones is a single one, and stays."""
    placed = place_in_streams([sync(), launched(0), sync(0), launched(0)], 3)
    assert placed[2] == placed[0] and placed[1] == placed[3] == 3


def test_what_follows_nothing_follows_the_feeding_operator() -> None:
    """[0031]: feed_op receives the data, and the others follow."""
    assert sorted(place_in_streams([sync(), sync(), sync()], 3)) == [0, 1, 2]
    assert place_in_streams([sync()], 3) == [FEED_STREAM]


def test_who_stays_has_the_longest_way_before_it_and_who_goes_waits_least() -> None:
    """Ours: the document says "one of them", and "at least one" other."""
    operators = [sync(), sync(0, us=1), sync(0, us=1), sync(0, us=9), sync(2, us=90)]
    placed = place_in_streams(operators, 3)
    assert placed[2] == placed[0]
    assert placed[1] != placed[3] and 0 not in (placed[1], placed[3])
    operators = [sync(), sync(0, us=50), sync(0, us=9), sync(0, us=5), sync(0, us=3)]
    assert place_in_streams(operators, 3)[1:] == [0, 1, 2, 2]  # 9 in one, 5 + 3 in the other


def test_what_several_come_before_follows_the_last_of_them() -> None:
    """Ours."""
    operators = [sync(), sync(0, us=9), sync(0), sync(1, 2)]
    placed = place_in_streams(operators, 2)
    assert placed[3] == placed[2] == 1


def test_the_rules_hold_in_random_graphs() -> None:
    random = Random(1)
    for _ in range(200):
        streams = random.randrange(1, 5)
        operators = [
            Placeable(
                random.choice([SYNC, ASYNC]),
                frozenset(random.randrange(number) for _ in range(random.randrange(3)) if number),
                random.random(),
            )
            for number in range(random.randrange(1, 30))
        ]
        placed = place_in_streams(operators, streams)
        for number, one in enumerate(operators):
            assert (placed[number] == streams) == (one.manner is ASYNC)
        if streams == 1:
            continue
        for current in range(FEED, len(operators)):
            here = FEED_STREAM if current == FEED else placed[current]
            led = [at for at, one in enumerate(operators) if max(one.after, default=FEED) == current]
            counted = [at for at in led if operators[at].manner is SYNC]
            staying = [at for at in counted if placed[at] == here]
            assert len(staying) == (1 if counted and here != streams else 0)


def test_the_longest_way_has_its_end_in_it() -> None:
    assert longest_ways([sync(us=1), sync(0, us=5), sync(0, us=2), sync(2, us=4)]) == [7, 5, 6, 4]


@pytest.mark.parametrize("operators", [[sync(0)], [sync(1), sync()], [sync(-1)]])
def test_a_circle_is_refused(operators: list[Placeable]) -> None:
    with pytest.raises(ValueError, match="not before it"):
        place_in_streams(operators, 2)


def test_no_stream_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one synchronous stream, not 0"):
        place_in_streams([sync()], 0)
