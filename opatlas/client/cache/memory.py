"""Answers that a process remembers while they are valid, in memory and in the machine's cache."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import Answer, RememberedAnswer
from opatlas.client.cache.store import EVERYTHING, NEVER_TOLD, EntryStore

if TYPE_CHECKING:
    from opatlas.client.agreed import AgreedAnswers
    from opatlas.client.answer import LookupReply

MISS_LIFE_S = 2.0
"""How long a miss is remembered: a loop does not ask at every turn, and nobody waits long."""
LOOK_S = 1.0
"""How often memory is compared with what other processes were told, revocations above all."""
LATELY_S = 86400.0
"""Expired entries that the machine used within this time are asked for together."""
MOST_IN_MEMORY = 1 << 16


class Parcel:
    """An answer that came along, with its manifest if that came too. Its size is measured when uses are
    counted, which delays nobody."""

    def __init__(self, answer: Answer, manifest: Mapping[str, Any] | None) -> None:
        self._inside: tuple[Answer, Mapping[str, Any] | None] | None = (answer, manifest)

    @cached_property
    def bytes(self) -> int:
        """As compact JSON."""
        assert self._inside is not None
        (answer, manifest), self._inside = self._inside, None
        return sum(len(json.dumps(one, separators=(",", ":"))) for one in (answer.to_json(), manifest) if one)


class PrefetchTally:
    """What came along with answers, and what of it this process looked up afterwards."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("brought", "used", "bytes", "used_bytes"), 0)
        self._new: list[Parcel] = []
        self._unused: dict[str, Parcel] = {}

    @property
    def counts(self) -> dict[str, int]:
        """So far: operators that came along, those that were used, and bytes of both."""
        new, self._new = self._new, []
        self._counts["bytes"] += sum([parcel.bytes for parcel in new])
        return dict(self._counts)

    def add(self, reply: LookupReply, came: Iterable[Answer], known: Collection[str]) -> None:
        """Count what came with a reply. An operator that was ``known`` before was sent in vain."""
        if len(self._unused) >= MOST_IN_MEMORY:
            self._unused.clear()
        for answer in came:
            if answer.best is not None and answer.hit:
                parcel = Parcel(answer, reply.manifests.get(answer.best["artifact"]))
                if answer.key not in known:
                    self._unused[answer.key] = parcel
                self._new.append(parcel)
                self._counts["brought"] += 1

    def use(self, key: str) -> None:
        """Count a lookup of it; only the first counts."""
        if (parcel := self._unused.pop(key, None)) is not None:
            self._counts["used"] += 1
            self._counts["used_bytes"] += parcel.bytes

    def leave(self, keys: Iterable[str]) -> None:
        """These were asked for after all: their uses no longer count for prefetching."""
        for key in keys:
            self._unused.pop(key, None)


