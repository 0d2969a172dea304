"""One poll for all that is waited for: how often, and what it outlives."""

from __future__ import annotations

import threading

import pytest

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked
from opatlas.client.watching import Watcher

KEYS = ["o1:" + digit * 64 for digit in "ab"]


class Clock(threading.Event):
    """What a watcher waits on: each wait is written down, and takes no time once ``set_off``."""

    def __init__(self):
        super().__init__()
        self.waits, self.set_off = [], threading.Event()

    def wait(self, timeout=None):
        self.waits.append(timeout)
        return not self.set_off.wait(60)


@pytest.fixture
def watched():
    """``watched(*polls)``: two operators are waited for, until both are told of. Each poll is what it finds
    of each (an answer's fields), or raises. Gives the waits before each, and what each was asked for."""

    def run(*polls):
        coming, asked, told = iter(polls), [], []

        def look(operators):
            asked.append([one.key for one in operators])
            found = next(coming)
            if isinstance(found, Exception):
                raise found
            return {key: Answer(key, **fields) for key, fields in zip(KEYS, found, strict=True)}

        watcher = Watcher(look)
        watcher._stopped = clock = Clock()
        for key in KEYS:
            watcher.add(Asked(key), lambda key=key: told.append(key))
        thread = watcher._thread
        clock.set_off.set()
        thread.join(60)
        assert not thread.is_alive() and sorted(told) == KEYS
        return clock.waits, asked

    return run


WAITING, RUNNING = {"status": "miss", "state": "waiting"}, {"status": "miss", "state": "exploring"}
OVER = {"status": "miss", "state": "failed"}


def test_one_poll_for_all_waits_twice_as_long_while_nothing_moves(watched):
    polls = [(WAITING, WAITING)] * 7 + [(WAITING, RUNNING)] * 2 + [(OVER, OVER)]
    waits, asked = watched(*polls)
    assert waits == [1, 1, 2, 4, 8, 16, 30, 30, 1, 2]
    assert asked == [KEYS] * len(polls)


def test_a_poll_that_fails_in_any_way_is_not_the_last(watched, caplog):
    waits, _ = watched(ValueError("a bug"), (OVER, OVER))
    assert waits == [1, 2] and "a bug" in caplog.text
