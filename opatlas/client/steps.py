"""The steps of a lookup.

Predict the related operators; those that are not cached are the set S. If the operator is cached, return it
at once and fetch S in the background. Otherwise it joins S: one request fetches S, the results are kept, and
the operator is returned if it is among them. An empty S makes no request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import Answer, RememberedAnswer
from opatlas.client.asking import Asked
from opatlas.client.base import ClientBase
from opatlas.client.cache.memory import LOOK_S
from opatlas.client.predict.related import Nothing
from opatlas.errors import UnmappedOperator

if TYPE_CHECKING:
    from opatlas.client.predict.predicting import PredictionThread
    from opatlas.client.snapshot import Snapshot

STAGES = ("first", "contest", "tuned")
UNASKED = "unasked"
"""The state of a miss that a sidecar could not ask the service about."""
MOST_RELATED = 511
"""The most related operators in one request, beside the one asked for."""


class LookupSteps(ClientBase):
    """A client that answers by these steps."""

    def asked(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Asked:
        """The named operator with its key: from memory, from the machine's cache, or read (which takes ONNX).
        Raises :class:`opatlas.errors.InvalidOperator` for what is no operator, or has no key."""
        asked = self._names.asked(operator, inputs, const, attrs)
        if asked.unmapped is not None:
            raise asked.unmapped
        return asked

    def _asked_by_a_job(
        self, operator: Any, inputs: Sequence[Any] = (), const: Sequence[int] = (), attrs: Any = None
    ) -> Asked:
        """The same; inputs that can have no entry are answered empty."""
        try:
            asked = self._names.asked(operator, inputs, const, attrs or {})
        except UnmappedOperator as error:
            asked = Asked("", unmapped=error)
        if asked.unmapped is not None and self._strict:
            raise asked.unmapped
        return asked

    def _answer(self, asked: Asked, wait_s: float, wait_for: str) -> Answer:
        memory, now = self._memory, time.monotonic()
        entry = memory.entries.get(asked.key)
        if (
            entry is not None
            and now < entry.until
            and now < memory.looked_at + LOOK_S
            and now < asked.predicted_until
            and entry.answer.best is not None
            and not wait_s
        ):
            entry.uses[0] += 1
            return self._given(asked, entry.answer)
        if asked.unmapped is not None:
            return Answer(
                "", "miss", state="refused", reason=str(asked.unmapped), source="nobody", loader=self.load
            )
        self._look_around()
        known = self._cached(asked, wait_for if wait_s else "")
        related = self._uncached_related(asked, now, known is not None)
        if known is not None:
            return self._given(asked, known)
        return self._given(asked, self._fetch([asked], related, wait_s, wait_for)[asked.key])

    def _cached(self, asked: Asked, wait_for: str = "") -> Answer | None:
        """From memory or the machine's cache; None if the service has to be asked. A remembered miss is an
        answer for a moment, unless the caller waits."""
        if self.snapshot is not None:
            return self._pinned(self.snapshot, asked.key)
        entry = self._remembered(asked, wait_for)
        return self._use(entry) if entry is not None else None

    def _remembered(self, asked: Asked, wait_for: str) -> RememberedAnswer | None:
        """A valid answer, not counted as a use yet."""
        entry = self._memory.peek(asked.key)
        if entry is None or not wait_for or self.offline:
            return entry
        answer = entry.answer
        return entry if answer.final or _has_reached(answer.stage, wait_for) else None

    def _use(self, entry: RememberedAnswer) -> Answer:
        answer = entry.answer
        if not answer.hit:
            entry.uses[1] += 1
            self._note_missed(answer.key)
            return answer
        given = self._memory.use(entry)
        if given.hit:
            self._counts["cache"] += answer.source == "cache"
        else:  # a limit is used up
            self._note_missed(answer.key)
        return given

    def _note_unanswered(self, key: str) -> None:
        """Like ``_note_missed``, when the service should have been asked and could not be."""
        self._note_missed(key)

    def _pinned(self, snapshot: Snapshot, key: str) -> Answer:
        """The snapshot's choice, whatever has been found since; but a revoked one must not run."""
        answer = snapshot.answers.get(key)
        if answer is None or answer.best is None:
            return Answer(key, "miss", reason="The snapshot does not have this operator.", source="snapshot")
        if answer.best["artifact"] in self.revoked:
            reason = "What the snapshot has for this operator was revoked since."
            return Answer(key, "miss", reason=reason, source="snapshot")
        return replace(answer, loader=self.load)

    # ---- S ------------------------------------------------------------------------------------------

    def _uncached_related(self, asked: Asked, now: float, is_cached: bool) -> Sequence[Asked]:
        """S: the predicted operators that are not cached. Predicted once for as long as the answer lives; if
        the operator is cached, S is predicted and fetched in the background."""
        if now < asked.predicted_until:
            return ()
        asked.predicted_until = now + (self._memory.entry_life_s or LOOK_S)
        if self.snapshot is not None or self.offline or isinstance(self._predictor, Nothing):
            return ()
        try:
            if not is_cached:
                return self._prediction_thread().soon(asked)
            self._prediction_thread().later(asked, self._prefetch_aside)
        except RuntimeError as error:  # no further thread may be had
            self.tell(f"Nothing is predicted: {error}.")
        return ()

    def _prediction_thread(self) -> PredictionThread:
        from opatlas.client.predict.predicting import PredictionThread

        with self._starting:
            if self._predictions is None:
                self._predictions = PredictionThread(self._predicted)
            return self._predictions

    def _predicted(self, asked: Asked) -> list[Asked]:
        """S, in the predictor's thread."""
        try:
            predicted = [self.asked(one) for one in self._predictor.related(asked)]
            return self._unknown(one for one in predicted if one.key != asked.key)
        except Exception as error:  # a predictor is an extra: it never costs the job its answer
            self.tell(f"The predictor failed: {error!r}.")
            return []

    def _prefetch_aside(self, related: list[Asked]) -> None:
        if related:
            self.aside(lambda: self._prefetch(related))

    def _unknown(self, operators: Any) -> list[Asked]:
        """Those without a remembered answer, each once."""
        wanted = {one.key: one for one in operators if self._memory.peek(one.key) is None}
        return list(wanted.values())[:MOST_RELATED]

    def _prefetch(self, related: list[Asked]) -> None:
        """Fetch S alone, for a cached operator."""
        if wanted := self._unknown(related):
            self._fetch([], wanted)

    def _look_at(self, watched: Sequence[Asked]) -> dict[str, Answer]:
        """Look at the state of operators without using any; an older service only answers lookups."""
        found = self._fetch([], watched, predicted=False)
        return found if self._door.answers_related else self._fetch(watched, [])

    # ---- one request --------------------------------------------------------------------------------

    def _fetch(
        self,
        asked: Sequence[Asked],
        related: Sequence[Asked],
        wait_s: float = 0.0,
        wait_for: str = "first",
        *,
        predicted: bool = True,
    ) -> dict[str, Answer]:
        """Ask for all of these in one request, and keep the results. Returns an answer for each, empty if the
        service could not be asked. ``predicted``: the related ones were predicted, not asked for."""
        from opatlas.client.service.door import Unasked

        self._find_login()
        found = {one.key: Answer(one.key, "miss", source="nobody") for one in (*related, *asked)}
        reason = ""
        try:
            if self.offline or self.snapshot is not None:
                raise Unasked("The client is offline.")
            along = self._expired_with(asked, related)
            wanted = [*related, *along.values()]
            for some, _, reply in self._door.ask(asked, wanted, self._known, wait_s, wait_for):
                came = [answer for answer in (*reply.related, *reply.next) if answer.key not in along]
                self._memory.keep(reply, along, came if predicted else ())
                self._counts["prefetches"] += predicted and not some
                for answer in reply.answers:
                    if answer.state == UNASKED:
                        self._note_missed(answer.key)
                    else:
                        self._counts["service" if answer.hit else "miss"] += 1
                found |= {one.key: self._sound(a) for one, a in zip(some, reply.answers, strict=True)}
                found |= {answer.key: answer for answer in came if answer.key in found}
        except Unasked as why:
            reason = str(why)
            for one in asked:
                if found[one.key].source == "nobody":
                    self._note_unanswered(one.key)
        return {
            key: replace(answer, reason=reason) if answer.source == "nobody" else answer
            for key, answer in found.items()
        }

    def _expired_with(self, asked: Sequence[Asked], related: Sequence[Asked]) -> dict[str, Asked]:
        """What else in use has expired, if one of those asked for has. It joins the request, so that entries
        which end together take one request."""
        room = MOST_RELATED - len(asked) - len(related)
        if not asked or room <= 0 or not self._door.answers_related:
            return {}
        wanted = {one.key for one in related}
        keys = self._memory.expired_with([one.key for one in asked], room)
        return {key: self.asked(key) for key in keys if key not in wanted}

    def _sound(self, answer: Answer) -> Answer:
        """The answer, unless it was revoked on its way."""
        if answer.best is not None and answer.best["artifact"] in self.revoked:
            return Answer(answer.key, "miss", reason="It was revoked just now.")
        return replace(answer, loader=self.load)

    def _known(self, operators: Sequence[Asked]) -> list[str]:
        """Artifacts of these whose manifests are stored, so that they are not sent again."""
        if self.store is None:
            return []
        return self.store.artifacts_at(self._memory.place, [one.key for one in operators])

    def _given(self, asked: Asked, answer: Answer) -> Answer:
        """The answer with its loader; the same object as long as the answer is the same."""
        if asked.places is None and answer.loader is not None:
            return answer
        known, given = asked.known
        if known is answer:
            return given
        given = replace(answer, loader=lambda one: self.load(one, asked.places))
        asked.known = (answer, given)
        return given


def _has_reached(stage: str, wait_for: str) -> bool:
    return stage in STAGES and wait_for in STAGES and STAGES.index(stage) >= STAGES.index(wait_for)