class AnswerMemory:
    """The memory for one place (:meth:`move`): ``entries`` by key, above the machine's cache."""

    def __init__(
        self,
        store: EntryStore | None,
        loader: Callable[[Answer], Any],
        *,
        offline: bool,
        agreed: AgreedAnswers | None = None,
    ) -> None:
        self.place = b""
        self.entries: dict[str, RememberedAnswer] = {}
        self.looked_at = -LOOK_S
        self.entry_life_s = 0.0  # of what is final, as the service said last
        self.revoked: frozenset[str] = frozenset()
        self._prefetched = PrefetchTally()
        self._unwritten: frozenset[str] = frozenset()  # revocations that the cache could not take
        self.all_revoked_at = 0.0
        self._told_until = NEVER_TOLD  # where there is no cache
        self._agreed = agreed
        self._store, self._loader, self._offline = store, loader, offline
        self._lock = threading.RLock()
        self._given: dict[int, float] = {}  # uses of answers that are gone, by implementation
        self.of_neighbours: set[int] = set()  # implementations that were given as another target's
        self._order: dict[int, None] = {}  # implementations as they were first given since the last time

    def move(self, place: bytes) -> None:
        """From now on use the entries of this place: who asks, for what target, and what can be loaded
        there."""
        if self.place and place != self.place:
            self.forget()
            self.all_revoked_at = 0.0
            if self._store is not None:
                self._heed(*self._store.revoked())
        self.place = place

    def peek(self, key: str) -> RememberedAnswer | None:
        """A valid answer for an operator; not counted as a use. Its source is the cache if it came from
        there."""
        now = time.monotonic()
        entry = self.entries.get(key)
        if entry is not None and now < entry.until:
            return entry
        if self._agreed is not None and (entry := self._agreed.peek(key, now)) is not None:
            return entry
        found = self._store.entry(self.place, key) if self._store is not None else None
        if found is None or not self._is_from_after(found.stored_at):
            return None
        left_s = found.left_s(time.time())
        if self._offline and found.body.get("best") and not found.body.get("price"):
            left_s = max(left_s, LOOK_S)
        if not left_s:
            return None
        try:
            answer = Answer.from_json(found.body, found.body["target"], found.body["setting"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return None
        if self._is_revoked(answer):
            return None
        answer = replace(answer, source="cache", loader=self._loader)
        if answer.hit and answer.price:
            return self._agree(answer, left_s)
        return self._remember(answer, left_s)

    def _agree(self, answer: Answer, life_s: float) -> RememberedAnswer | None:
        return self._agreed.add(answer, life_s) if self._agreed is not None else None

    def use(self, entry: RememberedAnswer) -> Answer:
        """Give an answer out and count it; later its source is memory. A use under an agreement is paid, and
        empty if too little is left."""
        if entry.answer.price and self._agreed is not None:
            return self._agreed.use(entry)
        if entry.answer.source == "cache":
            own = replace(entry.answer, source="memory")
            self.entries[own.key] = RememberedAnswer(own, entry.until, entry.uses)
        entry.uses[0] += 1
        if entry.answer.best is not None:
            self._order.setdefault(int(entry.answer.best["implementation"]))
        return entry.answer

    def expired_with(self, keys: Sequence[str], most: int) -> list[str]:
        """If one of these has expired (not merely unknown): what else in use has expired, in this process or
        lately on the machine."""
        known = any(key in self.entries for key in keys)
        if not known and (self._store is None or self._store.entry(self.place, keys[0]) is None):
            return []
        now, asked = time.monotonic(), frozenset(keys)
        own = [key for key, entry in list(self.entries.items()) if entry.until <= now and any(entry.uses)]
        kept = self._store.expired(self.place, LATELY_S, 2 * most) if self._store is not None else []
        # One that this process knows, and that is not in use here, has come along once already.
        found = (*own, *(key for key in kept if key not in self.entries))
        return [key for key in found if key not in asked][:most]

    def keep(self, reply: LookupReply, along: Collection[str] = (), predicted: Sequence[Answer] = ()) -> None:
        """Keep a service's answers, except revoked ones, and charged ones without an agreement. ``along``:
        operators that came along because they had expired; ``predicted``: answers that came along because of
        a prediction."""
        with self._lock:
            self.entry_life_s = reply.entry_life_s
            self._revoke(reply)
            kept: dict[str, tuple[Mapping[str, Any], float]] = {}
            idle = {key for key in along if (known := self.entries.get(key)) is None or not any(known.uses)}
            there = self._alive(predicted)
            others = (*reply.related, *reply.next)
            for answer, asked in (*((one, 1) for one in reply.answers), *((one, 0) for one in others)):
                if (answer.status in ("need_lookup", "need_graph") and not asked) or self._is_revoked(answer):
                    continue
                life_s = answer.expires_s if answer.hit else MISS_LIFE_S
                if life_s <= 0:
                    continue
                own = replace(answer, source="memory", loader=self._loader)
                if answer.hit and answer.price:
                    if self._agree(own, life_s) is None:
                        continue
                else:
                    self._remember(own, life_s).uses[1] = asked
                if answer.status in ("hit", "miss"):
                    place = {"target": answer.target, "setting": answer.setting}
                    kept[answer.key] = (place | answer.to_json(), life_s)
            self._prefetched.leave(answer.key for answer in reply.answers)
            self._prefetched.add(reply, predicted, there)
            if self._store is not None:
                self._store.keep(self.place, kept, idle)
                self._store.keep_manifests(reply.manifests)
                self._store.keep_signers(reply.signers)

    def told_until(self) -> str:
        """Up to where the service has reported revocations; what another process was told counts."""
        return self._store.told_until() if self._store is not None else self._told_until

    def told(self) -> tuple[str, frozenset[str]]:
        """Keep all revocations, and up to where the service has reported them."""
        with self._lock:
            until = self.told_until()
            return until, self.revoked | (
                self._store.revoked()[0] if self._store is not None else frozenset()
            )

    def _alive(self, answers: Iterable[Answer]) -> set[str]:
        """Those of these operators with a valid hit in memory."""
        now, entries = time.monotonic(), self.entries
        there = (entry for answer in answers if (entry := entries.get(answer.key)) is not None)
        return {entry.answer.key for entry in there if entry.answer.hit and now < entry.until}

    def look_around(self) -> None:
        """Read what other processes of the machine were told, at most once in ``LOOK_S``."""
        now = time.monotonic()
        if now < self.looked_at + LOOK_S:
            return
        self.looked_at = now
        if self._store is None:
            return
        if self._unwritten and self._store.revoke(self._unwritten):
            self._unwritten = frozenset()
        if self._store.has_changed():
            self._heed(*self._store.revoked())

    def forget(self) -> None:
        """Drop every answer in memory."""
        with self._lock:
            entries, self.entries = self.entries, {}
            for entry in list(entries.values()):
                self._note(entry)
            if self._agreed is not None:
                self._agreed.drop()

    def count_uses(self) -> int:
        """The number of uses since the last hand-over; not handed over."""
        with self._lock:
            kept = sum(entry.uses[0] for entry in list(self.entries.values()))
            agreed = self._agreed.count() if self._agreed is not None else 0
            return kept + agreed + int(sum(self._given.values()))

    def count_prefetched(self) -> dict[str, int]:
        """This process's counts: see :class:`PrefetchTally`."""
        with self._lock:
            return self._prefetched.counts

    def uses(self) -> dict[int | str, float]:
        """Hand over the uses since the last call: times by implementation, in order of first use, and by
        agreement."""
        with self._lock:
            for entry in list(self.entries.values()):
                self._note(entry)
            given, self._given = self._given, {}
            order, self._order = self._order, {}
            agreed = self._agreed.hand_over() if self._agreed is not None else {}
            return {number: given[number] for number in order if number in given} | given | agreed

    def begin_anew(self) -> None:
        """In a forked process: the parent reports what it used and fetched, and holds its lock."""
        self._lock, self._given, self._order, self.looked_at = threading.RLock(), {}, {}, -LOOK_S
        self._prefetched = PrefetchTally()
        if self._agreed is not None:
            self._agreed.begin_anew()
        for entry in self.entries.values():
            entry.uses[0] = 0

    def _remember(self, answer: Answer, life_s: float) -> RememberedAnswer:
        with self._lock:
            if len(self.entries) >= MOST_IN_MEMORY:
                self.forget()  # the machine's cache has them
            known = self.entries.get(answer.key)
            if known is not None:
                self._note(known)
            entry = self.entries[answer.key] = RememberedAnswer(answer, time.monotonic() + life_s, [0, 0])
            return entry

    def _note(self, entry: RememberedAnswer) -> None:
        uses, entry.uses[0] = entry.uses[0], 0
        entry.uses[1] += uses
        if uses and entry.answer.best is not None:
            self._prefetched.use(entry.answer.key)
            number = int(entry.answer.best["implementation"])
            self._given[number] = self._given.get(number, 0.0) + uses
            if entry.answer.from_neighbour is not None:
                self.of_neighbours.add(number)

    def _is_revoked(self, answer: Answer) -> bool:
        return answer.best is not None and answer.best["artifact"] in self.revoked

    def _is_from_after(self, stored_at: float) -> bool:
        """Whether it was kept since everything was revoked; unknown if its clock was ahead."""
        return not self.all_revoked_at or self.all_revoked_at < stored_at <= time.time()

    def _revoke(self, reply: LookupReply) -> None:
        new = reply.revoked - self.revoked
        if reply.all_revoked:
            self.all_revoked_at = time.time()
            self.forget()
            if self._store is not None and not self._store.revoke_all():
                self._unwritten |= {EVERYTHING}
        self._told_until = reply.revoked_until or self._told_until
        since, until = reply.revoked_since, reply.revoked_until
        if self._store is not None and not self._store.revoke(new, since, until):
            self._unwritten |= new
        self._drop(self.revoked | new)

    def _heed(self, revoked: frozenset[str], all_at: float) -> None:
        if all_at > self.all_revoked_at:
            self.all_revoked_at = all_at
            self.forget()
        self._drop(self.revoked | revoked)

    def _drop(self, revoked: Iterable[str]) -> None:
        self.revoked = frozenset(revoked)
        if self._agreed is not None:
            self._agreed.drop(self.revoked)
        for key, entry in list(self.entries.items()):
            if self._is_revoked(entry.answer):
                self.entries.pop(key, None)
                self._note(entry)
