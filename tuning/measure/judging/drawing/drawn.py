"""One input of a set that holds all kinds: by its role, its element type, and what is legal there."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from opatlas.identity import Operator, Value
from opatlas.identity.operator_types import TYPES
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.drawing.dealing import Hand, spread_rows
from tuning.measure.judging.drawing.roles import CONSTANT, ROLES, WEIGHTS_REACH, Layout, layout_of
from tuning.measure.judging.strata import OF_ARGUMENT, Strata, spread_elements, strata_of
from tuning.measure.shared_tensors import span

_NEAR_REACH = 3
"""Of types with little range, and of chains: one operand hides no other, and a softmax has more than one."""
_SHARPER = np.array([1, 1, 4, 32], np.float32)
"""What queries are multiplied by: scores of a hundred, whose exponentials are infinite."""
_LEAST = 2.0**-10
"""Of what has to be positive."""
_BEYOND = 1.37
"""Of an image that reaches from −1 to 1: there its padding is, and no place lies midway between two."""
_USUAL_STEPS, _COARSE, _FINE = (0.01, 0.05), (-3, 3), (-20, -10)
"""Of a quantisation: the steps, and exponents of others."""


def draw_all_kinds(
    operator: Operator, number: int, domain: Domain, hand: Hand, *, constant: bool = False
) -> np.ndarray:
    """The flat elements behind one floating input, gaps of its strides included. ``constant``: it is timed,
    so that nothing in it is denormal or infinite."""
    value, layout = operator.inputs[number], layout_of(operator, number)
    dtype = numpy_dtype(value.dtype)
    draw = _Draw(number, layout, dtype, hand, is_mild(operator), constant)
    cast_to = _cast_to(operator)
    strata = strata_of(operator, number) if layout.role.by_element else None
    if domain.kind == "scale":
        made = _steps(prod(value.shape), hand, usual=draw.mild)
    elif cast_to is not None and not constant:
        made = _fractions(prod(value.shape), cast_to, hand.rng)
    elif strata is not None and not constant and _has_strata(operator, domain):
        made = _by_element(draw, strata)[: prod(value.shape)]
    else:
        made = legal(draw.rows(layout.shape).reshape(-1)[: prod(value.shape)], domain, constant=constant)
        if strata is not None and constant:
            made = _within(made, strata)
    if layout.role is ROLES["scores"] and number == layout.node.inputs[0] and not draw.mild:
        lines = hand.rng.choice(_SHARPER, prod(value.shape[:-1]))
        made = made * np.repeat(lines, value.shape[-1])
    if domain.kind == "between" and cast_to is None:
        made = np.clip(made, domain.bounds[0], domain.bounds[1])
    limit = _largest(dtype)
    made = np.where(np.isfinite(made), np.clip(made, -limit, limit), made)
    return behind(value, made.reshape(value.shape).astype(dtype))


def _has_strata(operator: Operator, domain: Domain) -> bool:
    """Whether what is legal is known element by element."""
    if domain.kind in ("free", "weight", "between"):
        return True
    return len(operator.nodes) == 1 and operator.nodes[0].op in OF_ARGUMENT


def behind(value: Value, dense: np.ndarray) -> np.ndarray:
    """The span that a tensor lies in; others of its values lie in the gaps."""
    if value.strides is None or dense.size == 0:
        return dense.reshape(-1)
    flat: np.ndarray = np.resize(dense, span(value.shape, value.strides))
    steps = [stride * flat.itemsize for stride in value.strides]
    np.lib.stride_tricks.as_strided(flat, value.shape, steps)[...] = dense
    return flat


def is_mild(operator: Operator) -> bool:
    """Whether several nodes, or one that nobody wrote down, come after each other: what is far from one may
    overflow there."""
    return len(operator.nodes) > 1 or any(op not in TYPES for op in operator.op_types)


@dataclass(frozen=True)
class _Draw:
    """Of one input."""

    number: int
    layout: Layout
    dtype: np.dtype
    hand: Hand
    mild: bool
    constant: bool

    @property
    def wide(self) -> type[np.floating]:
        return np.float64 if self.dtype == np.float64 else np.float32

    def rows(self, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor of this shape, whose rows lie as the input's do."""
        role, apart, hand = self.layout.role, self.layout.apart, self.hand
        near = self.mild or self.dtype.itemsize < 4
        kinds = self._kinds()
        reach = min(role.reach, _NEAR_REACH) if near else role.reach
        count = prod(shape[axis] for axis in apart)
        whole = not self.constant and hand.whole and count > 1
        made, dealt = spread_rows(
            shape,
            apart,
            hand.next(self.number, kinds, count, whole=whole),
            hand.rng,
            wide=self.wide,
            reach=min(reach, WEIGHTS_REACH) if self.constant else reach,
            calm=role.calm or self.mild,
            narrow=near,
            sized=role.added and hand.third and not self.constant,
        )
        if not self.layout.in_blocks:
            hand.dealt[self.number] = apart, dealt
        return made

    def _kinds(self) -> tuple[str, ...]:
        left_out: set[str] = set()
        if self.mild:
            left_out |= {"tiny", "infinite"}
        if self.mild and self.layout.role is not ROLES["mask"]:
            left_out |= {"masked"}
        if self.dtype.itemsize == 1:
            left_out |= {"infinite"}  # some have none
        kept = [name for name in self.layout.role.kinds if name not in left_out]
        return tuple(name for name in kept if not self.constant or name in CONSTANT) or ("normal",)


