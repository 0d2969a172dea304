"""Pools: windows and whole maps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.convolution import pad_argument
from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported
from opatlas.load.torch.ops.windows import Window, read_window

_MAX: dict[int, Built] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE: dict[int, Built] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_CONV = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}


def _read(site: TorchSite) -> tuple[Window, list[int]]:
    """The window, and all that ``F.pad`` puts around the input for it."""
    window = read_window(site)
    if not 1 <= window.spatial <= 3:
        raise Unsupported(f"{site.node.op} over {window.spatial} dimensions")
    return window, pad_argument(window.begins, window.whole_ends)


def _max(site: TorchSite) -> Built:
    window, pads = _read(site)
    function, indexed = _MAX[window.spatial], len(site.node.outputs) > 1
    if window.native:
        return _with_indices(site, window) if indexed else _native_max(function, window, window.begins)
    bare = _native_max(function, window, [0] * window.spatial)
    dtype = site.input(0).dtype
    whole = dtype.startswith(("int", "uint"))
    lowest = torch.iinfo(getattr(torch, dtype)).min if whole else -math.inf
    return lambda x: bare(F.pad(x, pads, value=lowest))


def _native_max(function: Built, window: Window, pads: Sequence[int]) -> Built:
    kernel, strides, dilations = window.kernel, window.strides, window.dilations
    return lambda x: function(x, kernel, strides, pads, dilations)


def _with_indices(site: TorchSite, window: Window) -> Built:
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
    window, whole_pads = _read(site)
    counts_pads = site.flag("count_include_pad")
    if window.native and not any(dilation > 1 for dilation in window.dilations):
        function, kernel, strides, pads = (
            _AVERAGE[window.spatial],
            window.kernel,
            window.strides,
            window.begins,
        )
        return lambda x: function(x, kernel, strides, pads, False, counts_pads)
    # Any padding, dilation and ceiling: sums of the padded input over how many elements each window has.
    sums, inside = _sums(site, window), torch.ones((1, 1, *site.shape(0)[2:]), dtype=_dtype(site))
    if counts_pads:  # what ceil_mode adds beyond the padding is never counted
        inside = F.pad(inside, pad_argument(window.begins, window.ends), value=1.0)
        counts = sums(F.pad(inside, pad_argument([0] * window.spatial, window.extra)))
    else:
        counts = sums(F.pad(inside, whole_pads))
    spatial, made = site.shape(0)[2:], site.output().shape
    return lambda x: (sums(F.pad(x.reshape(-1, 1, *spatial), whole_pads)) / counts).reshape(made)


def _dtype(site: TorchSite) -> torch.dtype:
    return site.widen or getattr(torch, site.input(0).dtype)


def _sums(site: TorchSite, window: Window) -> Built:
    """The sums of a padded input's windows."""
    function, ones = _CONV[window.spatial], torch.ones((1, 1, *window.kernel), dtype=_dtype(site))
    return lambda padded: function(padded, ones, None, window.strides, 0, window.dilations)


def _lp(site: TorchSite) -> Built:
    window, pads = _read(site)
    power, sums = site.number("p"), _sums(site, window)
    spatial, made = site.shape(0)[2:], site.output().shape

    def run(x):
        flat = F.pad(x.abs().pow(power).reshape(-1, 1, *spatial), pads)
        return sums(flat).pow(1 / power).reshape(made)

    return run


def _global_average(site: TorchSite) -> Built:
    axes = list(range(2, site.rank()))
    if len(axes) == 2:
        return lambda x: F.adaptive_avg_pool2d(x, 1)
    return lambda x: torch.mean(x, axes, keepdim=True)


def _global_max(site: TorchSite) -> Built:
    axes = list(range(2, site.rank()))
    return lambda x: torch.amax(x, axes, keepdim=True)


BUILDERS: dict[str, Builder] = {
    "AveragePool": _average,
    "GlobalAveragePool": _global_average,
    "GlobalMaxPool": _global_max,
    "LpPool": _lp,
    "MaxPool": _max,
}
