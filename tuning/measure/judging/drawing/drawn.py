"""One input of a set that holds all kinds: by its role, its element type, and what is legal there."""

from __future__ import annotations

from math import prod

import numpy as np

from opatlas.identity import Operator, Value
from opatlas.identity.operator_types import TYPES
from opatlas.load.dtypes import numpy_dtype
from tuning.measure.judging.domain import Domain
from tuning.measure.judging.drawing.dealing import Hand, spread_rows
from tuning.measure.judging.drawing.roles import CONSTANT, ROLES, WEIGHTS_REACH, InputRole, role_of
from tuning.measure.judging.strata import OF_ARGUMENT, Strata, spread_elements, strata_of
from tuning.measure.shared_tensors import span

BLOCK = 64
"""Elements of one kind beside each other, where each element is its own row."""
_MILD_REACH = 3
_SHARPER = np.array([1, 1, 4, 32], np.float32)
"""What queries are multiplied by: scores of a hundred, whose exponentials are infinite."""
_LEAST = 2.0**-10
"""Of what has to be positive."""
_USUAL_STEPS, _COARSE, _FINE = (0.01, 0.05), (-3, 3), (-20, -10)
"""Of a quantisation: the steps, and exponents of others."""


def draw_all_kinds(
    operator: Operator, number: int, domain: Domain, hand: Hand, *, constant: bool = False
) -> np.ndarray:
    """The flat elements behind one floating input, gaps of its strides included. ``constant``: it is timed,
    so that nothing in it is denormal or infinite."""
    value = operator.inputs[number]
    role, _, _ = role_of(operator, number)
    dtype = numpy_dtype(value.dtype)
    cast_to = _cast_to(operator)
    if domain.kind == "scale":
        made = _steps(prod(value.shape), hand)
    elif cast_to is not None and not constant:
        made = _fractions(prod(value.shape), cast_to, hand.rng)
    elif role.by_element and not constant and _has_strata(operator, domain):
        made = _by_element(operator, number, role, dtype, hand)
    else:
        made = legal(
            _by_row(operator, number, role, dtype, hand, constant=constant), domain, constant=constant
        )
    if role is ROLES["scores"] and number == operator.nodes[0].inputs[0] and not is_mild(operator):
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


def _by_row(
    operator: Operator, number: int, role: InputRole, dtype: np.dtype, hand: Hand, *, constant: bool
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
    role: InputRole,
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
        kinds = tuple(name for name in kinds if name in CONSTANT)
    kinds = kinds or ("normal",)
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
        sized=role.added and hand.third and not constant,
    )


def _blocks(count: int) -> tuple[int, int]:
    """How many rows, and of which length, hold so many elements that have no rows of their own; of the last
    row some may be too many."""
    length = max(1, min(BLOCK, count // BLOCK))
    return -(-count // length), length


def _by_element(operator: Operator, number: int, role: InputRole, dtype: np.dtype, hand: Hand) -> np.ndarray:
    """Each element of its own stratum; some blocks of a kind, where the function is defined on it."""
    strata = strata_of(operator, number)
    if strata is None:
        return _by_row(operator, number, role, dtype, hand, constant=False)
    count, rng = prod(operator.inputs[number].shape), hand.rng
    blocks, length = _blocks(count)
    chosen = rng.integers(0, 2, blocks, np.uint8) > 0
    many = int(np.count_nonzero(chosen))
    made: np.ndarray = np.empty((blocks, length), np.float64 if dtype == np.float64 else np.float32)
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


def _steps(count: int, hand: Hand) -> np.ndarray:
    """Of a quantisation: usual ones, coarse ones, or fine ones."""
    if hand.whole:
        return hand.rng.uniform(*_USUAL_STEPS, count)
    return np.exp2(hand.rng.uniform(*(_COARSE if hand.third else _FINE), count))


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