def _by_element(draw: _Draw, strata: Strata) -> np.ndarray:
    """Each element of its own stratum; some blocks of a kind, where the function is defined on it."""
    rng, (many, length) = draw.hand.rng, draw.layout.shape
    chosen = rng.integers(0, 2, many, np.uint8) > 0
    of_kinds = int(np.count_nonzero(chosen))
    made: np.ndarray = np.empty((many, length), draw.wide)
    made[~chosen] = spread_elements(strata, draw.dtype, (many - of_kinds) * length, rng).reshape(-1, length)
    if of_kinds:
        made[chosen] = _within(draw.rows((of_kinds, length)), strata)
    return made.reshape(-1)


def _within(made: np.ndarray, strata: Strata) -> np.ndarray:
    """Brought to where the function is defined."""
    most = min(2.0**strata.most, max(abs(strata.low), abs(strata.high)) * 64)
    if strata.most < 0:
        most = max(abs(strata.low), abs(strata.high))
    if strata.signs == (1,):
        made = np.maximum(np.abs(made), strata.low if strata.least > 0 else _LEAST)
    if not strata.zero:
        made = np.where(np.abs(made) < _LEAST, made.dtype.type(1), made)
    return np.clip(made, -most, most)


def _cast_to(operator: Operator) -> np.dtype | None:
    """The type of whole numbers that fractions become, where that is all that happens."""
    if len(operator.nodes) != 1 or operator.nodes[0].op != "Cast":
        return None
    made = numpy_dtype(operator.output_values[0].dtype)
    return made if made.kind in "iu" else None


def _fractions(count: int, dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    """Of all sizes that the type has, short of its ends: beyond, every machine does as it likes."""
    bits = 8 * dtype.itemsize - (dtype.kind == "i")
    made = np.exp2(rng.uniform(-4, bits - 0.01, count))
    if dtype.kind == "i":
        made *= rng.choice([-1.0, 1.0], count)
    return made


def _steps(count: int, hand: Hand, *, usual: bool) -> np.ndarray:
    """Of a quantisation: usual ones in each second set, and in all where others follow; else fine ones, or
    coarse ones."""
    if usual or not hand.whole:
        return hand.rng.uniform(*_USUAL_STEPS, count)
    return np.exp2(hand.rng.uniform(*(_COARSE if hand.number % 4 == 0 else _FINE), count))


def legal(values: np.ndarray, domain: Domain, *, constant: bool) -> np.ndarray:
    """The values brought to an input's domain."""
    kind = domain.kind
    if kind == "weight" and constant:
        return values * values.dtype.type(domain.fan_in**-0.5)
    if kind == "positive":
        return np.abs(values) + values.dtype.type(_LEAST)
    if kind == "nonzero":
        return np.where(np.abs(values) < _LEAST, values.dtype.type(1), values)
    if kind == "unit":
        return np.clip(values, -0.95, 0.95)
    if kind == "grid":
        return np.clip(values, -_BEYOND, _BEYOND)
    if kind == "above_one":
        return np.abs(values) + values.dtype.type(1.05)
    return values


def _largest(dtype: np.dtype) -> float:
    if dtype.itemsize == 1:
        return 8.0
    return 3e4 if dtype == np.float16 else 3e38 if dtype != np.float64 else 1e300
