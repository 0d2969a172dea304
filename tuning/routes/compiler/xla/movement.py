"""Shapes, joins, cuts and padding: what moves elements and changes none."""

from __future__ import annotations

import jax.numpy as jnp

from opatlas.load.torch.ops.site import TorchSite, Unsupported
from tuning.routes.compiler.xla.elementwise import Builder, Built, plain


def _to_output_shape(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: x.reshape(shape)


def _expand(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: jnp.broadcast_to(x, shape)


def _transpose(site: TorchSite) -> Built:
    order = [int(axis) for axis in site.attrs.get("perm") or reversed(range(site.rank()))]
    return lambda x: x.transpose(order)


def _concat(site: TorchSite) -> Built:
    axis = site.axis()
    return lambda *tensors: jnp.concatenate(tensors, axis)


def _split(site: TorchSite) -> Built:
    axis, places = site.axis(), [0]
    for index in range(len(site.node.outputs)):
        places.append(places[-1] + site.output(index).shape[axis])

    def run(x, *_):
        parts = tuple(jnp.split(x, places[1:-1], axis))
        return parts if len(parts) > 1 else parts[0]

    return run


def _slice(site: TorchSite) -> Built:
    shape = site.shape(0)
    starts, ends = site.numbers(1, "starts"), site.numbers(2, "ends")
    axes = site.axes(3) if site.has(3) else list(range(len(starts)))
    steps = site.numbers(4, "steps") if site.has(4) else [1] * len(starts)
    index, turned = [slice(None)] * len(shape), []
    for axis, start, end, step in zip(axes or (), starts, ends, steps, strict=True):
        rows = range(shape[axis])[slice(start, end if end >= -shape[axis] or step > 0 else None, step)]
        if step < 0 and len(rows):  # a backward step is a forward one, turned round
            index[axis] = slice(rows[-1], rows[0] + 1, -step)
            turned.append(axis)
        else:
            index[axis] = slice(rows[0], rows[-1] + 1, step) if len(rows) else slice(0, 0)
    key = tuple(index)
    return lambda x, *_: jnp.flip(x[key], turned) if turned else x[key]


def _tile(site: TorchSite) -> Built:
    repeats = site.numbers(1, "repeats")
    return lambda x, *_: jnp.tile(x, repeats)


_PAD_MODES = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}


def _pad(site: TorchSite) -> Built:
    rank = site.rank()
    axes = site.axes(3) if site.has(3) else list(range(rank))
    given = site.numbers(1, "pads")
    pads = [(0, 0)] * rank
    for index, axis in enumerate(axes or ()):
        pads[axis] = (given[index], given[index + len(given) // 2])
    mode = str(site.attrs.get("mode", "constant"))
    cuts = tuple(
        slice(max(0, -before), size - max(0, -after))
        for (before, after), size in zip(pads, site.shape(0), strict=True)
    )
    grows = [(max(0, before), max(0, after)) for before, after in pads]
    if mode != "constant":
        if mode not in _PAD_MODES:
            raise Unsupported(f"Pad in mode {mode}")
        return lambda x, *_: jnp.pad(x[cuts], grows, _PAD_MODES[mode])
    if site.has(2) and site.scalar(2) is None:
        raise Unsupported("Pad with a value known only at run time")
    fill = site.scalar(2) or 0
    return lambda x, *_: jnp.pad(x[cuts], grows, constant_values=fill)


def _depth_to_space(site: TorchSite) -> Built:
    block = int(site.attrs["blocksize"])
    batch, depth, height, width = site.shape(0)
    made, inner = site.output().shape, depth // block**2
    if str(site.attrs.get("mode", "DCR")) == "CRD":
        parts, order = (batch, inner, block, block, height, width), (0, 1, 4, 2, 5, 3)
    else:
        parts, order = (batch, block, block, inner, height, width), (0, 3, 4, 1, 5, 2)
    return lambda x: x.reshape(parts).transpose(order).reshape(made)


def _space_to_depth(site: TorchSite) -> Built:
    block = int(site.attrs["blocksize"])
    batch, depth, height, width = site.shape(0)
    parts, made = (batch, depth, height // block, block, width // block, block), site.output().shape
    return lambda x: x.reshape(parts).transpose(0, 3, 5, 1, 2, 4).reshape(made)


def _range(site: TorchSite) -> Built:
    value = site.output()
    start, step = site.scalar(0), site.scalar(2)
    if start is None or step is None:
        raise Unsupported("Range with bounds known only at run time")
    return lambda *_: (jnp.arange(value.shape[0]) * step + start).astype(value.dtype)


def _shape(site: TorchSite) -> Built:
    rank = site.rank()
    start, end = int(site.attrs.get("start", 0)), int(site.attrs.get("end", rank))
    return lambda x: jnp.asarray(x.shape[start:end], jnp.int64)


BUILDERS: dict[str, Builder] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _to_output_shape,
    "Pad": _pad,
    "Range": _range,
    "Reshape": _to_output_shape,
    "Shape": _shape,
    "Size": plain(lambda x: jnp.asarray(x.size, jnp.int64)),
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _to_output_shape,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _to_output_shape,
}
