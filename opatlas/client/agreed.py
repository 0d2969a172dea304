"""Charged hits that a job with a spend limit may repeat from its caches: each use is paid at the agreed
price, and reported."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from opatlas.client.answer import Answer, RememberedAnswer
from opatlas.errors import CallerError

_LIMIT = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ([A-Z]{3})")


def parse_limit(text: str) -> dict[str, Any]:
    """Parses ``2.50 EUR`` into exact millionths, the service's form."""
    found = _LIMIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise CallerError(f'A spend limit is an amount and a currency, such as "2.50 EUR", not {text!r}.')
    return {"amount_micros": int(Decimal(found[1]) * 1_000_000), "currency": found[2]}


class AgreedAnswers:
    """Answers by operator key, and what is left to spend as far as this process knows. The job's other
    processes spend from the same limit; the service charges none of them beyond it."""

    def __init__(self, limit: str) -> None:
        self._limit = limit
        self._entries: dict[str, RememberedAnswer] = {}
        self._given: dict[str, float] = {}  # uses since the last time, by agreement
        self._left_micros: int | None = None  # until somebody was told
        self._lock = threading.Lock()

    def add(self, answer: Answer, life_s: float) -> RememberedAnswer | None:
        """The answer to repeat; None if there is no agreement, or it has ended."""
        agreement = agreement_of(answer)
        if agreement is None or (life_s := min(life_s, agreement["expires_s"])) <= 0:
            return None
        known = self._entries.get(answer.key)
        lives = known is not None and known.until > time.monotonic() and agreement_of(known.answer)
        if lives and lives["id"] == agreement["id"] and answer.source == "cache":
            return None  # its uses at this price are used up here
        self.told(agreement["left_micros"])
        entry = RememberedAnswer(answer, time.monotonic() + life_s, [0, 0])
        self._entries[answer.key] = entry
        return entry

    def told(self, left_micros: Any) -> None:
        """Take the service's figure. It may not know of all uses yet, so what is left never grows."""
        if type(left_micros) is not int:
            return
        with self._lock:
            known = self._left_micros
            self._left_micros = left_micros if known is None else min(known, left_micros)

    def peek(self, key: str, now: float) -> RememberedAnswer | None:
        """The agreed answer, unless its uses at this price are used up: then it is looked up again. If too
        little is left, no request is needed."""
        entry = self._entries.get(key)
        agreement = agreement_of(entry.answer) if entry is not None else None
        if entry is None or agreement is None or now >= entry.until:
            return None
        covered = (self._left_micros or 0) >= agreement["per_use_micros"]
        return entry if entry.uses[0] < agreement["uses"] or not covered else None

    def use(self, entry: RememberedAnswer) -> Answer:
        """Pay for one use; an empty answer if too little is left."""
        answer, agreement = entry.answer, agreement_of(entry.answer)
        assert agreement is not None
        with self._lock:
            left = (self._left_micros or 0) - agreement["per_use_micros"]
            if left >= 0:
                self._left_micros = left
                entry.uses[0] += 1
                self._given[agreement["id"]] = self._given.get(agreement["id"], 0.0) + 1
        if left < 0:
            reason = f"The job's spend limit of {self._limit} is used up."
            return Answer(
                answer.key, "miss", state="payment_required", reason=reason, target=answer.target,
                setting=answer.setting, price=answer.price, source=answer.source,
            )  # fmt: skip
        if answer.source == "cache":
            self._entries[answer.key] = entry._replace(answer=replace(answer, source="memory"))
        return answer

    def hand_over(self) -> dict[str, float]:
        """Uses by agreement since the last call."""
        with self._lock:
            given, self._given = self._given, {}
            return given

    def count(self) -> int:
        """The number of uses that wait to be handed over."""
        return int(sum(list(self._given.values())))

    def drop(self, revoked: frozenset[str] | None = None) -> None:
        """Forget these artifacts' entries; all of them if none are named."""
        for key, entry in list(self._entries.items()):
            if revoked is None or (entry.answer.best or {}).get("artifact") in revoked:
                self._entries.pop(key, None)

    def begin_anew(self) -> None:
        """In a forked process: the parent reports its own uses."""
        self._lock, self._given = threading.Lock(), {}


def agreement_of(answer: Answer) -> Mapping[str, Any] | None:
    """The agreement on further uses of a hit; its shape was checked when the answer was read."""
    return (answer.price or {}).get("agreement") if answer.hit else None
