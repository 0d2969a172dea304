"""The catalogue's kernels for a model's operators on so many threads, looked up and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opatlas.client.answer import Answer
from opatlas.client.client import Client
from opatlas.client.loading.failing import FailureWatch
from opatlas.client.loading.function import KernelFunction
from opatlas.errors import LoadError
from opatlas.graph.linked import NodeAt
from opatlas.graph.normal import ModelGraph
from opatlas.identity.operator import Operator
from opatlas.load.c_abi import KernelCode
from opatlas.load.kernel import LoadedKernel
from opatlas.plan.making import NodeChoice
from opatlas.plan.plan import KERNEL_KINDS, ByKernel


class KnownKernels:
    """What ``client`` learns about the model's operators; its setting has the number of threads. ``own``:
    kernels that it already knows. ``fused``: operators of several nodes by key, looked up in the same
    request. ``otherwise``: kernels for more threads, used if none is known: they run on fewer as well."""

    def __init__(
        self,
        client: Client,
        graph: ModelGraph,
        fused: Mapping[str, Operator] | None = None,
        otherwise: KnownKernels | None = None,
    ) -> None:
        self._client, self._graph = client, graph
        self._fused, self._otherwise = fused or {}, otherwise
        self._answers: dict[str, Answer] = {}
        self.own: dict[NodeAt, NodeChoice] = {}

    @property
    def choices(self) -> dict[NodeAt, NodeChoice]:
        """For every node that is an operator, bodies included: its known kernel, if that can run in a
        model."""
        return {**(self._otherwise.choices if self._otherwise is not None else {}), **self.own}

    def look_up(self) -> None:
        """Look all operators up in one request; unknown ones are explored."""
        found = self._graph.operators()
        operators = {canonical.operator.key: canonical.operator for canonical, _ in found.values()}
        answers = self._client.lookup_all(list({**operators, **self._fused}.values()))
        self._answers = {answer.key: answer for answer in answers if _runs_here(answer)}
        self.own = {}
        for number, (canonical, tensors) in found.items():
            if (choice := self.choice(canonical.operator.key, tensors)) is not None:
                self.own[number] = choice

    def choice(
        self, operator: str, tensors: tuple[int, ...], fused: tuple[int, ...] = ()
    ) -> NodeChoice | None:
        """The kernel that the last lookup gave for an operator's key, over these values of the model;
        ``fused``: the nodes that form the operator."""
        answer = self._answers.get(operator)
        if answer is None or answer.best is None:
            return None
        best = answer.best
        by = ByKernel(answer.key, best["artifact"], tensors, f"{best['route']} {best['label']}")
        return NodeChoice(by, best["median_us"], fused=fused)

    @property
    def count(self) -> int:
        """The number of operators with a kernel, without those for more threads."""
        return len(self._answers)

    @property
    def artifacts(self) -> list[str]:
        """The artifacts of :attr:`choices`, each once."""
        return sorted({one.by.artifact for one in self.choices.values()})

    def has(self, by: ByKernel) -> bool:
        answer = self._answers.get(by.operator)
        mine = answer is not None and answer.best is not None and answer.best["artifact"] == by.artifact
        return mine or (self._otherwise is not None and self._otherwise.has(by))

    def load(self, by: ByKernel) -> FunctionKernel:
        """The implementation for a step, as the client verified it."""
        answer = self._answers.get(by.operator)
        if answer is not None and answer.best is not None and answer.best["artifact"] == by.artifact:
            return FunctionKernel(self._client.load(answer))
        if self._otherwise is None:
            raise LoadError("a lookup does not give this implementation now")
        return self._otherwise.load(by)

    def close(self) -> None:
        """Close the client."""
        self._client.close()


class FunctionKernel:
    """A client's function as a step of a plan. If it fails, the operator's default runs and the failure is
    reported."""

    binds_outputs = True

    def __init__(self, function: KernelFunction) -> None:
        self._function = function
        self.operator = function.operator

    def prepare(self, constants: Mapping[int, np.ndarray]) -> None:
        if constants:
            self._function.prepare(constants)

    def bind(self, inputs: Mapping[int, np.ndarray], outputs: Sequence[np.ndarray] | None = None) -> Any:
        numbers = self._function.operator.runtime_inputs
        return self._function.bind([inputs[number] for number in numbers], outputs)

    def code(self) -> KernelCode:
        """See :meth:`opatlas.client.loading.function.KernelFunction.code`."""
        return self._function.code()

    @property
    def watch(self) -> FailureWatch | None:
        return self._function.watch

    @property
    def compiled(self) -> LoadedKernel:
        """The function's loaded kernel."""
        return self._function.kernel

    def blame(self, message: str) -> None:
        """Report and remember that it gives other values than ONNX Runtime."""
        self._function.blame(message)

    def close(self) -> None:
        self._function.close()


def _runs_here(answer: Answer) -> bool:
    return (
        answer.best is not None and answer.best.get("kind") in KERNEL_KINDS and answer.from_neighbour is None
    )
