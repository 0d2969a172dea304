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
import hashlib
import logging
import os
import queue
import shutil
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked, alias_of, describe_call, document_of, read, signature
from opatlas.client.login import read_login
from opatlas.client.related import NOTHING, Predictor
from opatlas.client.rest import LookupReply, RestClient, ServiceError
from opatlas.client.store import EntryStore
from opatlas.client.usage import UsageReporter
from opatlas.client.watching import Watcher
from opatlas.conf import conf
from opatlas.errors import CallerError, OpatlasError
from opatlas.identity.operator import Operator, canonical_json
from opatlas.identity.place.kinds import CUDA
from opatlas.identity.place.setting import Setting
from opatlas.identity.place.target import Target

if TYPE_CHECKING:
    from opatlas.client.artifacts import ArtifactShelf
    from opatlas.client.fetching import Trust
    from opatlas.client.function import KernelFunction
    from opatlas.client.snapshot import Snapshot

log = logging.getLogger("opatlas")

MISS_LIFE_S = 2.0
"""A remembered miss: long enough that a loop does not ask at every turn, too short to keep anybody
waiting."""
WRITE_S = 5.0
"""How often uses are written down: what a killed process may leave uncounted."""
LOOK_S = 1.0
"""How often memory is held against what other processes were told: revocations above all."""
MOST_RELATED = 512
"""Of one request; more are fetched with the next."""
MOST_IN_MEMORY = 1 << 16
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""After a request that failed nobody is asked for so long; twice as long each time."""
INCLUDED = ("manifest", "related")
UNKNOWN_FIELD = "There is no field "
"""How a service begins its refusal of a field that came later."""
LIBRARIES = ("jax", "jaxlib", "numpy", "onnxruntime", "torch")
"""What recipes and packages need in exact versions."""


class RememberedAnswer(NamedTuple):
    """An answer in memory. ``until``: on the monotonic clock; ``uses``: one number, how often it was given
    since that was last written down."""

    answer: Answer
    until: float
    uses: list[int]


class Client:
    """A job's door to the catalogue: ``client.lookup("MatMul", x, w)``.

    ``url`` and ``key`` default to ``OPATLAS_URL`` and ``OPATLAS_KEY``, then to what ``opatlas login`` kept;
    the target is this machine, the setting all of its cores. ``job`` names the run, of which all processes
    count as one. ``accepts`` says what the job can load (``{"kinds": ["c-abi"]}``; everything it has
    installed unless given). ``cache`` is the folder of the machine's cache, False for none. ``offline``:
    never ask, and use entries beyond their time. ``trust`` says whose signatures count; the service's own
    list does unless it is given. ``snapshot``: choose what it says, and ask nobody
    (:mod:`opatlas.client.snapshot`). ``strict``: raise where the service cannot be asked or refuses, which is
    otherwise an empty answer and logged once.

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
        offline: bool = False,
        trust: Trust | None = None,
        snapshot: Snapshot | None = None,
        predictor: Predictor = NOTHING,
        strict: bool = False,
        timeout_s: float = 5.0,
    ) -> None:
        said = conf()
        kept_url, kept_key = ("", "") if (url or said.url) and (key or said.key) else read_login()
        url, key = url or said.url or kept_url or said.service_url, key or said.key or kept_key
        self.rest = RestClient(url, key, job=job, target=target, setting=setting, timeout_s=timeout_s)
        self.accepts = installed(self.rest.target) if accepts is None else accepts
        self.offline = offline
        self.trust = trust
        self.snapshot = snapshot
        self.predictor = predictor
        self.strict = strict
        self.home = said.cache if cache is True else Path(cache or said.cache)
        self._counts = dict.fromkeys(("used", "cache", "service", "miss", "requests", "prefetched"), 0)
        self._store = EntryStore(self.home, said.cache_bytes) if cache else None
        self._place = _digest_place(self.rest, url, key, self.accepts)
        self._asked: dict[Any, Asked] = {}  # by signature, and by key
        self._entries: dict[str, RememberedAnswer] = {}
        self._revoked: frozenset[str] = frozenset()
        if snapshot is not None:
            self._check_place(snapshot)
        self._looked_at = -LOOK_S
        self._lock = threading.RLock()
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._errand_boy: threading.Thread | None = None
        self._pid = os.getpid()
        self._quiet_until, self._pause_s, self._told = 0.0, FIRST_PAUSE_S, False
        self._plain = False
        self._watcher = Watcher(lambda asked: self._fetch(asked, [], 0.0, "first"))
        self._reporter = UsageReporter(self.rest, self._store, self._place)
        self._written_at = time.monotonic()
        _open.add(self)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is being fetched, report what was used, and let go of files and connections."""
        self._watcher.stop()
        if self._errand_boy is not None and self._pid == os.getpid():
            self._errands.put(None)
            self._errand_boy.join(self.rest.timeout_s)
            self._errand_boy = None
        self._report()
        if self._store is not None:
            self._store.close()
        self.rest.close()

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
        asked = self.asked(operator, *inputs, const=const, **attrs)
        return self._answer(asked, wait_s, wait_for)

    def lookup_all(
        self, operators: Sequence[Any], *, wait_s: float = 0.0, wait_for: str = "first"
    ) -> list[Answer]:
        """The same of many (each an operator, key, JSON or model), in order; what is not cached is asked for
        in one request."""
        asked = [self.asked(one) for one in operators]
        known = {one.key: self._cached(one, wait_for if wait_s else "") for one in asked}
        missing = {one.key: one for one in asked if known[one.key] is None}
        if missing:
            fetched = self._fetch(list(missing.values()), [], wait_s, wait_for)
            known |= {key: fetched[key] for key in missing}
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
        asked = self.asked(operator, *inputs, const=const, **attrs)
        if self._pid != os.getpid():
            self._begin_anew()
        self._watcher.add(asked, lambda answer: callback(self._given(asked, answer)))

    def explain(
        self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any
    ) -> Mapping[str, Any]:
        """Why a lookup of it answers what it does, as the service says: ``state``, ``sentence``,
        ``expected_s``, and the ``nearest`` known entries with the fields of the key that differ. Raises
        :class:`~.rest.ServiceError` where the service cannot be asked."""
        asked = self.asked(operator, *inputs, const=const, **attrs)
        if self.offline:
            raise ServiceError("The client is offline.")
        return self.rest.explain(_item(asked), self.accepts)

    def handle(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Handle:
        """For an operator that is asked for again and again: nothing of it is worked out twice."""
        return Handle(self, self.asked(operator, *inputs, const=const, **attrs))

    def asked(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Asked:
        """What is named, with its key: from memory, from the machine's cache, or read (which takes ONNX)."""
        if isinstance(operator, Asked):
            return operator
        if inputs:
            signed = signature(operator, inputs, const, attrs)
            try:
                return self._asked[signed]
            except (KeyError, TypeError):  # unknown, or not hashable
                pass
            asked = self._read(describe_call(operator, inputs, const, attrs))
            if signed is not None:
                self._remember(signed, asked)
            return asked
        if isinstance(operator, str):
            known = self._asked.get(operator)
            return known if known is not None else self._remember(operator, Asked(operator))
        if isinstance(operator, Operator):
            return self._remember(operator.key, Asked(operator.key, operator.to_json()))
        return self._read(document_of(operator))

    def _read(self, document: Mapping[str, Any]) -> Asked:
        alias = alias_of(document)
        if (known := self._asked.get(alias)) is not None:
            return known
        found = self._store.alias(alias) if self._store is not None else None
        if found is None:
            found = read(document)
            if self._store is not None:
                self._store.keep_alias(alias, *found)
        return self._remember(alias, Asked(found[0], document, found[1]))

    def _remember(self, name: Any, asked: Asked) -> Asked:
        if len(self._asked) >= MOST_IN_MEMORY:
            self._asked.clear()
        try:
            return self._asked.setdefault(name, asked)
        except TypeError:
            return asked

    # ---- the order of steps -------------------------------------------------------------------------

    def _answer(self, asked: Asked, wait_s: float, wait_for: str) -> Answer:
        entry = self._entries.get(asked.key)
        now = time.monotonic()
        if (
            entry is not None
            and now < entry.until
            and now < self._looked_at + LOOK_S
            and now < asked.predicted_until
            and entry.answer.best is not None
            and not wait_s
        ):
            entry.uses[0] += 1
            return self._given(asked, entry.answer)
        known = self._cached(asked, wait_for if wait_s else "")
        related = self._uncached_related(asked, now)
        if known is not None:
            if related:
                self._aside(lambda: self._prefetch(related))
            return self._given(asked, known)
        return self._given(asked, self._fetch([asked], related, wait_s, wait_for)[asked.key])

    def _cached(self, asked: Asked, wait_for: str = "") -> Answer | None:
        """From memory or the machine's cache; None where the service has to be asked. A remembered miss is an
        answer for a moment, unless somebody waits."""
        self._look_around()
        now = time.monotonic()
        if self.snapshot is not None:
            return self._pinned(self.snapshot, asked.key)
        entry = self._entries.get(asked.key)
        if entry is None or now >= entry.until:
            entry = self._from_store(asked.key, now)
        if entry is None:
            return None
        answer = entry.answer
        if wait_for and not self.offline and not (answer.final or answer.stage == wait_for):
            return None
        if not answer.hit:
            self._counts["miss"] += 1
            return answer
        if answer.source == "cache":
            self._counts["cache"] += 1
            entry = self._entries[asked.key] = RememberedAnswer(
                replace(answer, source="memory"), entry.until, entry.uses
            )
        entry.uses[0] += 1
        return answer

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
        if target != self.rest.target.key:
            raise CallerError(f"The snapshot is for the target {target}, not for {self.rest.target.key}.")
        if self.rest.setting is not None and setting != self.rest.setting.key:
            raise CallerError(f"The snapshot is for the setting {setting}, not for {self.rest.setting.key}.")

    def _from_store(self, key: str, now: float) -> RememberedAnswer | None:
        found = self._store.entry(self._place, key) if self._store is not None else None
        if found is None:
            return None
        left_s = found.left_s(time.time())
        if self.offline and found.body.get("best"):
            left_s = max(left_s, LOOK_S)
        if not left_s:
            return None
        try:
            answer = self._answer_of(found.body, "cache")
        except (KeyError, TypeError, ValueError):
            return None
        if answer.best is not None and answer.best["artifact"] in self._revoked:
            return None
        return self._keep_in_memory(answer, left_s, now)

    def _uncached_related(self, asked: Asked, now: float) -> list[Asked]:
        """S: what will be asked for next, and is not known. Predicted once for as long as that is
        remembered."""
        if now < asked.predicted_until:
            return []
        asked.predicted_until = now + self.rest.entry_life_s if self.rest.entry_life_s else now + LOOK_S
        try:
            predicted = [self.asked(one) for one in self.predictor.related(asked)]
        except Exception as error:  # a predictor is an extra: it never costs the job its answer
            self._tell(f"The predictor failed: {error!r}")
            return []
        wanted = {one.key: one for one in predicted if one.key != asked.key and self._cached(one) is None}
        return list(wanted.values())[:MOST_RELATED]

    def _prefetch(self, related: list[Asked]) -> None:
        """S alone, for an operator that was known."""
        wanted = [one for one in related if self._cached(one) is None]
        if wanted:
            self._fetch([], wanted, 0.0, "first")

    def _fetch(
        self, asked: Sequence[Asked], related: Sequence[Asked], wait_s: float, wait_for: str
    ) -> dict[str, Answer]:
        """One request for all of these; what came back is kept. Gives the answers of ``asked``."""
        nothing = {one.key: Answer(one.key, "miss", source="nobody") for one in asked}
        if reason := self._why_not_ask():
            return {key: replace(one, reason=reason) for key, one in nothing.items()}
        try:
            reply = self._ask(asked, related, wait_s, wait_for)
        except ServiceError as error:
            self._pause(error)
            return {key: replace(one, reason=str(error)) for key, one in nothing.items()}
        except CallerError as error:
            if self.strict:
                raise
            self._pause(error)
            return {key: replace(one, reason=str(error)) for key, one in nothing.items()}
        self._pause_s = FIRST_PAUSE_S
        self._keep(reply)
        self._counts["prefetched"] += sum(answer.hit for answer in reply.related)
        for answer in reply.answers:
            self._counts["service" if answer.hit else "miss"] += 1
        return {
            one.key: replace(answer, loader=self.load)
            for one, answer in zip(asked, reply.answers, strict=True)
        }

    def _ask(
        self, asked: Sequence[Asked], related: Sequence[Asked], wait_s: float, wait_for: str
    ) -> LookupReply:
        # What is fetched for later alone is asked for as the related ones of its first.
        first = list(asked) or list(related[:1])
        others = [] if not asked and len(related) == 1 else [one for one in related if one not in first]
        known: list[str] = []
        if self._store is not None:
            known = self._store.artifacts_at(self._place, [one.key for one in (*first, *others)])
        self._counts["requests"] += 1
        items, more = [_item(one) for one in first], [_item(one) for one in others]
        waiting: dict[str, Any] = {"accepts": self.accepts, "wait_s": wait_s, "wait_for": wait_for}
        if not self._plain:
            try:
                return self.rest.ask(items, related=more, include=INCLUDED, known=known, **waiting)
            except CallerError as error:
                if not str(error).startswith(UNKNOWN_FIELD):
                    raise
                self._plain = True  # a service from before these fields: asked without them from now on
        return self.rest.ask(items, related=more, **waiting)

    # ---- keeping ------------------------------------------------------------------------------------

    def _keep(self, reply: LookupReply) -> None:
        now = time.monotonic()
        with self._lock:
            self._revoke(reply)
            kept: dict[str, tuple[Mapping[str, Any], float]] = {}
            for answer in (*reply.answers, *reply.related):
                if answer.status not in ("hit", "miss") or answer.price is not None:
                    continue  # what costs something is agreed on each time
                life_s = answer.expires_s if answer.hit else MISS_LIFE_S
                if life_s > 0:
                    place = {"target": answer.target, "setting": answer.setting}
                    kept[answer.key] = (place | answer.to_json(), life_s)
                    self._keep_in_memory(replace(answer, source="memory", loader=self.load), life_s, now)
            if self._store is not None:
                self._store.keep(self._place, kept)
                if reply.manifests:
                    self._store.keep_manifests(reply.manifests)
                if reply.signers:
                    self._store.keep_signers(reply.signers)

    def _keep_in_memory(self, answer: Answer, life_s: float, now: float) -> RememberedAnswer:
        if len(self._entries) >= MOST_IN_MEMORY:
            self._forget()  # the machine's cache has them
        known = self._entries.get(answer.key)
        if known is not None:
            self._note_uses(known)
        entry = RememberedAnswer(answer, now + life_s, [0])
        self._entries[answer.key] = entry
        return entry

    def _note_uses(self, entry: RememberedAnswer) -> None:
        """Hand the entry's count over to the reporter."""
        uses, entry.uses[0] = entry.uses[0], 0
        if uses and entry.answer.best is not None:
            self._counts["used"] += uses
            self._reporter.add({int(entry.answer.best["implementation"]): float(uses)})

    @property
    def counts(self) -> dict[str, int]:
        """How often each source answered (``memory``, ``cache``, ``service``; ``miss``: nobody had anything),
        requests for lookups, and related operators that came along."""
        found = dict(self._counts)
        used = found.pop("used") + sum(entry.uses[0] for entry in list(self._entries.values()))
        return {"memory": used - found["cache"], **found}

    def _revoke(self, reply: LookupReply) -> None:
        new = reply.revoked - self._revoked
        if new and self._store is not None:
            self._store.revoke(new)
        if reply.all_revoked:
            self._forget()
            if self._store is not None:
                self._store.drop_all(self._place)
        self._drop(self._revoked | new)

    def _drop(self, revoked: frozenset[str]) -> None:
        self._revoked = revoked
        gone = [
            key
            for key, entry in list(self._entries.items())
            if entry.answer.best is not None and entry.answer.best["artifact"] in revoked
        ]
        for key in gone:
            if (entry := self._entries.pop(key, None)) is not None:
                self._note_uses(entry)

    def _forget(self) -> None:
        entries, self._entries = self._entries, {}
        for entry in list(entries.values()):
            self._note_uses(entry)

    def _look_around(self) -> None:
        """Once a second: what other processes of this machine were told, and whether this one was forked."""
        now = time.monotonic()
        if now < self._looked_at + LOOK_S:
            return
        self._looked_at = now
        if self._pid != os.getpid():
            self._begin_anew()
        if self._store is not None and self._store.has_changed():
            self._drop(self._revoked | self._store.revoked())
        if now > self._written_at + WRITE_S:
            self._written_at = now
            self._aside(self._report if now > self._reporter.due_at else self._write_uses)

    def _write_uses(self) -> None:
        for entry in list(self._entries.values()):
            self._note_uses(entry)
        self._reporter.keep()

    def _report(self) -> None:
        self._write_uses()
        if not self._why_not_ask() and self.snapshot is None:
            try:
                self._reporter.send_all()
            except OpatlasError as error:
                self._tell(str(error))

    def _begin_anew(self) -> None:
        """After a fork: threads stayed with the parent, and so did whoever held a lock."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._errands, self._errand_boy = queue.SimpleQueue(), None
        for entry in self._entries.values():
            entry.uses[0] = 0
        self._reporter.after_fork()
        self._watcher = Watcher(lambda asked: self._fetch(asked, [], 0.0, "first"))

    # ---- the service --------------------------------------------------------------------------------

    def _why_not_ask(self) -> str:
        if self.offline:
            return "The client is offline."
        if time.monotonic() < self._quiet_until:
            return "The service could not be asked a moment ago, and is left alone for a while."
        return ""

    def _pause(self, error: Exception) -> None:
        if self.strict:
            raise error
        self._quiet_until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._tell(str(error))

    def _tell(self, message: str) -> None:
        if not self._told:
            self._told = True
            log.warning("%s Operators run as they would without Opatlas.", message)

    def _aside(self, errand: Callable[[], None]) -> None:
        """Run it in a thread of its own that ends with the process."""
        if self._errand_boy is None or self._pid != os.getpid():
            if self._pid != os.getpid():
                self._begin_anew()
            self._errand_boy = threading.Thread(target=self._run_errands, name="opatlas-client", daemon=True)
            self._errand_boy.start()
        self._errands.put(errand)

    def _run_errands(self) -> None:
        errands = self._errands
        while (errand := errands.get()) is not None:
            try:
                errand()
            except OpatlasError as error:
                self._tell(str(error))
            except Exception:
                log.exception("What was to be fetched for later could not be.")

    # ---- what is given ------------------------------------------------------------------------------

    def _answer_of(self, body: Mapping[str, Any], source: str) -> Answer:
        answer = Answer.from_json(body, body["target"], body["setting"])
        return replace(answer, source=source, loader=self.load)

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

    def load(self, answer: Answer, places: Sequence[int] | None = None) -> KernelFunction:
        """A hit as a function of the operator's inputs; ``places`` says which of the caller's inputs each
        tensor of the operator is. Verified first (:class:`~.fetching.Refused`)."""
        return self.artifacts.load(answer, self.revoked, places)

    @cached_property
    def artifacts(self) -> ArtifactShelf:
        """Where this client has its artifacts from."""
        from opatlas.client.artifacts import ArtifactShelf

        return ArtifactShelf(self.rest, self._store, self.home, self.trust, self.snapshot, self.offline)

    def forget_everything(self) -> None:
        """Empty the machine's cache: entries, aliases, artifacts. What was revoked stays known, and so do
        uses that are not reported yet."""
        self._forget()
        self._asked.clear()
        if self._store is not None:
            self._store.clear()
        shutil.rmtree(self.home / "artifacts", ignore_errors=True)

    @property
    def store(self) -> EntryStore | None:
        return self._store

    @property
    def revoked(self) -> frozenset[str]:
        """Artifacts that must never run again, as far as this machine was told."""
        return self._revoked | self.rest.revoked


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
        client.close()


def installed(target: Target) -> dict[str, Any]:
    """What this process can load: kinds of artifacts for the target, and the libraries that it has."""
    from opatlas.load.needs import installed_version

    versions = {name: version for name in LIBRARIES if (version := installed_version(name)) is not None}
    compiled = "cuda-module" if target.kind == CUDA.name else "c-abi"
    return {"kinds": [compiled, "package", "recipe"], "versions": versions}


def _item(asked: Asked) -> dict[str, Any]:
    item: dict[str, Any] = {"key": asked.key}
    if asked.document is not None:
        item["graph"] = asked.document
    return item


def _digest_place(rest: RestClient, url: str, key: str, accepts: Mapping[str, Any] | None) -> bytes:
    """What entries are kept for beside the operator: a service and who asks it (private entries are nobody
    else's), target, setting, and what can be loaded."""
    setting = rest.setting.to_json() if rest.setting is not None else None
    secret = hashlib.sha256(key.encode()).hexdigest()
    about = [url.rstrip("/"), secret, rest.target.to_json(), setting, accepts]
    return hashlib.blake2b(canonical_json(about), digest_size=16).digest()
