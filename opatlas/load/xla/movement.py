"""Shapes, joins, cuts and padding: what moves elements and changes none."""

from __future__ import annotations

import itertools

import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain


def _to_output_shape(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: x.reshape(shape)


def _expand(site: TorchSite) -> Built:
    shape = site.output().shape
    return lambda x, *_: jnp.broadcast_to(x, shape)


def _transpose(site: TorchSite) -> Built:
    order = site.attrs["perm"]
    return lambda x: x.transpose(order)


def _concat(site: TorchSite) -> Built:
    axis = site.axis()
    return lambda *tensors: jnp.concatenate(tensors, axis)


def _split(site: TorchSite) -> Built:
    axis, ends = site.axis(), list(itertools.accumulate(site.numbers(1)))

    def run(x, *_):
        parts = tuple(jnp.split(x, ends[:-1], axis))
        return parts if len(parts) > 1 else parts[0]

    return run


def _slice(site: TorchSite) -> Built:
    key, turned = site.forward_cuts()
    return lambda x, *_: jnp.flip(x[key], turned) if turned else x[key]


def _tile(site: TorchSite) -> Built:
    repeats = site.numbers(1)
    return lambda x, *_: jnp.tile(x, repeats)


def _pad(site: TorchSite) -> Built:
    given, rank, mode = site.numbers(1), site.rank(), site.attrs["mode"]
    pads = list(zip(given[:rank], given[rank:], strict=True))
    cuts = tuple(
        slice(max(0, -before), size - max(0, -after))
        for (before, after), size in zip(pads, site.shape(0), strict=True)
    )
    grows = [(max(0, before), max(0, after)) for before, after in pads]
    if mode != "constant":
        return lambda x, *_: jnp.pad(x[cuts], grows, mode)
    fill = site.scalar(2) or 0
    return lambda x, *_: jnp.pad(x[cuts], grows, constant_values=fill)


def _depth_to_space(site: TorchSite) -> Built:
    block = site.attrs["blocksize"]
    batch, depth, height, width = site.shape(0)
    made, inner = site.output().shape, depth // block**2
    if site.attrs["mode"] == "CRD":
        parts, order = (batch, inner, block, block, height, width), (0, 1, 4, 2, 5, 3)
    else:
        parts, order = (batch, block, block, inner, height, width), (0, 3, 4, 1, 5, 2)
    return lambda x: x.reshape(parts).transpose(order).reshape(made)


def _space_to_depth(site: TorchSite) -> Built:
    block = site.attrs["blocksize"]
    batch, depth, height, width = site.shape(0)
    parts, made = (batch, depth, height // block, block, width // block, block), site.output().shape
    return lambda x: x.reshape(parts).transpose(0, 3, 5, 1, 2, 4).reshape(made)


def _range(site: TorchSite) -> Built:
    value = site.output()
    start, step = site.static(0), site.static(2)
    return lambda *_: (jnp.arange(value.shape[0]) * step + start).astype(value.dtype)


def _shape(site: TorchSite) -> Built:
    start, end = site.attrs["start"], site.attrs["end"]
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
