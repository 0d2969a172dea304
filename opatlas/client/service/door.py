"""Requests for lookups, many in one, which never break a job.

A service that is down or wrong is not asked for a while. An operator that it refuses is left out, and the
others are asked for without it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opatlas.client.answer import Answer, LookupReply
from opatlas.client.asking import Asked
from opatlas.client.cache.store import NEVER_TOLD
from opatlas.client.service.capabilities import LOOKUP
from opatlas.client.service.rest import RestClient, ServiceError
from opatlas.errors import CallerError

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""After a request that failed nobody is asked for so long; twice as long each time."""
INCLUDED, NEXT = ("manifest", "related", "evidence"), "next"
MOST_ASKED, MOST_BYTES = 512, 800_000
"""Of one request: operators, and bytes of what describes them; a service takes 1,024 and 1 MiB."""
MOST_REFUSED, MOST_REMEMBERED = 64, 4096
"""Operators that are left out one after the other before the rest is given up; and that are kept in mind."""
MOST_WAIT_S = 30.0
"""The most that a service lets a lookup wait."""
_PLACE = re.compile(r"(operators|related)\[(\d+)\]")


class Unasked(Exception):
    """No request was made; says why."""


class ServiceDoor:
    """Requests for lookups. ``told_until``: up to where the service has reported revocations; ``tell`` logs
    errors; ``strict``: raise the service's errors; ``neighbours``: words of ``include`` for entries of
    targets that differ in sizes alone."""

    def __init__(
        self,
        rest: RestClient,
        accepts: Mapping[str, Any],
        told_until: Callable[[], str],
        tell: Callable[[str], None],
        *,
        strict: bool,
        neighbours: Sequence[str] = (),
    ) -> None:
        self.rest = rest
        self.accepts = accepts
        self.strict = strict
        self.requests = 0
        self.asks_next = False  # whether what jobs asked next is to come along
        self._wishes = (*INCLUDED, *neighbours)
        self._told_until, self._tell = told_until, tell
        self._quiet_until, self._pause_s = 0.0, FIRST_PAUSE_S
        self._refused: dict[str, str] = {}  # why, by key: they are not asked for again

    def ask(
        self,
        asked: Sequence[Asked],
        related: Sequence[Asked],
        known: Callable[[Sequence[Asked]], Sequence[str]],
        wait_s: float = 0.0,
        wait_for: str = "first",
    ) -> Iterator[tuple[list[Asked], list[Asked], LookupReply]]:
        """Reply by reply, with the operators of each; usually one. ``known``: artifacts whose manifests need
        not be sent. Raises :class:`Unasked`, or the service's errors if it is strict."""
        if time.monotonic() < self._quiet_until:
            raise Unasked("The service could not be asked a moment ago, and is left alone for a while.")
        for some, others in _portions(asked, related):
            yield self._portion(some, others, known([*some, *others]), wait_s, wait_for)

    def _portion(
        self, asked: list[Asked], related: list[Asked], known: Sequence[str], wait_s: float, wait_for: str
    ) -> tuple[list[Asked], list[Asked], LookupReply]:
        others = related
        for _ in range(MOST_REFUSED):
            left = [one for one in asked if one.key not in self._refused]
            others = [one for one in others if one.key not in self._refused]
            try:
                reply = self._request(left, others, known, wait_s, wait_for) if left or others else None
            except CallerError as error:
                culprit = _culprit(error, left, others)
                if self.strict or culprit is None:
                    raise self._unasked(error) from error
                self._tell(str(error))
                if len(self._refused) >= MOST_REMEMBERED:
                    self._refused.clear()
                self._refused[culprit.key] = str(error)
                if culprit in others:
                    others = []  # a guess at what comes next is worth no second request
                continue
            except ServiceError as error:
                raise self._unasked(error) from error
            self._pause_s = FIRST_PAUSE_S
            found = {answer.key: answer for answer in reply.answers} if reply else {}
            answers = [found[one.key] if one.key in found else self._refusal(one) for one in asked]
            return asked, others, LookupReply.with_answers(reply, answers)
        raise Unasked(f"The service refused {MOST_REFUSED} operators of one request.")

    def _refusal(self, asked: Asked) -> Answer:
        reason = self._refused.get(asked.key, "")
        return Answer(asked.key, "miss", state="refused", reason=reason)

    def _request(
        self, asked: list[Asked], related: list[Asked], known: Sequence[str], wait_s: float, wait_for: str
    ) -> LookupReply:
        self.requests += 1
        items, more = [item_of(one) for one in asked], [item_of(one) for one in related]
        wait_s = min(wait_s, MOST_WAIT_S)
        waiting: dict[str, Any] = {"accepts": self.accepts, "wait_s": wait_s, "wait_for": wait_for}
        waiting["include"] = (*self._wishes, NEXT) if self.asks_next and items else self._wishes
        since = self._told_until()
        try:
            if items or self.answers_related:
                return self.rest.ask(items, related=more, known=known, revoked_since=since, **waiting)
        except CallerError as error:
            if error.where == "revoked_since" and since != NEVER_TOLD:
                # No place in this service's list: whoever said it was another version, or lied.
                waiting |= {"related": more, "known": known}
                return self.rest.ask(items, revoked_since=NEVER_TOLD, **waiting)
            if items or self.answers_related:  # else it has just said that it does not
                raise
        return LookupReply(())

    @property
    def answers_related(self) -> bool:
        """Whether the service answers for related operators; older ones do not."""
        takes = self.rest.capabilities.takes
        return takes(LOOKUP, "include") and takes(LOOKUP, "include related")

    def _unasked(self, error: Exception) -> Exception:
        """The exception to raise; no request is made for a while."""
        if self.strict:
            return error
        if time.monotonic() >= self._quiet_until:  # else another thread met the same
            self._quiet_until = time.monotonic() + self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._tell(str(error))
        return Unasked(str(error))


def _portions(asked: Sequence[Asked], related: Sequence[Asked]) -> Iterator[tuple[list[Asked], list[Asked]]]:
    """Portions that fit into a request; operators asked for come first."""
    some: list[Asked] = []
    others: list[Asked] = []
    held = 0
    for one, wanted in (*((one, True) for one in asked), *((one, False) for one in related)):
        if len(some) + len(others) >= MOST_ASKED or (held + one.size > MOST_BYTES and held):
            yield some, others
            some, others, held = [], [], 0
        (some if wanted else others).append(one)
        held += one.size
    if some or others:
        yield some, others


def _culprit(error: CallerError, asked: Sequence[Asked], related: Sequence[Asked]) -> Asked | None:
    """The operator that a refusal names."""
    found = _PLACE.match(error.where)
    if found is None:
        return None
    among = asked if found[1] == "operators" else related
    return among[int(found[2])] if int(found[2]) < len(among) else None


def item_of(asked: Asked) -> dict[str, Any]:
    item: dict[str, Any] = {"key": asked.key}
    if asked.document is not None:
        item["graph"] = asked.document
    return item
