"""Shapes, joins, cuts and padding: operators that move elements and change none."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.convolution import pad_argument
from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain
from opatlas.load.torch.ops.types import float_type


def _to_output_shape(site: TorchSite) -> Built:
    # Reshape, Flatten, Squeeze and Unsqueeze differ only in how they say the shape, which is known.
    shape = site.output().shape
    return lambda x, *_: x.reshape(shape)


def _expand(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: x.expand(shape)


def _transpose(site: TorchSite) -> Built:
    order = site.attrs["perm"]
    return lambda x: x.permute(order)


def _concat(site: TorchSite) -> Built:
    axis = site.axis()
    return lambda *tensors: torch.cat(tensors, axis)


def _split(site: TorchSite) -> Built:
    axis, sizes = site.axis(), site.numbers(1)
    if len(sizes) == 1:
        return lambda x, *_: x
    return lambda x, *_: torch.split(x, sizes, axis)


def _slice(site: TorchSite) -> Built:
    key, turned = site.forward_cuts()
    if turned:
        return lambda x, *_: torch.flip(x[key], turned)
    return lambda x, *_: x[key]


def _tile(site: TorchSite) -> Built:
    repeats = site.numbers(1)
    return lambda x, *_: x.repeat(repeats)


_PAD_MODES = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def _pad(site: TorchSite) -> Built:
    given, rank = site.numbers(1), site.rank()
    if site.attrs["mode"] != "constant":
        return _pad_by_index(site, site.attrs["mode"], given[:rank], given[rank:])
    pads, value = pad_argument(given[:rank], given[rank:]), site.static(2) if site.has(2) else 0.0
    return lambda x, *_: F.pad(x, pads, value=value)


def _pad_by_index(site: TorchSite, mode: str, begins: list[int], ends: list[int]) -> Built:
    """Edge, reflect and wrap: PyTorch's own call where it has one, else rows chosen axis by axis."""
    shape = site.shape(0)
    rank = len(shape)
    padded = [axis for axis in range(rank) if begins[axis] or ends[axis]]
    spatial = len(padded) and rank - min(padded)
    narrow = all(0 <= pad < shape[axis] for axis in padded for pad in (begins[axis], ends[axis]))
    floating = site.input(0).dtype.startswith(("float", "bfloat"))
    if 1 <= spatial <= min(3, rank - 1) and rank - spatial <= 2 and narrow and floating:
        pads = pad_argument(begins[rank - spatial :], ends[rank - spatial :])
        torch_mode = _PAD_MODES[mode]
        return lambda x, *_: F.pad(x, pads, torch_mode)
    chosen = {axis: torch.tensor(_sources(mode, shape[axis], begins[axis], ends[axis])) for axis in padded}

    def run(x, *_):
        for axis, rows in chosen.items():
            x = x.index_select(axis, rows)
        return x

    return run


def _sources(mode: str, size: int, begin: int, end: int) -> list[int]:
    """Which row each row of a padded axis is taken from."""
    positions = range(-begin, size + end)
    if mode == "edge":
        return [min(max(position, 0), size - 1) for position in positions]
    if mode == "wrap":
        return [position % size for position in positions]
    period = max(1, 2 * (size - 1))
    return [min(position % period, period - position % period) if size > 1 else 0 for position in positions]


def _depth_to_space(site: TorchSite) -> Built:
    block, made = site.attrs["blocksize"], site.output().shape
    batch, depth, height, width = site.shape(0)
    if site.attrs["mode"] == "CRD":
        return lambda x: F.pixel_shuffle(x, block)
    inner = (batch, block, block, depth // block**2, height, width)
    return lambda x: x.reshape(inner).permute(0, 3, 4, 1, 5, 2).reshape(made)


def _space_to_depth(site: TorchSite) -> Built:
    block, made = site.attrs["blocksize"], site.output().shape
    batch, depth, height, width = site.shape(0)
    inner = (batch, depth, height // block, block, width // block, block)
    return lambda x: x.reshape(inner).permute(0, 3, 5, 1, 2, 4).reshape(made)


def _column_to_image(site: TorchSite) -> Built:
    """Blocks summed back into an image: PyTorch's fold, two dimensions and the same padding on both sides."""
    image, block = tuple(site.numbers(1)), tuple(site.numbers(2))
    begins, _ = site.pads()
    strides, dilations = site.attrs["strides"], site.attrs["dilations"]
    return lambda x, *_: F.fold(x, image, block, dilations, begins, strides)


def _range(site: TorchSite) -> Built:
    start, stop, step = (site.static(position) for position in range(3))
    dtype = float_type(site, site.output().dtype)
    return lambda *_: torch.arange(start, stop, step, dtype=dtype)


def _shape(site: TorchSite) -> Built:
    start, end = site.attrs["start"], site.attrs["end"]
    return lambda x: torch.tensor(x.shape[start:end], dtype=torch.int64)


BUILDERS: dict[str, Builder] = {
    "Col2Im": _column_to_image,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _to_output_shape,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _to_output_shape,
    "Shape": _shape,
    "Size": plain(lambda x: torch.tensor(x.numel(), dtype=torch.int64)),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _to_output_shape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _to_output_shape,
}
