"""A job's client: answers from memory, from the machine's cache, or from the service, in this order, and what
comes next fetched along (:mod:`opatlas.client.steps`).

A job is never broken and hardly slowed by its client: a service that is dead, slow or lies makes the answer
empty, which is logged once, and is asked again only after a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked
from opatlas.client.predict.related import Nothing
from opatlas.client.steps import LookupSteps
from opatlas.identity.place.setting import default_setting


class Client(LookupSteps):
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
        not known yet. What no entry can be of (an empty batch, strings) is an empty answer with the reason.
        Raises :class:`opatlas.errors.InvalidOperator` for what is no operator: an unknown type or attribute,
        shapes that do not fit.
        """
        return self._answer(self._asked_by_a_job(operator, inputs, const, attrs), wait_s, wait_for)

    def lookup_all(
        self, operators: Sequence[Any], *, wait_s: float = 0.0, wait_for: str = "first"
    ) -> list[Answer]:
        """The same of many (each an operator, key, JSON or model), in order; what is not cached is asked for
        in one request (of 512 each)."""
        asked = [self._asked_by_a_job(one) for one in operators]
        self._look_around()
        mapped = [one for one in asked if one.unmapped is None]
        known = {one.key: self._cached(one, wait_for if wait_s else "") for one in mapped}
        missing = {one.key: one for one in mapped if known[one.key] is None}
        known |= self._fetch(list(missing.values()), [], wait_s, wait_for)
        return [
            self._answer(one, wait_s, wait_for) if found is None else self._given(one, found)
            for one in asked
            for found in [known.get(one.key)]
        ]

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

        asked = self._asked_by_a_job(operator, inputs, const, attrs)
        if (
            self.snapshot is not None or self.offline or asked.unmapped is not None
        ):  # whose answers do not change
            callback(self._answer(asked, 0.0, "first"))
            return
        if self._watcher is None:
            self._watcher = Watcher(self._look_at)
        try:
            self._watcher.add(asked, lambda: callback(self._answer(asked, 0.0, "first")))
        except RuntimeError as error:  # no further thread may be had
            self.tell(f"Nothing is waited for yet: {error}.")

    def explain(
        self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any
    ) -> Mapping[str, Any]:
        """Why a lookup of it answers what it does, as the service says: ``state``, ``sentence``,
        ``expected_s``, and the ``nearest`` known entries with the fields of the key that differ. Raises
        :class:`~.service.rest.ServiceError` where the service cannot be asked."""
        from opatlas.client.service.door import item_of

        asked = self.asked(operator, *inputs, const=const, **attrs)
        return self._service().explain(item_of(asked), self.accepts)

    def search(self, text: str, limit: int = 20) -> Mapping[str, Any]:
        """Operators that the service knows, looked for in any writing (``conv 56x56 fp16``,
        ``matmul(1000,48)``, ``route:tvm``, ``dim>=1024``, how a key begins): ``count`` and ``results``.
        Raises :class:`~.service.rest.ServiceError` where the service cannot be asked."""
        return self._service().search(text, limit)

    def handle(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Handle:
        """For an operator that is asked for again and again: nothing of it is worked out twice."""
        return Handle(self, self._asked_by_a_job(operator, inputs, const, attrs))

    def refresh(self, operators: Sequence[Any]) -> None:
        """Ask for these anew, without the caller waiting and without a use: what is better by now, and what
        was revoked, is known soon."""
        named = [self._asked_by_a_job(one) for one in operators]
        asked = [one for one in named if one.unmapped is None]
        if asked and not self.offline and self.snapshot is None:
            self.aside(lambda: self._refreshed(asked))

    def _refreshed(self, asked: Sequence[Asked]) -> None:
        self._look_at(asked)

    def for_threads(self, threads: int) -> Client | None:
        """Another client of the same service, login, job and cache, for this one's setting with so many
        threads; who makes it closes it. None where there can be none: a snapshot is of one setting, and what
        may be spent is counted by one client."""
        if self.snapshot is not None or self._agreed is not None:
            return None
        setting = replace(self.setting or default_setting(self.target), threads=threads)
        return Client(
            **self._address, target=self.target, setting=setting, accepts=self.accepts,
            cache=self.home if self.store is not None else False, sidecar=self._sidecar or False,
            offline=self.offline, trust=self.trust, predictor=Nothing(), neighbours=bool(self._neighbours),
            strict=self._strict,
        )  # fmt: skip

    def forget_everything(self) -> None:
        """Empty the machine's cache: entries, aliases, artifacts. What was revoked stays known, and so do
        uses that are not reported yet."""
        import shutil

        self._memory.forget()
        self._names.forget()
        if self.store is not None:
            self.store.clear()
        shutil.rmtree(self.home / "artifacts", ignore_errors=True)


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
