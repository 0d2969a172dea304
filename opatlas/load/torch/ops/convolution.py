"""Convolutions of one, two and three dimensions, and their transposes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite
from opatlas.load.torch.ops.windows import read_window

_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
_TRANSPOSED = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}


def pad_argument(begins: Sequence[int], ends: Sequence[int]) -> list[int]:
    """PyTorch's order for ``F.pad``: the last dimension first, before and after."""
    return [pad for pair in zip(reversed(begins), reversed(ends), strict=True) for pad in pair]


def conv(site: TorchSite) -> Built:
    window, groups = read_window(site), site.attrs["group"]
    function = _CONV[window.spatial]
    strides, dilations, begins, ends = window.strides, window.dilations, window.begins, window.ends
    if begins == ends and min(begins) >= 0:
        return lambda x, w, b=None: function(x, w, b, strides, begins, dilations, groups)
    pads, none = pad_argument(begins, ends), [0] * window.spatial
    return lambda x, w, b=None: function(F.pad(x, pads), w, b, strides, none, dilations, groups)


def conv_transpose(site: TorchSite) -> Built:
    kernel, (begins, _), groups = site.attrs["kernel_shape"], site.pads(), site.attrs["group"]
    strides, dilations = site.attrs["strides"], site.attrs["dilations"]
    function = _TRANSPOSED[len(kernel)]
    # What the whole product would be, then what of it leaves.
    wanted = site.output().shape[2:]
    full = [
        (size - 1) * stride + (window - 1) * dilation + 1
        for size, stride, window, dilation in zip(site.shape(0)[2:], strides, kernel, dilations, strict=True)
    ]
    extra = [want - (size - 2 * begin) for want, size, begin in zip(wanted, full, begins, strict=True)]
    room = map(max, strides, dilations)
    if all(0 <= more < most for more, most in zip(extra, room, strict=True)):
        return lambda x, w, b=None: function(x, w, b, strides, begins, extra, groups, dilations)
    return _cropped_transpose(function, strides, dilations, groups, begins, full, wanted)


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


BUILDERS: dict[str, Builder] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
}
