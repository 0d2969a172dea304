"""RNN, GRU and LSTM as ONNX defines them: directions, lengths, clipping, peepholes and every activation.

``clip`` bounds what gates are computed from. The cell's state is not bounded on its way into h: ONNX's text
can be read either way, and so does ONNX Runtime.

Tensors are [time, batch, …] (a node with ``layout`` 1 was given other axes when it was read); a length's
steps are taken from the sequence's first ones, and what lies behind is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from tuning.measure.judging.definitions.loss import Loss

Array = np.ndarray
Activation = Callable[[Array], Array]


def _sigmoid(x: Array) -> Array:
    positive = np.exp(-np.abs(x))
    made: Array = np.where(x >= 0, 1.0, positive) / (1.0 + positive)
    return made


_DEFAULTS = {
    "Affine": (1.0, 0.0),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "ScaledTanh": (1.0, 1.0),
    "ThresholdedRelu": (1.0,),
}
"""Alpha and beta of those that have them."""
_ABOUT_ONE = frozenset({"Elu", "HardSigmoid", "ScaledTanh", "Sigmoid", "Softplus", "Tanh"})
"""They are defined by way of numbers about one, however small they are themselves: a tanh by exponentials."""

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
    "LeakyRelu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "Relu": lambda x: np.maximum(x, 0.0),
    "ScaledTanh": lambda x, alpha, beta: alpha * np.tanh(beta * x),
    "Sigmoid": _sigmoid,
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x, alpha: np.where(x >= alpha, x, 0.0),
}


class _Recurrent(OpRun):
    """What the three have in common; ``gates`` of a step, and the cell's :meth:`step`."""

    op_domain = ""
    gates = 1
    loss: Loss

    def step(self, own: _Weights, projected: Array, size: Array, states: list[Array]) -> list[Array]:
        raise NotImplementedError

    def _go(self, x: Array, inputs: list[Array | None], attributes: dict[str, Any]) -> tuple[Array, ...]:
        """``inputs``: W, R, B, lengths, then the initial states, then the peepholes; None where left out."""
        weights, recurrence, bias, lengths, *rest = inputs
        assert weights is not None and recurrence is not None
        steps, batch = x.shape[:2]
        lasting = np.full(batch, steps) if lengths is None else lengths
        outcomes = []
        for number, backwards in enumerate(_directions(attributes["direction"])):
            own = _Weights(self, number, weights, recurrence, bias, rest[-1], attributes)
            states = [
                np.zeros((batch, own.hidden)) if given is None else given[number] for given in rest[:-1]
            ]
            outcomes.append(self._one_way(own, x, lasting, states, backwards))
        sequences, *finals = zip(*outcomes, strict=True)
        made = (np.stack(sequences, axis=1), *(np.stack(final) for final in finals))
        return made[: len(self.onnx_node.output)]

    def _one_way(
        self, own: _Weights, x: Array, lasting: Array, states: list[Array], backwards: bool
    ) -> tuple[Array, ...]:
        x = _turned(x, lasting) if backwards else x
        projected = x @ own.weights.T + own.bias
        sizes = _lengths_of(x)[..., None] * own.weight_norms + np.abs(own.bias)
        made = np.zeros((*x.shape[:2], own.hidden))
        for time in range(len(x)):
            alive = (time < lasting)[:, None]
            after = self.step(own, projected[time], sizes[time], states)
            states = [np.where(alive, new, old) for new, old in zip(after, states, strict=True)]
            made[time] = np.where(alive, states[0], 0.0)
        return (_turned(made, lasting) if backwards else made, *states)


class _Weights:
    """One direction's: what multiplies, what is added, what is applied."""

    def __init__(
        self,
        cell: _Recurrent,
        number: int,
        weights: Array,
        recurrence: Array,
        bias: Array | None,
        peepholes: Array | None,
        attributes: dict[str, Any],
    ) -> None:
        self.loss, self.attributes = cell.loss, attributes
        self.hidden = recurrence.shape[-1]
        self.weights, self.recurrence = weights[number], recurrence[number]
        halves = np.zeros((2, cell.gates * self.hidden)) if bias is None else bias[number].reshape(2, -1)
        self.bias, self.recurrent_bias = halves
        self.weight_norms, self.recurrence_norms = _lengths_of(self.weights), _lengths_of(self.recurrence)
        self.peepholes = np.zeros(3 * self.hidden) if peepholes is None else peepholes[number]
        count = len(attributes["activations"]) // weights.shape[0]
        every = list(_activations(attributes))
        self.activations = every[number * count : (number + 1) * count]
        self._clip = attributes.get("clip")

    def recurrent(self, state: Array, rows: slice = slice(None)) -> tuple[Array, Array]:
        """State × recurrence + bias of these rows, and how large the terms are."""
        bias = self.recurrent_bias[rows]
        size = _lengths_of(state)[:, None] * self.recurrence_norms[rows] + np.abs(bias)
        return state @ self.recurrence[rows].T + bias, size

    def activate(self, which: int, total: Array, size: Array) -> Array:
        """An activation of a sum whose terms are so large."""
        name, function = self.activations[which]
        total = self.loss.of_sum(total, np.maximum(size, np.abs(total)))
        if self._clip:
            total = np.clip(total, -self._clip, self._clip)
        return self.loss.of_function(function(total), 1.0 if name in _ABOUT_ONE else 0.0)


