"""What a process remembers: answers for as long as they live, in memory and in the machine's cache."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from opatlas.client.answer import Answer
from opatlas.client.store import EVERYTHING, EntryStore

if TYPE_CHECKING:
    from opatlas.client.rest import LookupReply

MISS_LIFE_S = 2.0
"""A remembered miss: long enough that a loop does not ask at every turn, too short to keep anybody
waiting."""
LOOK_S = 1.0
"""How often memory is held against what other processes were told: revocations above all."""
MOST_IN_MEMORY = 1 << 16


class RememberedAnswer(NamedTuple):
    """An answer in memory. ``until``: on the monotonic clock; ``uses``: one number, how often it was given
    since that was last handed over."""

    answer: Answer
    until: float
    uses: list[int]


class AnswerMemory:
    """Of one place: ``entries`` by key, above the machine's cache."""

    def __init__(
        self, store: EntryStore | None, place: bytes, loader: Callable[[Answer], Any], *, offline: bool
    ) -> None:
        self.entries: dict[str, RememberedAnswer] = {}
        self.looked_at = -LOOK_S
        self.entry_life_s = 0.0  # of what is final, as the service said last
        self.revoked: frozenset[str] = frozenset()
        self._unwritten: frozenset[str] = frozenset()  # revocations that the cache could not take
        self._all_revoked_at = 0.0
        self._store, self._place, self._loader, self._offline = store, place, loader, offline
        self._lock = threading.RLock()
        self._given: dict[int, float] = {}  # uses of answers that are gone, by implementation

    def peek(self, key: str) -> RememberedAnswer | None:
        """What may be used of an operator; nothing is counted. From the cache it comes with that source."""
        now = time.monotonic()
        entry = self.entries.get(key)
        if entry is not None and now < entry.until:
            return entry
        found = self._store.entry(self._place, key) if self._store is not None else None
        if found is None or found.stored_at <= self._all_revoked_at:
            return None
        left_s = found.left_s(time.time())
        if self._offline and found.body.get("best"):
            left_s = max(left_s, LOOK_S)
        if not left_s:
            return None
        try:
            answer = Answer.from_json(found.body, found.body["target"], found.body["setting"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if self._is_revoked(answer):
            return None
        return self._remember(replace(answer, source="cache", loader=self._loader), left_s)

    def use(self, entry: RememberedAnswer) -> Answer:
        """Give an answer out: counted; the next time it comes from memory."""
        if entry.answer.source == "cache":
            own = replace(entry.answer, source="memory")
            self.entries[own.key] = RememberedAnswer(own, entry.until, entry.uses)
        entry.uses[0] += 1
        return entry.answer

    def keep(self, reply: LookupReply) -> None:
        """What a service said: but nothing that it revoked, and nothing that costs something, which is agreed
        on each time."""
        with self._lock:
            self.entry_life_s = reply.entry_life_s
            self._revoke(reply)
            kept: dict[str, tuple[Mapping[str, Any], float]] = {}
            for answer in (*reply.answers, *reply.related):
                if (
                    answer.status == "need_lookup"
                    or (answer.hit and answer.price)
                    or self._is_revoked(answer)
                ):
                    continue
                life_s = answer.expires_s if answer.hit else MISS_LIFE_S
                if life_s <= 0:
                    continue
                self._remember(replace(answer, source="memory", loader=self._loader), life_s)
                if answer.status in ("hit", "miss") and not answer.price:
                    place = {"target": answer.target, "setting": answer.setting}
                    kept[answer.key] = (place | answer.to_json(), life_s)
            if self._store is not None:
                self._store.keep(self._place, kept)
                self._store.keep_manifests(reply.manifests)
                self._store.keep_signers(reply.signers)

    def look_around(self) -> None:
        """What other processes of the machine were told, at most once in ``LOOK_S``."""
        now = time.monotonic()
        if now < self.looked_at + LOOK_S:
            return
        self.looked_at = now
        if self._store is None:
            return
        if self._unwritten and self._store.revoke(self._unwritten):
            self._unwritten = frozenset()
        if self._store.has_changed():
            revoked, all_at = self._store.revoked()
            if all_at > self._all_revoked_at:
                self._all_revoked_at = all_at
                self.forget()
            self._drop(self.revoked | revoked)

    def forget(self) -> None:
        """Let go of every answer in memory."""
        with self._lock:
            entries, self.entries = self.entries, {}
            for entry in list(entries.values()):
                self._note(entry)

    def count_uses(self) -> int:
        """How many were given since the last time, left here."""
        with self._lock:
            kept = sum(entry.uses[0] for entry in list(self.entries.values()))
            return kept + int(sum(self._given.values()))

    def uses(self) -> dict[int, float]:
        """Hand over what was given since the last time: times by implementation."""
        with self._lock:
            for entry in list(self.entries.values()):
                self._note(entry)
            given, self._given = self._given, {}
            return given

    def begin_anew(self) -> None:
        """In a process that was forked: what the parent gave is the parent's to report, and so is its
        lock."""
        self._lock, self._given, self.looked_at = threading.RLock(), {}, -LOOK_S
        for entry in self.entries.values():
            entry.uses[0] = 0

    def _remember(self, answer: Answer, life_s: float) -> RememberedAnswer:
        with self._lock:
            if len(self.entries) >= MOST_IN_MEMORY:
                self.forget()  # the machine's cache has them
            known = self.entries.get(answer.key)
            if known is not None:
                self._note(known)
            entry = self.entries[answer.key] = RememberedAnswer(answer, time.monotonic() + life_s, [0])
            return entry

    def _note(self, entry: RememberedAnswer) -> None:
        uses, entry.uses[0] = entry.uses[0], 0
        if uses and entry.answer.best is not None:
            number = int(entry.answer.best["implementation"])
            self._given[number] = self._given.get(number, 0.0) + uses

    def _is_revoked(self, answer: Answer) -> bool:
        return answer.best is not None and answer.best["artifact"] in self.revoked

    def _revoke(self, reply: LookupReply) -> None:
        new = reply.revoked - self.revoked
        if reply.all_revoked:
            self._all_revoked_at = time.time()
            self.forget()
            if self._store is not None and not self._store.revoke_all():
                self._unwritten |= {EVERYTHING}
        if new and self._store is not None and not self._store.revoke(new):
            self._unwritten |= new
        self._drop(self.revoked | new)

    def _drop(self, revoked: Iterable[str]) -> None:
        self.revoked = frozenset(revoked)
        for key, entry in list(self.entries.items()):
            if self._is_revoked(entry.answer):
                self.entries.pop(key, None)
                self._note(entry)
