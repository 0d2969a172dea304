"""One input of a set that holds all kinds: by its role, its element type, and what is legal there."""

from __future__ import annotations

from math import prod

import numpy as np

from opatlas.identity import Operator, Value
from opatlas.identity.operator_types import TYPES
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.drawing.dealing import Hand, spread_rows
from tuning.measure.judging.drawing.roles import CONSTANT, WEIGHTS_REACH, Role, role_of
from tuning.measure.judging.strata import OF_ARGUMENT, Strata, spread_elements, strata_of
from tuning.measure.shared_tensors import span

BLOCK = 64
"""Elements of one kind beside each other, where each element is its own row."""
_MILD_REACH = 3
_LEAST = 2.0**-10
"""Of what has to be positive."""
_USUAL_STEPS, _STEPS = (0.01, 0.05), (-10, 3)
"""Of a quantisation: the steps, and exponents of others."""


def draw_all_kinds(
    operator: Operator, number: int, domain: Domain, hand: Hand, *, constant: bool = False
) -> np.ndarray:
    """The flat elements behind one floating input, gaps of its strides included. ``constant``: it is timed,
    so that nothing in it is denormal or infinite."""
    value = operator.inputs[number]
    role, _, _ = role_of(operator, number)
    dtype = numpy_dtype(value.dtype)
    if domain.kind == "scale":
        made = _steps(prod(value.shape), hand)
    elif role.by_element and not constant and _has_strata(operator, domain):
        made = _by_element(operator, number, role, dtype, hand)
    else:
        made = legal(
            _by_row(operator, number, role, dtype, hand, constant=constant), domain, constant=constant
        )
    limit = _largest(dtype)
    made = np.where(np.isfinite(made), np.clip(made, -limit, limit), made)
    return behind(value, made.reshape(value.shape).astype(dtype), hand.rng)


def _has_strata(operator: Operator, domain: Domain) -> bool:
    """Whether what is legal is known element by element."""
    if domain.kind in ("free", "weight", "between"):
        return True
    return len(operator.nodes) == 1 and operator.nodes[0].op in OF_ARGUMENT


def behind(value: Value, dense: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The span that a tensor lies in; others of its values lie in the gaps."""
    if value.strides is None or dense.size == 0:
        return dense.reshape(-1)
    flat = rng.choice(dense.reshape(-1), span(value.shape, value.strides))
    steps = [stride * flat.itemsize for stride in value.strides]
    np.lib.stride_tricks.as_strided(flat, value.shape, steps)[...] = dense
    return flat


def is_mild(operator: Operator) -> bool:
    """Whether several nodes, or one that nobody wrote down, come after each other: what is far from one may
    overflow there."""
    return len(operator.nodes) > 1 or any(op not in TYPES for op in operator.op_types)


def _by_row(
    operator: Operator, number: int, role: Role, dtype: np.dtype, hand: Hand, *, constant: bool
) -> np.ndarray:
    value = operator.inputs[number]
    _, node, position = role_of(operator, number)
    apart = role.apart(operator, node, position)
    shape = value.shape
    if role.by_element or len(apart) == len(shape):
        apart, shape = (0,), _blocks(prod(shape))
    made = _rows(operator, number, role, dtype, hand, shape, apart, constant=constant)
    return made.reshape(-1)[: prod(value.shape)]


def _rows(
    operator: Operator,
    number: int,
    role: Role,
    dtype: np.dtype,
    hand: Hand,
    shape: tuple[int, ...],
    apart: tuple[int, ...],
    *,
    constant: bool,
) -> np.ndarray:
    """A tensor of this shape, whose rows lie along ``apart``."""
    mild, narrow = is_mild(operator), dtype.itemsize < 4
    kinds = role.kinds
    if mild:
        kinds = tuple(name for name in kinds if name not in ("tiny", "masked", "infinite"))
    if dtype.itemsize == 1:
        kinds = tuple(name for name in kinds if name != "infinite")  # some have none
    if constant:
        kinds = tuple(name for name in kinds if name in CONSTANT) or ("normal",)
    reach = min(role.reach, _MILD_REACH) if mild or narrow else role.reach
    rows = prod(shape[axis] for axis in apart)
    whole = not constant and hand.whole and rows > 1
    return spread_rows(
        shape,
        apart,
        hand.next(number, kinds, rows, whole=whole),
        hand.rng,
        wide=np.float64 if dtype == np.float64 else np.float32,
        reach=min(reach, WEIGHTS_REACH) if constant else reach,
        calm=role.calm or mild,
        narrow=narrow,
    )


def _blocks(count: int) -> tuple[int, int]:
    """How many rows, and of which length, hold so many elements that have no rows of their own; of the last
    row some may be too many."""
    length = max(1, min(BLOCK, count // BLOCK))
    return -(-count // length), length


def _by_element(operator: Operator, number: int, role: Role, dtype: np.dtype, hand: Hand) -> np.ndarray:
    """Each element of its own stratum; some blocks of a kind, where the function is defined on it."""
    strata = strata_of(operator, number)
    if strata is None:
        return _by_row(operator, number, role, dtype, hand, constant=False)
    count, rng = prod(operator.inputs[number].shape), hand.rng
    blocks, length = _blocks(count)
    chosen = rng.integers(0, 2, blocks, np.uint8) > 0
    many = int(np.count_nonzero(chosen))
    made = np.empty((blocks, length), np.float64 if dtype == np.float64 else np.float32)
    made[~chosen] = spread_elements(strata, dtype, (blocks - many) * length, rng).reshape(-1, length)
    if many:
        rows = _rows(operator, number, role, dtype, hand, (many, length), (0,), constant=False)
        made[chosen] = _within(rows, strata, made.dtype)
    return made.reshape(-1)[:count]


def _within(blocks: np.ndarray, strata: Strata, wide: np.dtype) -> np.ndarray:
    """Brought to where the function is defined."""
    most = min(2.0**strata.most, max(abs(strata.low), abs(strata.high)) * 64)
    if strata.most < 0:
        most = max(abs(strata.low), abs(strata.high))
    if strata.signs == (1,):
        blocks = np.maximum(np.abs(blocks), max(strata.low, 0.0) or _LEAST)
    if not strata.zero:
        blocks = np.where(np.abs(blocks) < _LEAST, 1.0, blocks)
    return np.clip(blocks, -most, most).astype(wide)


def _steps(count: int, hand: Hand) -> np.ndarray:
    """Of a quantisation: usual ones, or from very fine to very coarse ones."""
    if hand.whole:
        return hand.rng.uniform(*_USUAL_STEPS, count)
    return np.exp2(hand.rng.uniform(*_STEPS, count))


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
    if kind == "above_one":
        return np.abs(values) + values.dtype.type(1.05)
    return values


def _largest(dtype: np.dtype) -> float:
    if dtype.itemsize == 1:
        return 8.0
    return 3e4 if dtype == np.float16 else 3e38 if dtype != np.float64 else 1e300
