"""What convolutions and pools share: the padding of a sliding window, and its slices."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.load.torch.ops.windows import Window


def pads(window: Window) -> list[tuple[int, int]]:
    return list(zip(window.begins, window.ends, strict=True))


def whole_pads(window: Window) -> list[tuple[int, int]]:
    """The padding and what ``ceil_mode`` adds to its end."""
    return list(zip(window.begins, window.whole_ends, strict=True))


def slices(
    x: jax.Array, window: Window, made: Sequence[int], around: Sequence[tuple[int, int]], fill: float = 0
) -> Iterator[tuple[tuple[int, ...], jax.Array]]:
    """For each element of the window its place and the strided slice of the padded ``x`` that it meets."""
    if any(map(any, around)):
        x = jnp.pad(x, [(0, 0), (0, 0), *around], constant_values=fill)
    for tap in itertools.product(*map(range, window.kernel)):
        starts = [at * dilation for at, dilation in zip(tap, window.dilations, strict=True)]
        limits = [
            start + (size - 1) * stride + 1
            for start, size, stride in zip(starts, made, window.strides, strict=True)
        ]
        yield tap, lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *window.strides))
