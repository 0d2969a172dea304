"""A client whose callers ask the service together: what many processes want to know at once is one request.
It pays for nothing, since the name of such a request is no job's: who asks for what costs something has to
ask by itself, and can then ask again without paying again.

Whoever comes first asks for all who come within :data:`JOIN_S`, or while the request before is on its way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked
from opatlas.client.base import NEIGHBOURS
from opatlas.client.client import Client
from opatlas.client.predict.related import AskedNext, Nothing
from opatlas.client.service.capabilities import ServiceCapabilities
from opatlas.client.service.rest import CostsSomething, RestClient
from opatlas.client.service.wire import ServiceWire
from opatlas.identity.place.setting import Setting, default_setting
from opatlas.identity.place.target import Target

JOIN_S = 0.002
"""How long the first waits for others who ask too."""
TIMEOUT_S = 4.0
"""What the service may take: less than a job's client waits, so that it is told."""
MOST_WAITING = 6
"""Requests that wait for exploring at once; the others of the wire's connections are for who does not."""
COSTLY_S, MOST_COSTLY = 60.0, 4096
"""How long, and of how many operators, it is remembered that they cost something."""
_waiting = threading.BoundedSemaphore(MOST_WAITING)


@dataclass(eq=False)
class Gathering:
    """Questions that become one request."""

    asked: dict[str, Asked] = field(default_factory=dict)
    related: dict[str, Asked] = field(default_factory=dict)
    found: Future[dict[str, Answer]] = field(default_factory=Future)


