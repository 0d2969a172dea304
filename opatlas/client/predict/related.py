"""Which operators a job will ask for next: predictors, behind one interface."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Protocol

from opatlas.client.asking import Asked


class Predictor(Protocol):
    """Predicts what will be asked for after an operator. It runs in a thread beside the job. If its
    ``asks_service`` is true, each request for uncached operators also brings what jobs asked next.
    ``begin(client)``, if it has one, is called by its client."""

    def related(self, asked: Asked) -> Sequence[Any]:
        """Operators, their keys or their JSON, the likeliest first."""
        ...


class Nothing:
    """Predicts nothing."""

    asks_service = False

    def related(self, asked: Asked) -> Sequence[Any]:
        return ()


class AskedNext(Nothing):
    """What the organisation's earlier jobs asked next: the service sends it along with answers."""

    asks_service = True


class RestOfModel:
    """For a job that runs a whole model: whenever one of its operators is asked for, the others come next,
    beginning with those behind it."""

    def __init__(self, operators: Sequence[Asked]) -> None:
        """``operators`` in the order in which the model runs them (``client.asked`` makes them)."""
        self._operators = list({one.key: one for one in operators}.values())
        self._numbers = {one.key: number for number, one in enumerate(self._operators)}

    @classmethod
    def of_model(cls, client: Any, model: Any, dims: Mapping[str, int] | None = None) -> RestOfModel:
        """From an ONNX model: its file or bytes, and sizes of symbolic dimensions. Imports ONNX; raises
        :class:`opatlas.errors.InvalidModel`."""
        from opatlas.graph.given_model import operators_of

        return cls([client.asked(operator) for operator in operators_of(model, dims)])

    def related(self, asked: Asked) -> Sequence[Any]:
        number = self._numbers.get(asked.key)
        if number is None:
            return ()
        return [*self._operators[number + 1 :], *self._operators[:number]]


class Together:
    """Several predictors as one: their likeliest operators in turns. One that fails is ignored."""

    def __init__(self, *predictors: Predictor) -> None:
        self.predictors = predictors

    @property
    def asks_service(self) -> bool:
        return any(getattr(one, "asks_service", False) for one in self.predictors)

    def begin(self, client: Any) -> None:
        for one in self.predictors:
            begin(one, client)

    def related(self, asked: Asked) -> Sequence[Any]:
        turns = zip_longest(*(list(_said(one, asked)) for one in self.predictors))
        return [one for turn in turns for one in turn if one is not None]


def begin(predictor: Predictor, client: Any) -> None:
    """Tell a predictor its client, if it has ``begin``."""
    if (told := getattr(predictor, "begin", None)) is not None:
        told(client)


def _said(predictor: Predictor, asked: Asked) -> Iterator[Any]:
    try:
        yield from predictor.related(asked)
    except Exception:  # the others go on; alone it would be told of
        return
