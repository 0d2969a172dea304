"""A job's client: it answers from memory, from the machine's cache, or from the service, in this order, and
fetches what comes next along (:mod:`opatlas.client.steps`).

It never breaks a job and hardly slows it: if a service is down, slow or wrong, answers are empty. That is
logged once, and the service is asked again after a while.
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
    """A job's access to the catalogue: ``client.lookup("MatMul", x, w)``.

    ``url`` and ``key`` default to ``OPATLAS_URL`` and ``OPATLAS_KEY``, then to those of ``opatlas login``;
    the target is this machine, the setting all of its cores. ``job`` names the run; all of its processes
    count as one. ``accepts``: what the job can load (``{"kinds": ["c-abi"]}``; default: everything
    installed). ``cache``: the folder of the machine's cache, False for none. ``sidecar``: a sidecar's socket
    (default: ``OPATLAS_SIDECAR``; False for none), asked instead of the service if it has the same login, or
    this client has none. ``offline``: never ask, and use expired entries. ``trust``: whose signatures are
    valid (default: the service's list). ``snapshot``: use its choices, and ask nobody
    (:mod:`opatlas.client.snapshot`). ``predictor`` predicts the job's next lookups
    (:mod:`opatlas.client.predict.related`; default: what earlier jobs asked). ``neighbours``: on a CPU that
    no worker explores for, use results of one that differs only in cores and cache sizes
    (``answer.from_neighbour``). ``strict``: raise if the service cannot be asked or refuses; otherwise the
    answer is empty, logged once. ``spend_limit`` (``"2.50 EUR"``): what this job, which must be named, may
    spend in all; charged answers are then cached like others, and each use is paid. Safe in threads and after
    a fork. ``timeout_s``: the most that a request may take beyond ``wait_s``.
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

        ``operator``: an ONNX operator type, with ``inputs`` (arrays, tensors, or shapes like ``(64, 256)`` or
        ``((64, 256), "float16")``), ``attrs`` and ``const`` (numbers of the inputs that are weights); or an
        :class:`opatlas.identity.Operator`, its key, its JSON, or an ONNX model. ``wait_s``: wait for an
        unknown one. Inputs for which there can be no entry (an empty batch, strings) give an empty answer
        with the reason. Raises :class:`opatlas.errors.InvalidOperator` for anything that is no operator: an
        unknown type or attribute, shapes that do not fit.
        """
        return self._answer(self._asked_by_a_job(operator, inputs, const, attrs), wait_s, wait_for)

    def lookup_all(
        self, operators: Sequence[Any], *, wait_s: float = 0.0, wait_for: str = "first"
    ) -> list[Answer]:
        """The same for many (each an operator, key, JSON or model), in order; uncached ones are asked for in
        one request (of up to 512)."""
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
        """Call ``callback`` with the answer once exploring has ended (``answer.load()`` gives the
        implementation), from a thread of the client. One request asks for all that is awaited, every second
        at first, and half as often each time nothing has changed."""
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
        """Why a lookup of it gives its answer, according to the service: ``state``, ``sentence``,
        ``expected_s``, and the ``nearest`` known entries with the fields of the key that differ. Raises
        :class:`~.service.rest.ServiceError` if the service cannot be asked."""
        from opatlas.client.service.door import item_of

        asked = self.asked(operator, *inputs, const=const, **attrs)
        return self._service().explain(item_of(asked), self.accepts)

    def search(self, text: str, limit: int = 20) -> Mapping[str, Any]:
        """Operators that the service knows, searched for in any notation (``conv 56x56 fp16``,
        ``matmul(1000,48)``, ``route:tvm``, ``dim>=1024``, the beginning of a key): ``count`` and ``results``.
        Raises :class:`~.service.rest.ServiceError` if the service cannot be asked."""
        return self._service().search(text, limit)

    def handle(self, operator: Any, *inputs: Any, const: Sequence[int] = (), **attrs: Any) -> Handle:
        """For an operator that is looked up often: everything about it is computed once."""
        return Handle(self, self._asked_by_a_job(operator, inputs, const, attrs))

    def refresh(self, operators: Sequence[Any]) -> None:
        """Ask for these again, without delaying the caller and without counting a use: improvements and
        revocations are known soon."""
        named = [self._asked_by_a_job(one) for one in operators]
        asked = [one for one in named if one.unmapped is None]
        if asked and not self.offline and self.snapshot is None:
            self.aside(lambda: self._refreshed(asked))

    def _refreshed(self, asked: Sequence[Asked]) -> None:
        self._look_at(asked)

    def for_threads(self, threads: int) -> Client | None:
        """Another client for the same service, login, job and cache, with this one's setting on so many
        threads; its maker closes it. None for a snapshot, which has one setting, and with a spend limit,
        which one client counts."""
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
        """Empty the machine's cache: entries, aliases, artifacts. Revocations and unreported uses stay."""
        import shutil

        self._memory.forget()
        self._names.forget()
        if self.store is not None:
            self.store.clear()
        shutil.rmtree(self.home / "artifacts", ignore_errors=True)


class Handle:
    """An operator of a client, for frequent lookups: ``handle()``."""

    __slots__ = ("_asked", "_client")

    def __init__(self, client: Client, asked: Asked) -> None:
        self._client, self._asked = client, asked

    @property
    def key(self) -> str:
        return self._asked.key

    def __call__(self, *, wait_s: float = 0.0, wait_for: str = "first") -> Answer:
        return self._client._answer(self._asked, wait_s, wait_for)
