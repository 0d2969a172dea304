"""Convolutions of one, two and three dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import TorchSite, Unsupported

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def explicit_pads(
    site: TorchSite, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Padding before and after each spatial dimension, ``auto_pad`` worked out."""
    spatial = len(kernel)
    mode = str(site.attrs.get("auto_pad", "NOTSET"))
    if mode in ("NOTSET", ""):
        pads = [int(pad) for pad in site.attrs.get("pads", (0,) * (2 * spatial))]
        return pads[:spatial], pads[spatial:]
    if mode == "VALID":
        return [0] * spatial, [0] * spatial
    begins, ends = [], []
    for size, window, stride, dilation in zip(site.shape(0)[2:], kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size)
        small, large = total // 2, total - total // 2
        begins.append(small if mode == "SAME_UPPER" else large)
        ends.append(large if mode == "SAME_UPPER" else small)
    return begins, ends


def pad_argument(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """PyTorch's order for ``F.pad``: the last dimension first, before and after."""
    return [pad for pair in zip(reversed(begins), reversed(ends), strict=True) for pad in pair]


def spatial_attribute(site: TorchSite, name: str, spatial: int) -> list[int]:
    return [int(number) for number in site.attrs.get(name, (1,) * spatial)]


def conv(site: TorchSite) -> Callable[..., torch.Tensor]:
    kernel = site.shape(1)[2:]
    spatial = len(kernel)
    if spatial not in _CONV:
        raise Unsupported(f"Conv over {spatial} dimensions")
    function = _CONV[spatial]
    strides = spatial_attribute(site, "strides", spatial)
    dilations = spatial_attribute(site, "dilations", spatial)
    groups = int(site.attrs.get("group", 1))
    begins, ends = explicit_pads(site, kernel, strides, dilations)
    if begins == ends and min(begins) >= 0:
        return lambda x, w, b=None: function(x, w, b, strides, begins, dilations, groups)
    pads, none = pad_argument(begins, ends), [0] * spatial
    return lambda x, w, b=None: function(F.pad(x, pads), w, b, strides, none, dilations, groups)


def conv_transpose(site: TorchSite) -> Callable[..., torch.Tensor]:
    kernel = site.shape(1)[2:]
    spatial = len(kernel)
    if spatial not in _TRANSPOSED:
        raise Unsupported(f"ConvTranspose over {spatial} dimensions")
    function = _TRANSPOSED[spatial]
    strides = spatial_attribute(site, "strides", spatial)
    dilations = spatial_attribute(site, "dilations", spatial)
    groups = int(site.attrs.get("group", 1))
    # What the whole product would be, then what of it leaves: output_shape and auto_pad only choose the crop.
    wanted = site.output().shape[2:]
    full = [
        (size - 1) * stride + (window - 1) * dilation + 1
        for size, stride, window, dilation in zip(site.shape(0)[2:], strides, kernel, dilations, strict=True)
    ]
    begins = _transpose_begins(site, full, wanted)
    extra = [want - (size - 2 * begin) for want, size, begin in zip(wanted, full, begins, strict=True)]
    room = [max(stride, dilation) for stride, dilation in zip(strides, dilations, strict=True)]
    if all(0 <= more < most for more, most in zip(extra, room, strict=True)):
        return lambda x, w, b=None: function(x, w, b, strides, begins, extra, groups, dilations)
    return _cropped_transpose(function, strides, dilations, groups, begins, full, wanted)


def _transpose_begins(site: TorchSite, full: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """How many elements are cut off before each spatial dimension of the transposed convolution."""
    mode = str(site.attrs.get("auto_pad", "NOTSET"))
    spatial = len(full)
    if mode in ("NOTSET", "") and not site.attrs.get("output_shape"):
        return [int(pad) for pad in site.attrs.get("pads", (0,) * (2 * spatial))][:spatial]
    outer = site.attrs.get("output_padding", (0,) * spatial)
    totals = [size + more - want for size, more, want in zip(full, outer, wanted, strict=True)]
    if mode == "VALID":
        return [0] * spatial
    if mode == "SAME_UPPER":
        return [max(0, total) // 2 for total in totals]
    return [max(0, total) - max(0, total) // 2 for total in totals]


def _cropped_transpose(
    function: Callable[..., torch.Tensor],
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    begins: Sequence[int],
    full: Sequence[int],
    wanted: Sequence[int],
) -> Callable[..., torch.Tensor]:
    """Asymmetric padding: the whole transposed convolution, cut (or lengthened with zeros) afterwards."""
    ends = [begin + want - size for begin, want, size in zip(begins, wanted, full, strict=True)]
    pads, none = pad_argument([-begin for begin in begins], ends), [0] * len(full)

    def run(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor | None = None) -> torch.Tensor:
        cut = F.pad(function(x, w, None, strides, none, none, groups, dilations), pads)
        return cut if b is None else cut + b.reshape(-1, *(1 for _ in none))

    return run


BUILDERS: dict[str, Callable[[TorchSite], Callable[..., object]]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
}