def _activations(attributes: dict[str, Any]) -> Iterator[tuple[str, Activation]]:
    """Alphas and betas are consumed in order, by those activations that have them."""
    alphas = iter(attributes.get("activation_alpha") or ())
    betas = iter(attributes.get("activation_beta") or ())
    for name in attributes["activations"]:
        defaults = _DEFAULTS.get(name, ())
        numbers = [
            float(next(given, default)) for given, default in zip((alphas, betas), defaults, strict=False)
        ]
        yield name, partial(_by, _FUNCTIONS[name], numbers)


def _by(function: Callable[..., Array], numbers: Sequence[float], x: Array) -> Array:
    return function(x, *numbers)


def _directions(word: str) -> tuple[bool, ...]:
    return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[word]


def _turned(x: Array, lasting: Array) -> Array:
    """Each sequence's own steps from the last to the first; what lies behind stays where it is."""
    times = np.arange(len(x))[:, None]
    places = np.where(times < lasting, lasting - 1 - times, times)
    return x[places, np.arange(x.shape[1])]


def _lengths_of(rows: Array) -> Array:
    made: Array = np.sqrt(np.einsum("...i,...i->...", rows, rows))
    return made


class RNN(_Recurrent):
    """H' = f(X·W + H·R + biases)."""

    def step(self, own: _Weights, projected: Array, size: Array, states: list[Array]) -> list[Array]:
        total, more = own.recurrent(states[0])
        return [own.activate(0, projected + total, size + more)]

    def _run(self, x, w, r, b=None, lengths=None, h=None, **attributes):
        return self._go(x, [w, r, b, lengths, h, None], attributes)


class GRU(_Recurrent):
    """Gates z, r, h."""

    gates = 3

    def step(self, own: _Weights, projected: Array, size: Array, states: list[Array]) -> list[Array]:
        [state] = states
        two, last = slice(0, 2 * own.hidden), slice(2 * own.hidden, None)
        total, more = own.recurrent(state, two)
        both = own.activate(0, projected[:, two] + total, size[:, two] + more)
        update, reset = np.split(both, 2, axis=1)
        if own.attributes["linear_before_reset"]:
            total, more = own.recurrent(state, last)
            total, more = reset * total, reset * more
        else:
            total, more = own.recurrent(reset * state, last)
        new = own.activate(1, projected[:, last] + total, size[:, last] + more)
        made = (1 - update) * new + update * state
        # One minus z is rounded beside one.
        terms = np.abs(new) * (1 + np.abs(update)) + np.abs(update * state)
        return [own.loss.of_step(made, terms)]

    def _run(self, x, w, r, b=None, lengths=None, h=None, **attributes):
        return self._go(x, [w, r, b, lengths, h, None], attributes)


class LSTM(_Recurrent):
    """Gates i, o, f, c; peepholes of i, o and f."""

    gates = 4

    def step(self, own: _Weights, projected: Array, size: Array, states: list[Array]) -> list[Array]:
        state, cell = states
        more, larger = own.recurrent(state)
        totals, sizes = np.split(projected + more, 4, axis=1), np.split(size + larger, 4, axis=1)
        peep_in, peep_out, peep_forget = np.split(own.peepholes, 3)

        def gate(which: int, peep: Array, seen: Array) -> Array:
            return own.activate(0, totals[which] + peep * seen, sizes[which] + np.abs(peep * seen))

        entering = gate(0, peep_in, cell)
        kept = 1 - entering if own.attributes["input_forget"] else gate(2, peep_forget, cell)
        new = own.activate(1, totals[3], sizes[3])
        after = kept * cell + entering * new
        after = own.loss.of_step(after, np.abs(kept * cell) + np.abs(entering * new))
        leaving = gate(1, peep_out, after)
        name, function = own.activations[2]
        shown = own.loss.of_function(function(after), 1.0 if name in _ABOUT_ONE else 0.0)
        return [own.loss.of_step(leaving * shown, np.abs(leaving * shown)), after]

    def _run(
        self,
        x,
        w,
        r,
        b=None,
        lengths=None,
        h=None,
        c=None,
        p=None,
        **attributes,
    ):
        return self._go(x, [w, r, b, lengths, h, c, p], attributes)


OPERATORS = (RNN, GRU, LSTM)