class SharedClient(Client):
    """The client of one job's processes on this machine. ``accepts``: {} for everything. ``wishes``: what an
    answer may have beside (:data:`~opatlas.client.base.NEIGHBOURS`, ``next``)."""

    def __init__(
        self,
        wire: ServiceWire,
        key: str,
        job: str,
        place: tuple[Target, Setting | None],
        accepts: Mapping[str, Any],
        wishes: Collection[str] = (),
    ) -> None:
        self._wire = wire
        self._door_lock, self._turn = threading.Lock(), threading.Lock()
        self._gathering: dict[tuple[float, str], Gathering] = {}
        self._costly: dict[str, float] = {}  # by key: until when it is taken to cost something; "": all are
        target, setting = place
        given: dict[str, Any] = {"target": target, "setting": setting, "accepts": accepts}
        # What comes next is kept, and so answered from here when it is asked for.
        given |= {"predictor": AskedNext() if "next" in wishes else Nothing()}
        self._near = [word for word in NEIGHBOURS if word in wishes]
        super().__init__(wire.url, key, job=job, sidecar=False, timeout_s=TIMEOUT_S, **given)

    def _wanted_of_neighbours(self, any_at_all: bool) -> Sequence[str]:
        return self._near  # a job from before takes less

    @cached_property
    def rest(self) -> RestClient:
        capabilities = ServiceCapabilities(self.store)
        place: dict[str, Any] = {"target": self.target, "setting": self.setting}
        address = {**self._address, "free_only": True, "wire": self._wire}
        return RestClient(**address, **place, capabilities=capabilities)

    @property
    def setting_key(self) -> str:
        return (self.setting or default_setting(self.target)).key

    @property
    def entry_life_s(self) -> float:
        return self._memory.entry_life_s

    @property
    def all_revoked_at(self) -> float:
        """When the service revoked everything: seconds of the wall's clock; 0 if it never did."""
        return self._memory.all_revoked_at

    def told(self) -> tuple[str, frozenset[str]]:
        """Up to where the service has told what it revoked, and all that it revoked until there."""
        return self._memory.told()

    def look_around(self) -> None:
        """What others of the machine were told; and uses, written down and reported when it is time."""
        self._look_around()

    def ask(
        self, asked: Sequence[Asked], related: Sequence[Asked], wait_s: float, wait_for: str
    ) -> Mapping[str, Answer]:
        """What is known of these by their key, those asked for counted as used. Of related ones that are not
        known nothing is said, unless the service has to be asked anyway. Raises
        :class:`~opatlas.client.service.rest.CostsSomething`; then nothing was counted."""
        self._look_around()
        known = {one.key: self._remembered(one, wait_for if wait_s else "") for one in asked}
        missing = {one.key: one for one in asked if known[one.key] is None}
        unknown = self._unknown(one for one in related if one.key not in known)
        told: dict[str, Answer] = {}
        if missing or not asked:
            told = self._fetch_free(list(missing.values()), unknown, wait_s, wait_for)
        elif unknown:
            self.aside(lambda: self._prefetch(unknown))
        told |= {one.key: self._use(entry) for one in asked if (entry := known[one.key]) is not None}
        for one in related:
            if one.key not in told and (entry := self._memory.peek(one.key)) is not None:
                told[one.key] = entry.answer
        return told

    def _note_unanswered(self, key: str) -> None:
        """Each job counts that itself."""

    def _fetch_free(
        self, asked: Sequence[Asked], related: Sequence[Asked], wait_s: float, wait_for: str
    ) -> dict[str, Answer]:
        now = time.monotonic()
        for key in ("", *(one.key for one in asked)) if asked else ():
            if now < self._costly.get(key, 0.0):
                raise CostsSomething(key)
        try:
            return self._fetch(asked, related, wait_s, wait_for)
        except CostsSomething as error:
            if len(self._costly) >= MOST_COSTLY:
                self._costly.clear()
            self._costly[error.key] = now + COSTLY_S
            raise

    def left_s(self, answer: Answer) -> float:
        """How long an answer may still be used."""
        entry = self._memory.entries.get(answer.key)
        if entry is None or entry.answer.best != answer.best:
            return answer.expires_s
        return max(entry.until - time.monotonic(), 0.0)

    def _fetch(
        self,
        asked: Sequence[Asked],
        related: Sequence[Asked],
        wait_s: float = 0.0,
        wait_for: str = "first",
        *,
        predicted: bool = True,
    ) -> dict[str, Answer]:
        """The same in one request with whoever else asks now. What comes along is counted by the jobs that it
        comes to."""
        with self._door_lock:
            joined = self._gathering.get((wait_s, wait_for))
            gathering = joined or self._gathering.setdefault((wait_s, wait_for), Gathering())
            others = [one for one in asked if one.key in gathering.asked]
            gathering.asked |= {one.key: one for one in asked}
            gathering.related |= {one.key: one for one in related}
        if joined is None:
            self._lead(gathering, wait_s, wait_for)
        told = gathering.found.result()
        found = {one.key: told[one.key] for one in (*related, *asked)}
        for one in others:
            if found[one.key].hit:
                found[one.key] = self._also_used(one, wait_s, wait_for)
            elif found[one.key].source != "nobody":
                self._note_missed(one.key)
        return found

    def _also_used(self, asked: Asked, wait_s: float, wait_for: str) -> Answer:
        """What was asked for by somebody else: the service counted one use. What may not be kept (it costs
        something) is asked for by each."""
        entry = self._memory.peek(asked.key)
        if entry is not None and entry.answer.hit:
            return self._memory.use(entry)
        return super()._fetch([asked], [], wait_s, wait_for, predicted=False)[asked.key]

    def _lead(self, gathering: Gathering, wait_s: float, wait_for: str) -> None:
        """Ask for all who have gathered; who does not wait has one request on its way at a time."""
        if wait_s:
            time.sleep(JOIN_S)
            may_wait = _waiting.acquire(blocking=False)
            try:
                # A service too may answer at once where too many wait.
                self._ask_for(gathering, (wait_s, wait_for), wait_s if may_wait else 0.0)
            finally:
                if may_wait:
                    _waiting.release()
        else:
            with self._turn:
                time.sleep(JOIN_S)
                self._ask_for(gathering, (wait_s, wait_for), 0.0)

    def _ask_for(self, gathering: Gathering, name: tuple[float, str], wait_s: float) -> None:
        with self._door_lock:
            del self._gathering[name]
        related = [one for key, one in gathering.related.items() if key not in gathering.asked]
        try:
            asked = list(gathering.asked.values())
            gathering.found.set_result(super()._fetch(asked, related, wait_s, name[1], predicted=False))
        except BaseException as error:
            gathering.found.set_exception(error)
            raise
