"""Which operators a job will ask for next: predictors, behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from opatlas.client.asking import Asked


class Predictor(Protocol):
    """Says what will be asked for after an operator; quick, since the job waits for it."""

    def related(self, asked: Asked) -> Sequence[Any]:
        """Operators, their keys or their JSON, the likeliest first."""
        ...


class Nothing:
    """Predicts nothing."""

    def related(self, asked: Asked) -> Sequence[Any]:
        return ()


NOTHING = Nothing()


class RestOfModel:
    """For a job that runs a whole model: whichever of its operators is asked for, the others come next, those
    behind it first."""

    def __init__(self, operators: Sequence[Asked]) -> None:
        """``operators`` in the order in which the model runs them (``client.asked`` makes them)."""
        self._operators = list({one.key: one for one in operators}.values())
        self._numbers = {one.key: number for number, one in enumerate(self._operators)}

    def related(self, asked: Asked) -> Sequence[Any]:
        number = self._numbers.get(asked.key)
        if number is None:
            return ()
        return [*self._operators[number + 1 :], *self._operators[:number]]
