"""Convolutions of one, two and three dimensions, in several forms; their transposes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported
from opatlas.load.torch.ops.windows import Window, read_window
from opatlas.load.xla.windows import pads, slices

_SPATIAL = "DHW"
Names = tuple[str, str, str]


def _numbering(spatial: int) -> Names:
    axes = _SPATIAL[-spatial:]
    return "NC" + axes, "OI" + axes, "NC" + axes


def _window_of(site: TorchSite) -> Window:
    window = read_window(site)
    if not 1 <= window.spatial <= 3:
        raise Unsupported(f"{site.node.op} over {window.spatial} dimensions")
    return window


def _convolved(x: jax.Array, w: jax.Array, window: Window, names: Names, groups: int) -> jax.Array:
    strides, dilations, around = window.strides, window.dilations, pads(window)
    return lax.conv_general_dilated(x, w, strides, around, None, dilations, names, feature_group_count=groups)


def _with_bias(made: jax.Array, b: jax.Array | None) -> jax.Array:
    return made if b is None else made + b.reshape(1, -1, *(1 for _ in made.shape[2:]))


def _conv(site: TorchSite) -> Built:
    window, groups = _window_of(site), site.attrs["group"]
    names = _numbering(len(window.kernel))

    return lambda x, w, b=None: _with_bias(_convolved(x, w, window, names, groups), b)


def _channels_last(site: TorchSite) -> Built:
    """The same with the channels innermost, converted there and back inside the program."""
    window, groups = _window_of(site), site.attrs["group"]
    spatial = len(window.kernel)
    axes = _SPATIAL[-spatial:]
    names = ("N" + axes + "C", axes + "IO", "N" + axes + "C")
    inner = tuple(range(2, 2 + spatial))

    def run(x, w, b=None):
        last, weights = x.transpose(0, *inner, 1), w.transpose(*inner, 1, 0)
        made = _convolved(last, weights, window, names, groups)
        made = made if b is None else made + b
        return made.transpose(0, 1 + spatial, *range(1, 1 + spatial))

    return run


def _product(site: TorchSite) -> Built:
    """One product for each group: its weights with the windows laid side by side (1×1: the input itself)."""
    window, groups = _window_of(site), site.attrs["group"]
    made, rows = site.output().shape, site.shape(1)[0] // groups

    def run(x, w, b=None):
        columns = jnp.stack([piece for _, piece in slices(x, window, made[2:], pads(window))], 2)
        columns = columns.reshape(made[0], groups, columns.shape[1] * columns.shape[2] // groups, -1)
        weights = w.reshape(groups, rows, -1)
        if groups == 1 and made[0] == 1:
            out = jnp.matmul(weights[0], columns[0, 0])
        else:
            out = jnp.matmul(weights, columns)
        return _with_bias(out.reshape(made), b)

    return run


def _shifted(site: TorchSite) -> Built:
    """Depthwise: for each tap a strided slice times one weight a channel, all in one fused loop."""
    window, groups = _window_of(site), site.attrs["group"]
    if site.shape(1)[1] != 1 or groups == 1:
        return _conv(site)
    times, made = site.shape(1)[0] // groups, site.output().shape[2:]

    def run(x, w, b=None):
        parts = []
        for tap, piece in slices(x, window, made, pads(window)):
            weight = w[(slice(None), 0, *tap)].reshape(1, -1, *(1 for _ in tap))
            parts.append((jnp.repeat(piece, times, 1) if times > 1 else piece) * weight)
        return _with_bias(functools.reduce(jnp.add, parts), b)

    return run


VARIANTS: dict[str, Builder] = {
    "plain": _conv,
    "channels-last": _channels_last,
    "product": _product,
    "shifted": _shifted,
}


def _conv_integer(site: TorchSite) -> Built:
    window, groups = _window_of(site), site.attrs["group"]
    names = _numbering(len(window.kernel))

    def run(x, w, x_zero=None, w_zero=None):
        x, w = x.astype(jnp.int32), w.astype(jnp.int32)
        x = x if x_zero is None else x - x_zero.astype(jnp.int32)
        if w_zero is not None:
            w = w - w_zero.astype(jnp.int32).reshape(-1, *(1 for _ in w.shape[1:]))
        return _convolved(x, w, window, names, groups)

    return run


def _conv_transpose(site: TorchSite) -> Built:
    """A convolution over the input with zeros between its elements, the window turned round."""
    window, groups = _window_of(site), site.attrs["group"]
    spatial, strides, dilations, around = window.spatial, window.strides, window.dilations, []
    for axis, begin in enumerate(window.begins):
        reach = (window.kernel[axis] - 1) * dilations[axis]
        full = (site.shape(0)[2 + axis] - 1) * strides[axis] + reach + 1
        # Of the whole product [0, full) the part [begin, begin + made) leaves; what is beyond it is zeros.
        end = begin + site.output().shape[2 + axis] - full
        around.append((reach - begin, reach + end))
    names = _numbering(spatial)

    def run(x, w, b=None):
        inner = w.shape[1]
        turned = jnp.flip(w, tuple(range(2, w.ndim))).reshape(groups, -1, *w.shape[1:])
        turned = jnp.swapaxes(turned, 1, 2).reshape(groups * inner, -1, *w.shape[2:])
        made = lax.conv_general_dilated(
            x, turned, (1,) * spatial, around, strides, dilations, names, feature_group_count=groups
        )
        return _with_bias(made, b)

    return run


BUILDERS: dict[str, Builder] = {
    "Conv": _conv,
    "ConvInteger": _conv_integer,
    "ConvTranspose": _conv_transpose,
}
