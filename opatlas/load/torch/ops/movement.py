"""Shapes, joins, cuts and padding: operators that move elements and change none."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.convolution import pad_argument
from opatlas.load.torch.ops.site import TorchSite, Unsupported

Built = Callable[..., object]


def _to_output_shape(site: TorchSite) -> Built:
    # Reshape, Flatten, Squeeze and Unsqueeze differ only in how they say the shape, which is known.
    shape = site.output().shape
    return lambda x, *_: x.reshape(shape)


def _expand(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: x.expand(shape)


def _transpose(site: TorchSite) -> Built:
    order = [int(axis) for axis in site.attrs.get("perm") or reversed(range(site.rank()))]
    return lambda x: x.permute(order)


def _concat(site: TorchSite) -> Built:
    axis = site.axis(position=0)
    return lambda *tensors: torch.cat(tensors, axis)


def _split(site: TorchSite) -> Built:
    axis = site.axis()
    sizes = [site.output(index).shape[axis] for index in range(len(site.node.outputs))]
    return lambda x, *_: torch.split(x, sizes, axis)


def _slice(site: TorchSite) -> Built:
    """Starts, ends and steps are known; a backward step is a forward one, turned round."""
    starts, ends = site.numbers(1, "starts"), site.numbers(2, "ends")
    axes = site.axes(3) if site.has(3) else list(range(len(starts)))
    steps = site.numbers(4, "steps") if site.has(4) else [1] * len(starts)
    shape = site.shape(0)
    index = [slice(None)] * len(shape)
    turned = []
    for axis, start, end, step in zip(axes or (), starts, ends, steps, strict=True):
        forward = range(shape[axis])[slice(start, end if end >= -shape[axis] or step > 0 else None, step)]
        if step < 0 and len(forward):
            index[axis] = slice(forward[-1], forward[0] + 1, -step)
            turned.append(axis)
        elif len(forward):
            index[axis] = slice(forward[0], forward[-1] + 1, step)
        else:
            index[axis] = slice(0, 0)
    key = tuple(index)
    if turned:
        return lambda x, *_: torch.flip(x[key], turned)
    return lambda x, *_: x[key]


def _tile(site: TorchSite) -> Built:
    repeats = site.numbers(1, "repeats")
    return lambda x, *_: x.repeat(repeats)


_PAD_MODES = {"edge": "replicate", "reflect": "reflect", "wrap": "circular"}


def _pad(site: TorchSite) -> Built:
    rank = site.rank()
    axes = site.axes(3) if site.has(3) else list(range(rank))
    given = site.numbers(1, "pads") if site.has(1) else [int(pad) for pad in site.attrs["pads"]]
    begins, ends = [0] * rank, [0] * rank
    for index, axis in enumerate(axes or ()):
        begins[axis], ends[axis] = given[index], given[index + len(given) // 2]
    mode = str(site.attrs.get("mode", "constant"))
    if mode == "constant":
        return _pad_with_constant(site, pad_argument(begins, ends))
    return _pad_by_index(site, mode, begins, ends)


def _pad_with_constant(site: TorchSite, pads: list[int]) -> Built:
    if not site.has(2):
        value = site.attrs.get("value", 0.0)
        return lambda x, *_: F.pad(x, pads, value=value)
    known = site.scalar(2)
    if known is None:
        raise Unsupported("Pad with a value known only at run time")
    return lambda x, *_: F.pad(x, pads, value=known)


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
    if mode != "reflect":
        raise Unsupported(f"Pad in mode {mode}")
    period = max(1, 2 * (size - 1))
    return [min(position % period, period - position % period) if size > 1 else 0 for position in positions]


def _depth_to_space(site: TorchSite) -> Built:
    block = int(site.attrs["blocksize"])
    batch, depth, height, width = site.shape(0)
    made = site.output().shape
    if str(site.attrs.get("mode", "DCR")) == "CRD":
        return lambda x: F.pixel_shuffle(x, block)
    inner = (batch, block, block, depth // block**2, height, width)
    return lambda x: x.reshape(inner).permute(0, 3, 4, 1, 5, 2).reshape(made)


def _space_to_depth(site: TorchSite) -> Built:
    block = int(site.attrs["blocksize"])
    batch, depth, height, width = site.shape(0)
    inner = (batch, depth, height // block, block, width // block, block)
    made = site.output().shape
    return lambda x: x.reshape(inner).permute(0, 3, 5, 1, 2, 4).reshape(made)


def _column_to_image(site: TorchSite) -> Built:
    """Blocks summed back into an image: PyTorch's fold, two dimensions and the same padding on both sides."""
    image, block = tuple(site.numbers(1, "image_shape")), tuple(site.numbers(2, "block_shape"))
    pads = tuple(int(pad) for pad in site.attrs.get("pads", (0,) * 2 * len(image)))
    begins, ends = pads[: len(image)], pads[len(image) :]
    if len(image) != 2 or begins != ends:
        raise Unsupported("Col2Im of other than two dimensions, or with one-sided padding")
    strides = tuple(int(step) for step in site.attrs.get("strides", (1, 1)))
    dilations = tuple(int(step) for step in site.attrs.get("dilations", (1, 1)))
    return lambda x, *_: F.fold(x, image, block, dilations, begins, strides)


def _range(site: TorchSite) -> Built:
    start, stop, step = (site.scalar(position) for position in range(3))
    if start is None or stop is None or step is None:
        raise Unsupported("Range with bounds known only at run time")
    from opatlas.load.torch.ops.types import float_type

    dtype = float_type(site, site.output().dtype)
    return lambda *_: torch.arange(start, stop, step, dtype=dtype)


def _shape(site: TorchSite) -> Built:
    rank = site.rank()
    start, end = int(site.attrs.get("start", 0)), int(site.attrs.get("end", rank))
    return lambda x: torch.tensor(x.shape[start:end], dtype=torch.int64)


def _size(site: TorchSite) -> Built:
    return lambda x: torch.tensor(x.numel(), dtype=torch.int64)


BUILDERS: dict[str, Callable[[TorchSite], Built]] = {
    "Col2Im": _column_to_image,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _to_output_shape,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _to_output_shape,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _to_output_shape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _to_output_shape,
}
