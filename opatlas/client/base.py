"""The base of a client: its service and login, its caches and threads, and its counts of uses. It starts anew
in each process, and reports uses at the end."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from opatlas.client.answer import Answer
from opatlas.client.cache.memory import AnswerMemory
from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.client.errands import ErrandThread
from opatlas.client.machine import installed, this_machine
from opatlas.client.naming import OperatorNames
from opatlas.client.predict.related import AskedNext, Predictor, begin
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
"""How often uses are written down: a killed process loses at most these."""
LAST_REPORTS_S = 5.0
"""The time that closing may spend on reporting uses; the next process reports the rest."""
NEIGHBOURS = ("neighbours", "neighbour_defaults")
"""Words of a lookup's ``include`` that ask for other machines' entries."""


class ClientBase:
    """All of :class:`opatlas.client.Client` but its answers."""

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
        """Keep and find only what this login was told from now on: private entries are nobody else's."""
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
        """Without a key, a client has the login of the running sidecar."""
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

    def _check_place(self, snapshot: Snapshot) -> None:
        target, setting = snapshot.place
        if target != self.target.key:
            raise CallerError(f"The snapshot is for the target {target}, not for {self.target.key}.")
        if self.setting is not None and setting != self.setting.key:
            raise CallerError(f"The snapshot is for the setting {setting}, not for {self.setting.key}.")

    def _begin(self) -> None:
        """The state of one process."""
        self._counts = dict.fromkeys(("used", "cache", "service", "miss", "prefetches"), 0)
        self._missed: dict[str, int] = {}  # by operator: answered empty without asking, not handed over yet
        self._reported: dict[str, int] = {}  # sums that the reporter has
        self._starting, self._counting, self._noting = (threading.Lock() for _ in range(3))
        self._errands = ErrandThread(self.tell)
        self._watcher: Watcher | None = None
        self._predictions: PredictionThread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish fetching, report uses, and release files and connections."""
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

    def _service(self) -> RestClient:
        """For calls that only the service can answer; raises ServiceError for a client that asks nobody."""
        from opatlas.client.service.rest import ServiceError

        if self.offline or self.snapshot is not None:
            raise ServiceError("The client asks nobody: it is offline, or has a snapshot.")
        return self.rest

    @cached_property
    def rest(self) -> RestClient:
        """The REST calls, made when they are first needed: importing them takes longer than a hit."""
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
        """Predicts which operators come next; may be replaced at any time."""
        return self._predictor

    @predictor.setter
    def predictor(self, predictor: Predictor) -> None:
        self._predictor = predictor
        begin(predictor, self)
        if "_door" in self.__dict__:
            self._door.asks_next = getattr(predictor, "asks_service", False)

    def tell(self, message: str) -> None:
        """Log a message, once in a client's life."""
        if not self._told:
            self._told = True
            log.warning("%s Operators run as they would without Opatlas.", message)

    def __del__(self) -> None:
        """A client that was not closed: its uses are written down for the next one."""
        with contextlib.suppress(Exception):
            self._write_uses()

    def load(self, answer: Answer, places: Sequence[int] | None = None) -> KernelFunction:
        """A hit as a function of the operator's inputs. ``places``: which of the caller's inputs is each
        tensor of the operator. It is verified first (:class:`~.loading.fetching.Refused`); raises
        :class:`opatlas.errors.OpatlasError` if it cannot be had."""
        return self.artifacts.load(answer, self.revoked, places)

    @cached_property
    def artifacts(self) -> ArtifactShelf:
        """Where this client gets its artifacts."""
        from opatlas.client.loading.artifacts import ArtifactShelf

        asks_nobody = self.offline or self.snapshot is not None
        return ArtifactShelf(
            self.rest, self.store, self.home, self.trust, self.snapshot, asks_nobody, self._report_failure
        )

    @property
    def revoked(self) -> frozenset[str]:
        """Artifacts that must never run again, as far as this machine knows."""
        self._memory.look_around()
        return self._memory.revoked

    # ---- what was used ------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """How often each source answered (``memory``, ``cache``, ``service``; ``miss``: none), requests for
        lookups, related operators that came along, and how many of those were used (``prefetched_used``:
        counted every few seconds)."""
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

    def _note_missed(self, key: str) -> None:
        """One lookup was answered empty without asking the service, which learns of it by a report."""
        with self._noting:
            self._counts["miss"] += 1
            self._missed[key] = self._missed.get(key, 0) + 1

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
        """Report that an implementation failed here, without delaying the job."""
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
        """Run it in a separate thread that ends with the process."""
        self._errands.put(errand)

    def _after_fork(self) -> None:
        """Threads, holders of locks and uncounted uses stayed with the parent."""
        self._begin()
        self._memory.begin_anew()
        self._reporter.begin()


_open: weakref.WeakSet[ClientBase] = weakref.WeakSet()


@atexit.register
def _report_what_was_used() -> None:
    """For clients that nobody closed."""
    for client in list(_open):
        try:
            client.close()
        except Exception:
            log.exception("A client could not be closed.")


def _after_fork() -> None:
    for client in list(_open):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)
