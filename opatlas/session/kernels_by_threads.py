"""What is known of a model's kernels: on its session's threads, and on fewer once a plan might use these."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from opatlas.client.client import Client
from opatlas.errors import OpatlasError
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity.operator import Operator
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import ByKernel
from opatlas.session.known_kernels import FunctionKernel, KnownKernels

log = logging.getLogger("opatlas")


class KernelsByThreads:
    """``own``: of the session's number of threads, looked up by who makes this; ``fused`` and ``otherwise``
    are theirs (:class:`KnownKernels`)."""

    def __init__(
        self, client: Client, graph: ModelGraph, fused: Mapping[str, Operator], otherwise: KnownKernels | None
    ) -> None:
        self._client, self._graph = client, graph
        self.own = KnownKernels(client, graph, fused, otherwise)
        self._fewer: dict[int, KnownKernels] = {}

    def on(self, threads: int) -> KnownKernels | None:
        """For what runs beside others on fewer threads, as far as that is known, else by kernels of the
        session's own number; what is not known is explored. None where the client cannot ask for it."""
        if threads not in self._fewer and (client := self._client.for_threads(threads)) is not None:
            self._fewer[threads] = KnownKernels(client, self._graph, otherwise=self.own)
            try:
                self._fewer[threads].look_up()
            except OpatlasError as error:  # of a client that is strict
                log.warning("Nothing is known of kernels on %d threads: %s", threads, error)
        return self._fewer.get(threads)

    def choices_on(self, threads: int) -> Mapping[NodeAt, NodeChoice]:
        """Of nodes for which a kernel of just so many threads is known."""
        known = self.on(threads)
        return known.own if known is not None else {}

    @property
    def on_fewer(self) -> dict[int, list[str]]:
        """By the numbers of threads that were asked for: the artifacts that are known there."""
        return {threads: known.artifacts for threads, known in self._fewer.items()}

    def load(self, by: ByKernel) -> FunctionKernel:
        """The implementation that a step names, on the threads that it is known for."""
        every = (self.own, *self._fewer.values())
        return next((one for one in every if one.has(by)), self.own).load(by)

    def close(self) -> None:
        """Let go of the clients for fewer threads."""
        for known in self._fewer.values():
            known.close()
