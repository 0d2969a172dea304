"""A job's client: answers from memory, from the machine's cache, or from the service, in this order, and what
comes next fetched along.

The order of steps for an operator that is asked for: predict the related ones; those that are not cached are
the set S; where the operator is cached it is given at once, and S is fetched without the caller waiting; else
it joins S, S is fetched in one request, what came back is kept, and the operator is given where it is among
it. An empty S makes no request.

A job is never broken and hardly slowed by its client: a service that is dead, slow or lies makes the answer
empty, which is logged once, and is asked again only after a while.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import Answer, RememberedAnswer
from opatlas.client.asking import Asked
from opatlas.client.cache.memory import LOOK_S, AnswerMemory
from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.client.errands import ErrandThread
from opatlas.client.machine import installed, this_machine
from opatlas.client.naming import OperatorNames
from opatlas.client.predict.related import AskedNext, Nothing, Predictor, begin
from opatlas.client.service.login import checked_address, read_login, service_at, service_of
from opatlas.client.usage import UsageReporter
from opatlas.conf import conf
from opatlas.errors import CallerError, OpatlasError
from opatlas.identity.place.setting import Setting
from opatlas.identity.place.target import Target

if TYPE_CHECKING:
    from opatlas.client.agreed import AgreedAnswers
    from opatlas.client.loading.artifacts import ArtifactShelf
    from opatlas.client.loading.fetching import Trust
    from opatlas.client.loading.function import KernelFunction
    from opatlas.client.predict.predicting import PredictionThread
    from opatlas.client.service.door import ServiceDoor
    from opatlas.client.service.rest import RestClient
    from opatlas.client.snapshot import Snapshot
    from opatlas.client.watching import Watcher

log = logging.getLogger("opatlas")

WRITE_S = 5.0
"""How often uses are written down: what a killed process may leave uncounted."""
LAST_REPORTS_S = 5.0
"""What closing may spend on reporting uses; the rest is the next process's."""
STAGES = ("first", "contest", "tuned")
NEIGHBOURS = ("neighbours", "neighbour_defaults")
"""Words of a lookup's ``include``: for another machine's entries."""
UNASKED = "unasked"
"""The state of a miss that a sidecar could ask nobody about."""
MOST_RELATED = 511
"""Of one request, beside the operator that was asked for."""


