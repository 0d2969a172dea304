"""Pools: windows and whole maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.convolution import explicit_pads, pad_argument, spatial_attribute
from opatlas.load.torch.ops.site import TorchSite, Unsupported

Built = Callable[..., Any]

_MAX: dict[int, Built] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Built] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


@dataclass(frozen=True)
class PoolWindow:
    """A sliding window over the spatial dimensions; ``extra`` is how far beyond the padded input the last
    window reaches (``ceil_mode``)."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    begins: list[int]
    ends: list[int]
    extra: list[int]

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def native(self) -> bool:
        """Whether PyTorch's own padding can say it: symmetric, at most half the window."""
        half = all(2 * pad <= size for pad, size in zip(self.begins, self.kernel, strict=True))
        return half and list(self.begins) == list(self.ends) and not any(more > 0 for more in self.extra)


def read_window(site: TorchSite) -> PoolWindow:
    kernel = [int(size) for size in site.attrs["kernel_shape"]]
    if not 1 <= len(kernel) <= 3:
        raise Unsupported(f"{site.node.op} over {len(kernel)} dimensions")
    strides = spatial_attribute(site, "strides", len(kernel))
    dilations = spatial_attribute(site, "dilations", len(kernel))
    begins, ends = explicit_pads(site, kernel, strides, dilations)
    reach = [
        (made - 1) * stride + (window - 1) * dilation + 1
        for made, stride, window, dilation in zip(
            site.output().shape[2:], strides, kernel, dilations, strict=True
        )
    ]
    padded = [size + b + e for size, b, e in zip(site.shape(0)[2:], begins, ends, strict=True)]
    extra = [max(0, far - size) for far, size in zip(reach, padded, strict=True)]
    return PoolWindow(kernel, strides, dilations, begins, ends, extra)


def _max(site: TorchSite) -> Built:
    window = read_window(site)
    function = _MAX[window.spatial]
    indexed = len(site.node.outputs) > 1
    if window.native:
        call = _native_max(function, window)
        return _with_indices(site, window) if indexed else call
    if indexed:
        raise Unsupported("MaxPool with indices and one-sided padding")
    ends = [end + more for end, more in zip(window.ends, window.extra, strict=True)]
    pads = pad_argument(window.begins, ends)
    bare = _native_max(
        function, PoolWindow(window.kernel, window.strides, window.dilations, *([[0] * window.spatial] * 3))
    )
    dtype = site.input(0).dtype
    if dtype.startswith(("int", "uint")):
        lowest: float = torch.iinfo(getattr(torch, dtype)).min
        return lambda x: bare(F.pad(x, pads, value=lowest))
    return lambda x: bare(F.pad(x, pads, value=-math.inf))


def _native_max(
    function: Callable[..., torch.Tensor], window: PoolWindow
) -> Callable[[torch.Tensor], torch.Tensor]:
    kernel, strides, pads, dilations = window.kernel, window.strides, window.begins, window.dilations
    return lambda x: function(x, kernel, strides, pads, dilations)


def _with_indices(site: TorchSite, window: PoolWindow) -> Built:
    if site.flag("storage_order"):
        raise Unsupported("MaxPool with column-major indices")
    function = _MAX[window.spatial]
    planes, plane = math.prod(site.shape(0)[:2]), math.prod(site.shape(0)[2:])

    def run(x):
        made, where = function(
            x, window.kernel, window.strides, window.begins, window.dilations, False, return_indices=True
        )
        # PyTorch counts within one map, ONNX through the whole tensor.
        start = torch.arange(planes).reshape(*x.shape[:2], *(1 for _ in window.kernel)) * plane
        return made, where + start

    return run


def _average(site: TorchSite) -> Built:
    window = read_window(site)
    counts_pads = site.flag("count_include_pad")
    if window.native and all(dilation == 1 for dilation in window.dilations):
        function, kernel, strides, pads = (
            _AVERAGE[window.spatial],
            window.kernel,
            window.strides,
            window.begins,
        )
        return lambda x: function(x, kernel, strides, pads, False, counts_pads)
    return _average_by_sums(site, window, counts_pads)


def _average_by_sums(site: TorchSite, window: PoolWindow, counts_pads: bool) -> Built:
    """Any padding, dilation and ceiling: sums of the padded input over how many elements each window has."""
    dtype = site.widen or getattr(torch, site.input(0).dtype)
    ends = [end + more for end, more in zip(window.ends, window.extra, strict=True)]
    pads = pad_argument(window.begins, ends)
    ones = torch.ones((1, 1, *window.kernel), dtype=dtype)
    spatial = site.shape(0)[2:]

    def sums(padded: torch.Tensor) -> torch.Tensor:
        return _CONV[window.spatial](padded, ones, None, window.strides, 0, window.dilations)

    inside = torch.ones((1, 1, *spatial), dtype=dtype)
    if counts_pads:  # what ceil_mode adds beyond the padding is never counted
        inside = F.pad(inside, pad_argument(window.begins, window.ends), value=1.0)
        counts = sums(F.pad(inside, pad_argument([0] * window.spatial, window.extra)))
    else:
        counts = sums(F.pad(inside, pads))
    made = site.output().shape

    def run(x):
        flat = x.reshape(-1, 1, *spatial)
        return (sums(F.pad(flat, pads)) / counts).reshape(made)

    return run


def _lp(site: TorchSite) -> Built:
    window = read_window(site)
    power = float(site.attrs.get("p", 2))
    ends = [end + more for end, more in zip(window.ends, window.extra, strict=True)]
    pads = pad_argument(window.begins, ends)
    dtype = site.widen or getattr(torch, site.input(0).dtype)
    ones = torch.ones((1, 1, *window.kernel), dtype=dtype)
    spatial, made = site.shape(0)[2:], site.output().shape

    def run(x):
        flat = F.pad(x.abs().pow(power).reshape(-1, 1, *spatial), pads)
        sums = _CONV[window.spatial](flat, ones, None, window.strides, 0, window.dilations)
        return sums.pow(1 / power).reshape(made)

    return run


def _spatial_axes(site: TorchSite) -> list[int]:
    return list(range(2, site.rank()))


def _global_average(site: TorchSite) -> Built:
    axes = _spatial_axes(site)
    if len(axes) == 2:
        return lambda x: F.adaptive_avg_pool2d(x, 1)
    return lambda x: torch.mean(x, axes, keepdim=True)


def _global_max(site: TorchSite) -> Built:
    axes = _spatial_axes(site)
    return lambda x: torch.amax(x, axes, keepdim=True)


BUILDERS: dict[str, Callable[[TorchSite], Built]] = {
    "AveragePool": _average,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "LpPool": _lp,
    "MaxPool": _max,
}
