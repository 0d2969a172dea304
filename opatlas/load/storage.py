"""A strided value as a dense array over the same memory. Libraries that need dense tensors read that array,
and transpose, cut or repeat it inside their own graph."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from opatlas.identity.operator import Value
from opatlas.identity.strides import dense_strides
from opatlas.load.buffers import element_strides

Form = Literal["dense", "turned", "span", "copied"]


@dataclass(frozen=True)
class Storage:
    """The dense array behind a value. ``dense``: the value itself. ``turned``: ``shape`` is dense, and its
    transpose by ``order`` is the value. ``span``: one dimension from the first element to the last, of which
    the value is a nested cut (``pitches``: (axis, size, stride) for each axis that moves, the widest first).
    ``copied``: strides overlap, so only a dense copy will do."""

    form: Form
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()
    pitches: tuple[tuple[int, int, int], ...] = ()


def storage_of(value: Value) -> Storage:
    """The storage of a value with at least one element."""
    strides = element_strides(value)
    if _is_dense(value.shape, strides):
        return Storage("dense", value.shape)
    order = sorted(
        range(len(strides)), key=lambda axis: -strides[axis] if value.shape[axis] > 1 else -math.inf
    )
    turned = tuple(value.shape[axis] for axis in order)
    if _is_dense(turned, tuple(strides[axis] for axis in order)):
        back = tuple(order.index(axis) for axis in range(len(order)))
        return Storage("turned", turned, back)
    pitches = tuple(
        (axis, value.shape[axis], strides[axis])
        for axis in order
        if value.shape[axis] > 1 and strides[axis] > 0
    )
    if not _nested(pitches):
        return Storage("copied", value.shape)
    span = 1 + sum((size - 1) * stride for _, size, stride in pitches)
    return Storage("span", (span,), pitches=pitches)


def stored(array: np.ndarray, storage: Storage) -> np.ndarray:
    """The dense array of ``storage`` over the memory of ``array``; not for ``copied``."""
    if storage.form == "span":
        return np.lib.stride_tricks.as_strided(array, storage.shape, (array.itemsize,))
    if storage.form == "turned":
        array = array.transpose(np.argsort(storage.order))
    # Dimensions of 1 may have any stride: the memory is dense all the same.
    strides = [stride * array.itemsize for stride in dense_strides(storage.shape)]
    return np.lib.stride_tricks.as_strided(array, storage.shape, strides)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    dense = dense_strides(shape)
    return all(size == 1 or stride == want for size, stride, want in zip(shape, strides, dense, strict=True))


def _nested(pitches: tuple[tuple[int, int, int], ...]) -> bool:
    """Whether each stride is a whole number of the next and leaves room for it."""
    return all(
        wide % narrow == 0 and size <= wide // narrow
        for (_, _, wide), (_, size, narrow) in itertools.pairwise(pitches)
    )
