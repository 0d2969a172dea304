"""What convolutions and pools share: padding, strides and dilations of a sliding window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.load.torch.ops.site import TorchSite


@dataclass(frozen=True)
class SlidingWindow:
    """A window over the spatial dimensions; ``extra``: how far beyond the padding the last one reaches."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    extra: tuple[int, ...] = ()

    @property
    def pads(self) -> list[tuple[int, int]]:
        return list(zip(self.begins, self.ends, strict=True))

    @property
    def whole_pads(self) -> list[tuple[int, int]]:
        """The padding and what ``ceil_mode`` adds to its end."""
        return [
            (begin, end + more) for begin, end, more in zip(self.begins, self.ends, self.extra, strict=True)
        ]


def numbers(site: TorchSite, name: str, spatial: int) -> tuple[int, ...]:
    return tuple(int(number) for number in site.attrs.get(name, (1,) * spatial))


def read_window(site: TorchSite, kernel: Sequence[int]) -> SlidingWindow:
    """The node's window, ``auto_pad`` worked out."""
    spatial = len(kernel)
    strides, dilations = numbers(site, "strides", spatial), numbers(site, "dilations", spatial)
    begins, ends = _pads(site, kernel, strides, dilations)
    extra = []
    for axis in range(spatial):
        made, size = site.output().shape[2 + axis], site.shape(0)[2 + axis]
        reach = (made - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        extra.append(max(0, reach - size - begins[axis] - ends[axis]))
    return SlidingWindow(tuple(kernel), strides, dilations, begins, ends, tuple(extra))


def slices(
    x: jax.Array, window: SlidingWindow, made: Sequence[int], pads: Sequence[tuple[int, int]], fill: float = 0
) -> Iterator[tuple[tuple[int, ...], jax.Array]]:
    """For each element of the window its place and the strided slice of the padded ``x`` that it meets."""
    if any(map(any, pads)):
        x = jnp.pad(x, [(0, 0), (0, 0), *pads], constant_values=fill)
    for tap in itertools.product(*map(range, window.kernel)):
        starts = [at * dilation for at, dilation in zip(tap, window.dilations, strict=True)]
        limits = [
            start + (size - 1) * stride + 1
            for start, size, stride in zip(starts, made, window.strides, strict=True)
        ]
        yield tap, lax.slice(x, (0, 0, *starts), (*x.shape[:2], *limits), (1, 1, *window.strides))


def _pads(
    site: TorchSite, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    spatial = len(kernel)
    mode = str(site.attrs.get("auto_pad", "NOTSET"))
    if mode in ("NOTSET", ""):
        pads = tuple(int(pad) for pad in site.attrs.get("pads", (0,) * (2 * spatial)))
        return pads[:spatial], pads[spatial:]
    if mode == "VALID":
        return (0,) * spatial, (0,) * spatial
    pairs = []
    for size, window, stride, dilation in zip(site.shape(0)[2:], kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        pairs.append((small, large) if mode == "SAME_UPPER" else (large, small))
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
