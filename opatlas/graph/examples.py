"""Examples of a model's inputs by which whoever may run it is checked: beside the one that it is timed with,
values of the types' whole ranges. PURE, but for what ONNX Runtime takes.

What decides sizes or rounds stays as it was, an index is one of its axis, nothing divides by zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from opatlas.graph.input_uses import MODERATE, InputUse, input_uses
from opatlas.graph.normal import ModelGraph

Feed = Mapping[str, np.ndarray]
SPREAD = 4.0
"""Times normal floats: beyond where Tanh and Sigmoid are flat, and far from where float16 ends."""
RARE = 37
"""One float of so many is nothing, nothing below nothing, or smaller than what is normalised; in the third
example, NaN or endless."""


def checking_inputs(
    graph: ModelGraph, base: Feed, seed: int = 1, *, is_given: bool = False
) -> list[dict[str, np.ndarray]]:
    """Two more examples beside ``base``: wide values, masks of both kinds; then those at the types' ends,
    with NaN and infinities. ``is_given``: the caller's own floats are kept, in another order, since others
    may mean nothing to the model."""
    uses = input_uses(graph)
    random = np.random.default_rng(seed)
    made = []
    for is_extreme in (False, True):
        feed = {
            name: _varied(array, uses.get(name, InputUse()), random, is_extreme, is_given)
            for name, array in base.items()
        }
        made.append(feed)
    return made


def narrower(feed: Feed, base: Feed) -> Iterator[dict[str, np.ndarray]]:
    """What to try where the model refuses an example: with whole numbers as they were, and one input changed
    at a time. What is no array is as it was."""
    changed = [name for name in feed if feed[name] is not base[name]]
    kept = {name: base[name] if _is_whole(feed[name]) else feed[name] for name in feed}
    if any(kept[name] is not base[name] for name in feed):
        yield kept
    if len(changed) > 1:
        yield from ({**base, name: feed[name]} for name in changed)


def _is_whole(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.dtype.kind in "iub"


def _varied(
    array: np.ndarray, use: InputUse, random: np.random.Generator, is_extreme: bool, is_given: bool
) -> np.ndarray:
    if use.is_fixed or not isinstance(array, np.ndarray) or not array.size:
        return array
    if array.dtype.kind == "b":
        return _both(array, random)
    if array.dtype.kind in "iu":
        return _whole(array, use, random, is_extreme)
    if array.dtype.kind == "f" or array.dtype.name == "bfloat16":
        return _floats(array, random, is_extreme, is_given)
    return array


def _both(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    flat = random.random(array.size) < 0.5
    flat[0] = not array.reshape(-1)[0]
    return flat.reshape(array.shape)


def _whole(array: np.ndarray, use: InputUse, random: np.random.Generator, is_extreme: bool) -> np.ndarray:
    info = np.iinfo(array.dtype)
    # The smallest number of all has no opposite: divided by −1 it ends ONNX Runtime's process.
    low, high = info.min + (info.min < 0), info.max
    if info.bits >= 32 and not is_extreme:
        low, high = max(low, -MODERATE), min(high, MODERATE)
    low, high = (int(one) for one in (max(low, use.low), min(high, use.high)))
    if low > high:
        return array
    made = _spread(low, high, array.size, random).astype(array.dtype)
    for one in use.never:
        made[made == one] = one + 1 if one < high else one - 1
    return made.reshape(array.shape)


def _spread(low: int, high: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Both ends, and between them small numbers as often as large ones."""
    kind = np.uint64 if high > np.iinfo(np.int64).max else np.int64
    flat = random.integers(low, high, count, dtype=kind, endpoint=True)
    near = (
        np.clip(random.integers(-8, 9, count), max(low, -8), max(min(high, 8), low)) if low < 2**31 else flat
    )
    made = np.where(random.random(count) < 0.5, flat, near.astype(kind))
    made[:2] = np.array([high, low], kind)[: made.size]
    return made


def _floats(array: np.ndarray, random: np.random.Generator, is_extreme: bool, is_given: bool) -> np.ndarray:
    if is_given:
        made = random.permutation(array.reshape(-1))
    else:
        made = (random.standard_normal(array.size) * SPREAD).astype(array.dtype)
    if is_extreme:
        _sprinkle(made, (math.nan, math.inf, -math.inf), random)
    elif not is_given:
        _sprinkle(made, (0.0, -0.0, 1e-40, -1e-41), random)
    return made.reshape(array.shape)


def _sprinkle(flat: np.ndarray, values: tuple[float, ...], random: np.random.Generator) -> None:
    count = max(1, flat.size // RARE)
    flat[random.integers(0, flat.size, count)] = np.resize(np.array(values), count).astype(flat.dtype)