class Client:
    """A job's door to the catalogue: ``client.lookup("MatMul", x, w)``.

    ``url`` and ``key`` default to ``OPATLAS_URL`` and ``OPATLAS_KEY``, then to what ``opatlas login`` kept;
    the target is this machine, the setting all of its cores. ``job`` names the run, of which all processes
    count as one. ``accepts`` says what the job can load (``{"kinds": ["c-abi"]}``; everything it has
    installed unless given). ``cache`` is the folder of the machine's cache, False for none. ``sidecar`` is
    the socket of a sidecar (``OPATLAS_SIDECAR`` unless given, False for none), which is asked in the
    service's place where it has the same login, or this client none. ``offline``: never ask, and use entries
    beyond their time. ``trust`` says whose signatures count; the service's own list does unless it is given.
    ``snapshot``: choose what it says, and ask nobody (:mod:`opatlas.client.snapshot`). ``predictor`` guesses
    what the job will ask for next (:mod:`opatlas.client.predict.related`; unless given, what jobs before
    asked). ``neighbours``: on a CPU that nobody explores for, take what was found for one that differs in
    cores and cache sizes alone (``answer.from_neighbour``). ``strict``: raise where the service cannot be
    asked or refuses, which is otherwise an empty answer and logged once. ``spend_limit`` (``"2.50 EUR"``):
    what this job, which must be named, may spend in all; what is charged is then kept like anything else, and
    each use is paid.

    Safe in threads and after a fork. ``timeout_s`` bounds what a request may take beyond ``wait_s``.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        job: str = "",
        target: Target | None = None,
        setting: Setting | None = None,
        accepts: Mapping[str, Any] | None = None,
        cache: Path | str | bool = True,
        sidecar: Path | str | bool = True,
        offline: bool = False,
        trust: Trust | None = None,
        snapshot: Snapshot | None = None,
        predictor: Predictor | None = None,
        neighbours: bool = True,
        strict: bool = False,
        spend_limit: str = "",
        timeout_s: float = 5.0,
    ) -> None:
        said = conf()
        url, key = url or said.url, key or said.key
        if not (url and key):
            kept_url, kept_key = read_login()
            url, key = url or kept_url or said.service_url, key or kept_key
        url, key = checked_address(url, key)
        self.home = said.cache if cache is True else Path(cache or said.cache)
        self.store = EntryStore(self.home, most_bytes=said.cache_bytes) if cache else None
        self.target = target or this_machine(self.store)
        self.setting = setting
        self.accepts = installed(self.target) if accepts is None else accepts
        self._address: dict[str, Any] = {"url": url, "key": key, "job": job, "timeout_s": timeout_s}
        self._sidecar = (said.sidecar if sidecar is True else Path(sidecar)) if sidecar else None
        self._agreed = self._agree(spend_limit, job) if spend_limit else None
        self._strict, self._told = strict, False
        self._neighbours: Sequence[str] = self._wanted_of_neighbours(neighbours)
        self.offline = offline
        self.trust = trust
        self.snapshot = snapshot
        if snapshot is not None:
            self._check_place(snapshot)
        self._names = OperatorNames(self.store)
        self._memory = AnswerMemory(self.store, self.load, offline=offline, agreed=self._agreed)
        self._reporter = UsageReporter(job, self.store, self._heard)
        self._reporter.of_neighbours = self._memory.of_neighbours
        self._written_at = time.monotonic()
        self._begin()
        self._ask_as(service_of(url, key))
        self._find_login()
        self.predictor = AskedNext() if predictor is None else predictor
        _open.add(self)

    def _ask_as(self, service: bytes) -> None:
        """What is kept from now on, and found, is what this login was told; private entries are nobody
        else's."""
        self.service = service
        if self.store is not None:
            self.store.service = service
        for made in ("rest", "_door", "artifacts"):  # for who asked before
            self.__dict__.pop(made, None)
        about = self.setting.to_json() if self.setting is not None else None
        kept_for: list[Any] = [service.hex(), self.target.to_json(), about, self.accepts]
        if self._agreed is not None:  # what is agreed on is the job's own
            kept_for.append([self._address["job"], self._address["spend_limit"]])
        # Clients that do not ask for neighbours' entries do not find them here either.
        self._memory.move(digest_of([*kept_for, *self._neighbours]))

    def _wanted_of_neighbours(self, any_at_all: bool) -> Sequence[str]:
        return NEIGHBOURS if any_at_all else ()

    def _find_login(self) -> None:
        """Without a key, a client has the login of the sidecar that is there now."""
        if self._address["key"] or self._sidecar is None:
            return
        service = service_at(self._sidecar)
        if service is not None and service != self.service:
            self._write_uses()
            self._reporter.begin()
            self._ask_as(service)

    def _agree(self, limit: str, job: str) -> AgreedAnswers:
        from opatlas.client.agreed import AgreedAnswers, parse_limit

        self._address["spend_limit"] = parse_limit(limit)
        if not job:
            raise CallerError('A spend limit is one of a job: name it, Client(job="…", spend_limit="…").')
        return AgreedAnswers(limit)

    def _begin(self) -> None:
        """What each process has of its own."""
        self._counts = dict.fromkeys(("used", "cache", "service", "miss", "prefetches"), 0)
        self._missed: dict[str, int] = {}  # by operator: answered empty without asking, not handed over yet
        self._reported: dict[str, int] = {}  # sums that the reporter has
        self._starting, self._counting, self._noting = (threading.Lock() for _ in range(3))
        self._errands = ErrandThread(self.tell)
        self._watcher: Watcher | None = None
        self._predictions: PredictionThread | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is being fetched, report what was used, and let go of files and connections."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher = None
        if self._predictions is not None:
            self._predictions.stop()
            self._predictions = None
        self._errands.finish(self._address["timeout_s"])
        self._report()
        if self.store is not None:
            self.store.close()
        if "rest" in self.__dict__:
            self.rest.close()

    @cached_property
    def rest(self) -> RestClient:
        """The REST calls, made when somebody has to be asked: importing them takes longer than a hit."""
        from opatlas.client.service.capabilities import ServiceCapabilities
        from opatlas.client.service.rest import RestClient

        capabilities = ServiceCapabilities(self.store)
        rest = RestClient(
            **self._address, target=self.target, setting=self.setting, capabilities=capabilities
        )
        rest.wire.sidecar, rest.wire.service = self._sidecar, self.service
        return rest

    @cached_property
    def _door(self) -> ServiceDoor:
        from opatlas.client.service.door import ServiceDoor

        told = self._memory.told_until
        door = ServiceDoor(
            self.rest, self.accepts, told, self.tell, strict=self._strict, neighbours=self._neighbours
        )
        door.asks_next = getattr(self.predictor, "asks_service", False)
        return door

    @property
    def predictor(self) -> Predictor:
        """What guesses which operators come next; another one may be set at any time."""
        return self._predictor

    @predictor.setter
    def predictor(self, predictor: Predictor) -> None:
        self._predictor = predictor
        begin(predictor, self)
        if "_door" in self.__dict__:
            self._door.asks_next = getattr(predictor, "asks_service", False)

    def tell(self, message: str) -> None:
        """Log it, once in a client's life."""
        if not self._told:
            self._told = True
            log.warning("%s Operators run as they would without Opatlas.", message)

    def __del__(self) -> None:
        """Nobody closed it: what was used is written down for the next one."""
        with contextlib.suppress(Exception):
            self._write_uses()

    # ---- asking -------------------------------------------------------------------------------------

    def lookup(
        self,
        operator: Any,
        *inputs: Any,
        const: Sequence[int] = (),
        wait_s: float = 0.0,
        wait_for: str = "first",
        **attrs: Any,
    ) -> Answer:
        """The best known implementation of one operator, or an empty answer (which is false).

        ``operator`` is an ONNX operator type, with ``inputs`` (arrays, tensors, or shapes like ``(64, 256)``
        or ``((64, 256), "float16")``), ``attrs`` and ``const`` (numbers of the inputs that are weights); or
        an :class:`opatlas.identity.Operator`, its key, its JSON, an ONNX model. ``wait_s`` waits for what is
        not known yet. Raises :class:`opatlas.errors.InvalidOperator` for what is no operator.
        """
        return self._answer(self._names.asked(operator, inputs, const, attrs), wait_s, wait_for)

    def lookup_all(
        self, operators: Sequence[Any], *, wait_s: float = 0.0, wait_for: str = "first"
    ) -> list[Answer]:
        """The same of many (each an operator, key, JSON or model), in order; what is not cached is asked for
        in one request (of 512 each)."""
        asked = [self.asked(one) for one in operators]
        self._look_around()
        known = {one.key: self._cached(one, wait_for if wait_s else "") for one in asked}
        missing = {one.key: one for one in asked if known[one.key] is None}
        known |= self._fetch(list(missing.values()), [], wait_s, wait_for)
        return [self._given(one, found) for one in asked if (found := known[one.key]) is not None]

    def when_known(
        self,
        callback: Callable[[Answer], object],
        operator: Any,
        *inputs: Any,
        const: Sequence[int] = (),
        **attrs: Any,
    ) -> None:
        """Call ``callback`` once exploring has ended, with the answer (``answer.load()`` gives the
        implementation); from a thread of the client's own. All that is waited for is one request, every
        second at first and twice as seldom while nothing moves."""
        from opatlas.client.watching import Watcher

        asked = self.asked(operator, *inputs, const=const, **attrs)
        if self.snapshot is not None or self.offline:  # whose answers do not change
            callback(self._answer(asked, 0.0, "first"))
            return
        if self._watcher is None:
            self._watcher = Watcher(self._look_at)
        self._watcher.add(asked, lambda: callback(self._answer(asked, 0.0, "first")))

    def explain(
        self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any
    ) -> Mapping[str, Any]:
        """Why a lookup of it answers what it does, as the service says: ``state``, ``sentence``,
        ``expected_s``, and the ``nearest`` known entries with the fields of the key that differ. Raises
        :class:`~.service.rest.ServiceError` where the service cannot be asked."""
        from opatlas.client.service.door import item_of
        from opatlas.client.service.rest import ServiceError

        asked = self.asked(operator, *inputs, const=const, **attrs)
        if self.offline or self.snapshot is not None:
            raise ServiceError("The client asks nobody: it is offline, or has a snapshot.")
        return self.rest.explain(item_of(asked), self.accepts)

    def handle(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Handle:
        """For an operator that is asked for again and again: nothing of it is worked out twice."""
        return Handle(self, self.asked(operator, *inputs, const=const, **attrs))

    def asked(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Asked:
        """What is named, with its key: from memory, from the machine's cache, or read (which takes ONNX)."""
        return self._names.asked(operator, inputs, const, attrs)

    def load(self, answer: Answer, places: Sequence[int] | None = None) -> KernelFunction:
        """A hit as a function of the operator's inputs; ``places`` says which of the caller's inputs each
        tensor of the operator is. Verified first (:class:`~.loading.fetching.Refused`); raises
        :class:`opatlas.errors.OpatlasError` where it cannot be had."""
        return self.artifacts.load(answer, self.revoked, places)

    @cached_property
    def artifacts(self) -> ArtifactShelf:
        """Where this client has its artifacts from."""
        from opatlas.client.loading.artifacts import ArtifactShelf

        asks_nobody = self.offline or self.snapshot is not None
        return ArtifactShelf(
            self.rest, self.store, self.home, self.trust, self.snapshot, asks_nobody, self._report_failure
        )

    @property
    def revoked(self) -> frozenset[str]:
        """Artifacts that must never run again, as far as this machine was told."""
        self._memory.look_around()
        return self._memory.revoked

    @property
    def counts(self) -> dict[str, int]:
        """How often each source answered (``memory``, ``cache``, ``service``; ``miss``: nobody had anything),
        requests for lookups, related operators that came along, and how many of those were used
        (``prefetched_used``: counted every few seconds)."""
        found, along = self._counts, self._memory.count_prefetched()
        memory = found["used"] + self._memory.count_uses() - found["cache"]
        requests = self._door.requests if "_door" in self.__dict__ else 0
        return {
            "memory": memory,
            **{name: found[name] for name in ("cache", "service", "miss")},
            "requests": requests,
            "prefetched": along["brought"],
            "prefetched_used": along["used"],
        }

    def forget_everything(self) -> None:
        """Empty the machine's cache: entries, aliases, artifacts. What was revoked stays known, and so do
        uses that are not reported yet."""
        import shutil

        self._memory.forget()
        self._names.forget()
        if self.store is not None:
            self.store.clear()
        shutil.rmtree(self.home / "artifacts", ignore_errors=True)

    # ---- the order of steps -------------------------------------------------------------------------

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
        self._look_around()
        known = self._cached(asked, wait_for if wait_s else "")
        related = self._uncached_related(asked, now, known is not None)
        if known is not None:
            return self._given(asked, known)
        return self._given(asked, self._fetch([asked], related, wait_s, wait_for)[asked.key])

    def _cached(self, asked: Asked, wait_for: str = "") -> Answer | None:
        """From memory or the machine's cache; None where the service has to be asked. A remembered miss is an
        answer for a moment, unless somebody waits."""
        if self.snapshot is not None:
            return self._pinned(self.snapshot, asked.key)
        entry = self._remembered(asked, wait_for)
        return self._use(entry) if entry is not None else None

    def _remembered(self, asked: Asked, wait_for: str) -> RememberedAnswer | None:
        """What may be given again, not counted as used yet."""
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

    def _note_missed(self, key: str) -> None:
        """One lookup was answered empty, and the service was not asked: it hears of it by a report."""
        with self._noting:
            self._counts["miss"] += 1
            self._missed[key] = self._missed.get(key, 0) + 1

    def _note_unanswered(self, key: str) -> None:
        """The same, where the service was to be asked and could not be."""
        self._note_missed(key)

    def _pinned(self, snapshot: Snapshot, key: str) -> Answer:
        """What was chosen once, whatever has been found since; but what was revoked must not run."""
        answer = snapshot.answers.get(key)
        if answer is None or answer.best is None:
            return Answer(key, "miss", reason="The snapshot does not have this operator.", source="snapshot")
        if answer.best["artifact"] in self.revoked:
            reason = "What the snapshot has for this operator was revoked since."
            return Answer(key, "miss", reason=reason, source="snapshot")
        return replace(answer, loader=self.load)

    def _check_place(self, snapshot: Snapshot) -> None:
        target, setting = snapshot.place
        if target != self.target.key:
            raise CallerError(f"The snapshot is for the target {target}, not for {self.target.key}.")
        if self.setting is not None and setting != self.setting.key:
            raise CallerError(f"The snapshot is for the setting {setting}, not for {self.setting.key}.")

    def _uncached_related(self, asked: Asked, now: float, is_cached: bool) -> Sequence[Asked]:
        """S: what will be asked for next, and is not known. Predicted once for as long as that lives; where
        the operator is cached, S is predicted and fetched beside the job."""
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

    def refresh(self, operators: Sequence[Any]) -> None:
        """Ask for these anew, without the caller waiting and without a use: what is better by now, and what
        was revoked, is known soon."""
        asked = [self.asked(one) for one in operators]
        if asked and not self.offline and self.snapshot is None:
            self.aside(lambda: self._refreshed(asked))

    def _refreshed(self, asked: Sequence[Asked]) -> None:
        self._look_at(asked)

    def _unknown(self, operators: Any) -> list[Asked]:
        """Those that nothing is remembered of, each once."""
        wanted = {one.key: one for one in operators if self._memory.peek(one.key) is None}
        return list(wanted.values())[:MOST_RELATED]

    def _prefetch(self, related: list[Asked]) -> None:
        """S alone, for an operator that was known."""
        if wanted := self._unknown(related):
            self._fetch([], wanted)

    def _look_at(self, watched: Sequence[Asked]) -> dict[str, Answer]:
        """What has become of operators, without using any; a service from before answers lookups alone."""
        found = self._fetch([], watched, predicted=False)
        return found if self._door.answers_related else self._fetch(watched, [])

    def _fetch(
        self,
        asked: Sequence[Asked],
        related: Sequence[Asked],
        wait_s: float = 0.0,
        wait_for: str = "first",
        *,
        predicted: bool = True,
    ) -> dict[str, Answer]:
        """One request for all of these; what came back is kept. Gives every one's answer, empty where the
        service could not be asked. ``predicted``: so the related ones were, nobody asked for them."""
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
        """What is in use and expired as one of those asked for did: it joins the request, so that what ends
        together is one request and not one each."""
        room = MOST_RELATED - len(asked) - len(related)
        if not asked or room <= 0 or not self._door.answers_related:
            return {}
        wanted = {one.key for one in related}
        keys = self._memory.expired_with([one.key for one in asked], room)
        return {key: self.asked(key) for key in keys if key not in wanted}

    def _sound(self, answer: Answer) -> Answer:
        """Unless it was revoked while it was on its way."""
        if answer.best is not None and answer.best["artifact"] in self.revoked:
            return Answer(answer.key, "miss", reason="It was revoked just now.")
        return replace(answer, loader=self.load)

    def _known(self, operators: Sequence[Asked]) -> list[str]:
        """Artifacts of these whose manifests are here, so that they are not sent again."""
        if self.store is None:
            return []
        return self.store.artifacts_at(self._memory.place, [one.key for one in operators])

    def _given(self, asked: Asked, answer: Answer) -> Answer:
        """With how to load it; the same object as long as the answer is the same."""
        if asked.places is None and answer.loader is not None:
            return answer
        known, given = asked.known
        if known is answer:
            return given
        given = replace(answer, loader=lambda one: self.load(one, asked.places))
        asked.known = (answer, given)
        return given

    # ---- beside the job -----------------------------------------------------------------------------

    def _look_around(self) -> None:
        self._memory.look_around()
        now = time.monotonic()
        if now > self._written_at + WRITE_S:
            self._written_at = now
            self.aside(self._report if now > self._reporter.due_at else self._write_uses)

    def _write_uses(self) -> None:
        with self._counting:
            uses = self._memory.uses()
            self._counts["used"] += int(sum(uses.values()))
            counts = {"cache": self._counts["cache"]}
            counts |= {"requests": self._counts["prefetches"]} | self._memory.count_prefetched()
            new = {name: n for name, count in counts.items() if (n := count - self._reported.get(name, 0))}
            self._reported = counts
            with self._noting:
                missed, self._missed = self._missed, {}
            self._reporter.add(uses, new, missed)
            self._reporter.keep()

    def _report(self) -> None:
        try:
            self._write_uses()
            self._find_login()
            if not self.offline and self.snapshot is None and self._reporter.is_due:
                self._reporter.send_all(self.rest, LAST_REPORTS_S)
        except OpatlasError as error:
            self.tell(str(error))

    def _report_failure(self, failed: Mapping[str, Any]) -> None:
        """An implementation failed here: told beside the job."""
        from opatlas.client.loading.failing import report_of

        report = report_of(failed, self._address["job"], self.accepts.get("versions") or {})
        asked = None if self.offline or self.snapshot is not None else self.rest
        self.aside(lambda: self._reporter.send_failure(asked, report))

    def _heard(self, report: Mapping[str, Any], answer: Any) -> None:
        if "failed" in report:
            from opatlas.client.loading.failing import hear

            hear(report, answer, self.artifacts.folder)
        elif self._agreed is not None and isinstance(answer, dict):
            self._agreed.told(answer.get("left_micros"))

    def aside(self, errand: Callable[[], None]) -> None:
        """Run it in a thread of its own that ends with the process."""
        self._errands.put(errand)

    def _after_fork(self) -> None:
        """Threads stayed with the parent, and so did whoever held a lock, and what it has to report."""
        self._begin()
        self._memory.begin_anew()
        self._reporter.begin()


def _has_reached(stage: str, wait_for: str) -> bool:
    return stage in STAGES and wait_for in STAGES and STAGES.index(stage) >= STAGES.index(wait_for)


class Handle:
    """An operator of a client, for asking often: ``handle()``."""

    __slots__ = ("_asked", "_client")

    def __init__(self, client: Client, asked: Asked) -> None:
        self._client, self._asked = client, asked

    @property
    def key(self) -> str:
        return self._asked.key

    def __call__(self, *, wait_s: float = 0.0, wait_for: str = "first") -> Answer:
        return self._client._answer(self._asked, wait_s, wait_for)


_open: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _report_what_was_used() -> None:
    """Of clients that nobody closed."""
    for client in list(_open):
        try:
            client.close()
        except Exception:
            log.exception("A client could not be closed.")


def _after_fork() -> None:
    for client in list(_open):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
