"""Operators that callers wait for in the background: one poll for all of them, with back-off."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked
from opatlas.errors import OpatlasError

log = logging.getLogger("opatlas")

FIRST_POLL_S, LONGEST_POLL_S = 1.0, 30.0
"""Between two polls: doubled while nothing moves."""
OVER = ("unsupported", "failed", "discarded", "explored", "refused")
"""States of a miss that no waiting changes."""

Told = Callable[[], object]


@dataclass
class WatchedOperator:
    asked: Asked
    told: list[Told] = field(default_factory=list)
    seen: str = ""


class Watcher:
    """Polls with ``look`` in a thread that ends when nothing is awaited."""

    def __init__(self, look: Callable[[Sequence[Asked]], dict[str, Answer]]) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._watched: dict[str, WatchedOperator] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, asked: Asked, told: Told) -> None:
        """Call ``told`` once, from the thread: when exploring has ended, or cannot give a result. Raises
        RuntimeError if no further thread can be started; the next call tries again."""
        with self._lock:
            self._watched.setdefault(asked.key, WatchedOperator(asked)).told.append(told)
            if self._thread is None:
                thread = threading.Thread(target=self._poll, name="opatlas-watcher", daemon=True)
                thread.start()
                self._thread = thread

    def stop(self) -> None:
        self._stopped.set()

    def _poll(self) -> None:
        wait_s = FIRST_POLL_S
        while not self._stopped.wait(wait_s):
            with self._lock:
                watched = list(self._watched.values())
            moved = False
            for one, answer in self._looked_at(watched):
                now = f"{answer.status} {answer.stage} {answer.state}"
                moved, one.seen = moved or now != one.seen, now
                # What has its price is not shown to who only looks.
                if answer.final or answer.state in OVER or answer.status in ("need_lookup", "need_graph"):
                    self._tell(one)
            wait_s = FIRST_POLL_S if moved else min(2 * wait_s, LONGEST_POLL_S)
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return

    def _looked_at(self, watched: Sequence[WatchedOperator]) -> list[tuple[WatchedOperator, Answer]]:
        try:
            answers = self._look([one.asked for one in watched])
        except OpatlasError:  # a strict client's: the next poll may do better
            return []
        except Exception:
            log.exception("A poll of %s operators failed; the next one may do better.", len(watched))
            return []
        return [(one, answers[one.asked.key]) for one in watched]

    def _tell(self, one: WatchedOperator) -> None:
        with self._lock:
            self._watched.pop(one.asked.key, None)
        for told in one.told:
            try:
                told()
            except Exception:
                log.exception("What was to be told of %s failed.", one.asked.key)
