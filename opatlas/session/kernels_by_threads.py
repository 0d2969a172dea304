"""The known kernels of a model: for its session's threads, and for fewer if a plan might use these."""

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
    """``own``: the kernels for the session's number of threads, already looked up; ``fused`` and
    ``otherwise`` are theirs (:class:`KnownKernels`)."""

    def __init__(
        self, client: Client, graph: ModelGraph, fused: Mapping[str, Operator], otherwise: KnownKernels | None
    ) -> None:
        self._client, self._graph = client, graph
        self.own = KnownKernels(client, graph, fused, otherwise)
        self._fewer: dict[int, KnownKernels] = {}

    def on(self, threads: int) -> KnownKernels | None:
        """Kernels for parts that run on fewer threads, if known, else those of the session's number. Unknown
        ones are explored. None if the client cannot ask."""
        if threads not in self._fewer and (client := self._client.for_threads(threads)) is not None:
            self._fewer[threads] = KnownKernels(client, self._graph, otherwise=self.own)
            try:
                self._fewer[threads].look_up()
            except OpatlasError as error:  # of a client that is strict
                log.warning("Nothing is known of kernels on %d threads: %s", threads, error)
        return self._fewer.get(threads)

    def choices_on(self, threads: int) -> Mapping[NodeAt, NodeChoice]:
        """Nodes with a kernel for exactly so many threads."""
        known = self.on(threads)
        return known.own if known is not None else {}

    @property
    def on_fewer(self) -> dict[int, list[str]]:
        """The known artifacts, by the numbers of threads that were asked for."""
        return {threads: known.artifacts for threads, known in self._fewer.items()}

    def load(self, by: ByKernel) -> FunctionKernel:
        """The implementation for a step, on the threads that it is known for."""
        every = (self.own, *self._fewer.values())
        return next((one for one in every if one.has(by)), self.own).load(by)

    def close(self) -> None:
        """Close the clients for fewer threads."""
        for known in self._fewer.values():
            known.close()
