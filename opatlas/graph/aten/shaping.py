"""Operators that move data: reshape, transpose, slice, concatenate, split, pad, copy."""

from __future__ import annotations

import math
from functools import partial

from opatlas.graph.aten.builder import CannotMap, Ref, normal_axis
from opatlas.graph.aten.call import AtenRule, Call, rule
from opatlas.graph.aten.record import TensorArgument

FAR = 2**63 - 1
"""PyTorch's "to the end"."""

MAX_PARTS = 1024


def view(call: Call, name: str = "size") -> Ref:
    x, size = call.tensor("self"), call.numbers(name)
    if size.count(-1) > 1 or any(dim < -1 for dim in size):
        raise CannotMap("a view with several sizes left open")
    if -1 in size:
        known = math.prod(dim for dim in size if dim != -1)
        size = [math.prod(x.shape) // max(known, 1) if dim == -1 else dim for dim in size]
    return call.reshaped(x, size)


def flatten(call: Call) -> Ref:
    x = call.tensor("self")
    first = call.axis(x.rank, "start_dim")
    last = call.axis(x.rank, "end_dim")
    return call.reshaped(x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def permute(call: Call) -> Ref:
    x = call.tensor("self")
    perm = [normal_axis(axis, x.rank) for axis in call.numbers("dims")]
    return call.node("Transpose", x, shape=[x.shape[axis] for axis in perm], perm=perm)


def transpose(call: Call) -> Ref:
    x = call.tensor("self")
    perm = list(range(x.rank))
    a, b = (normal_axis(call.arguments.get(name, i), x.rank) for i, name in enumerate(("dim0", "dim1")))
    if x.rank < 2:
        return call.node("Identity", x)
    perm[a], perm[b] = perm[b], perm[a]
    return call.node("Transpose", x, shape=[x.shape[axis] for axis in perm], perm=perm)


def unsqueeze(call: Call) -> Ref:
    x = call.tensor("self")
    axis = call.axis(x.rank + 1)
    return call.node("Unsqueeze", x, call.constant([axis]), shape=(*x.shape[:axis], 1, *x.shape[axis:]))


def squeeze(call: Call) -> Ref:
    x = call.tensor("self")
    axes = list(range(x.rank))
    if "dim" in call.arguments:
        axes = [normal_axis(axis, x.rank) for axis in call.numbers("dim")]
    axes = [axis for axis in axes if x.shape and x.shape[axis] == 1]
    if not axes:
        return call.node("Identity", x)
    return call.node(
        "Squeeze", x, call.constant(axes), shape=[d for i, d in enumerate(x.shape) if i not in axes]
    )


def expand(call: Call) -> Ref:
    x, size = call.tensor("self"), call.numbers("size")
    padded = (1,) * (len(size) - x.rank) + x.shape
    shape = [dim if want == -1 else want for dim, want in zip(padded, size, strict=True)]
    return call.reshaped(x, shape, "Expand")


def repeat(call: Call) -> Ref:
    x, repeats = call.tensor("self"), call.numbers("repeats")
    padded = (1,) * (len(repeats) - x.rank) + x.shape
    if padded != x.shape:
        x = call.reshaped(x, padded)
    shape = [dim * times for dim, times in zip(padded, repeats, strict=True)]
    return call.node("Tile", x, call.constant(repeats), shape=shape)


def _cut(call: Call, x: Ref, axis: int, start: int, end: int, step: int) -> Ref:
    length = len(range(*slice(start, end, step).indices(x.shape[axis])))
    shape = x.resized(axis, length)
    bounds = [call.constant([value]) for value in (start, end, axis, step)]
    return call.node("Slice", x, *bounds, shape=shape)


def slicing(call: Call) -> Ref:
    x = call.tensor("self")
    start, end = (0 if call.get("start") is None else call.get("start")), call.get("end")
    axis = call.axis(x.rank)
    return _cut(call, x, axis, int(start), FAR if end is None else int(end), int(call.number("step")))


def select(call: Call) -> Ref:
    x = call.tensor("self")
    axis = call.axis(x.rank)
    index = call.constant(int(call.number("index")), "int64", ())
    return call.node("Gather", x, index, shape=x.resized(axis), axis=axis)


def flip(call: Call) -> Ref:
    x = call.tensor("self")
    axes = [normal_axis(axis, x.rank) for axis in call.numbers("dims")]
    count = len(axes)
    bounds = [call.constant(v) for v in ([-1] * count, [-FAR - 1] * count, axes, [-1] * count)]
    return call.node("Slice", x, *bounds)


def _alike(call: Call, name: str) -> list[Ref]:
    refs = [ref for ref in call.tensors(name) if ref is not None and ref.shape != (0,)]
    if not refs or len({ref.dtype for ref in refs}) > 1:
        raise CannotMap("joining tensors of several types")
    return refs


def cat(call: Call) -> Ref:
    refs = _alike(call, "tensors")
    axis = normal_axis(call.get("dim"), len(refs[0].shape))
    total = sum(ref.shape[axis] for ref in refs)
    return call.node(
        "Concat", *refs, shape=(*refs[0].shape[:axis], total, *refs[0].shape[axis + 1 :]), axis=axis
    )


def stack(call: Call) -> Ref:
    refs = _alike(call, "tensors")
    shape = refs[0].shape
    axis = normal_axis(call.get("dim"), len(shape) + 1)
    place = call.constant([axis])
    lifted = [call.node("Unsqueeze", ref, place, shape=(*shape[:axis], 1, *shape[axis:])) for ref in refs]
    return call.node("Concat", *lifted, shape=(*shape[:axis], len(refs), *shape[axis:]), axis=axis)


def _check_parts(count: int) -> None:
    if count > MAX_PARTS:
        raise CannotMap(f"a split into more than {MAX_PARTS} parts")


def _even(length: int, size: int) -> list[int]:
    """Parts of one size, and what is left over."""
    full, rest = divmod(length, max(size, 1))
    _check_parts(full)
    return [size] * full + [rest] * (rest > 0)


def _split(call: Call, x: Ref, sizes: list[int], axis: int) -> list[Ref]:
    _check_parts(len(sizes))
    shapes = [(None, x.resized(axis, size)) for size in sizes]
    if len(sizes) == 1:
        return [call.node("Identity", x)]
    return call.nodes_of("Split", [x, call.constant(sizes)], shapes, axis=axis)


def split(call: Call) -> list[Ref]:
    x = call.tensor("self")
    axis = call.axis(x.rank)
    return _split(call, x, _even(x.shape[axis], int(call.number("split_size"))), axis)


def chunk(call: Call) -> list[Ref]:
    x = call.tensor("self")
    axis = call.axis(x.rank)
    size = math.ceil(x.shape[axis] / max(int(call.number("chunks")), 1))
    return _split(call, x, _even(x.shape[axis], size), axis)


def split_with_sizes(call: Call) -> list[Ref]:
    x = call.tensor("self")
    return _split(call, x, call.numbers("split_sizes"), call.axis(x.rank))


def unbind(call: Call) -> list[Ref]:
    x = call.tensor("self")
    axis = call.axis(x.rank)
    parts = _split(call, x, _even(x.shape[axis], 1), axis)
    place = call.constant([axis])
    shape = x.resized(axis)
    return [call.node("Squeeze", part, place, shape=shape) for part in parts]


def pad(call: Call, mode: str = "constant") -> Ref:
    """PyTorch lists padding from the last dimension on, in pairs; ONNX all starts and then all ends."""
    x = call.tensor("self")
    pairs = call.numbers("pad" if mode == "constant" else "padding")
    missing = 2 * x.rank - len(pairs)
    if len(pairs) % 2 or missing < 0:
        raise CannotMap("padding of more dimensions than there are")
    pairs += [0] * missing
    starts, ends = pairs[-2::-2], pairs[::-2]
    shape = [start + dim + end for start, dim, end in zip(starts, x.shape, ends, strict=True)]
    value = call.constant(call.number("value"), x.dtype, ()) if mode == "constant" else None
    return call.node("Pad", x, call.constant(starts + ends), value, shape=shape, mode=mode)


def trilu(call: Call, upper: int) -> Ref:
    diagonal = call.constant(int(call.number("diagonal")), "int64", ())
    return call.node("Trilu", call.tensor("self"), diagonal, upper=upper)


def copy(call: Call) -> Ref:
    """A dense copy; of another dtype where one is asked for."""
    x = call.tensor("self")
    wanted = call.dtype("dtype") if "dtype" in call.arguments else None
    return call.node("Identity", x) if wanted in (None, x.dtype) else call.cast(x, str(wanted))


def copy_into(call: Call) -> Ref:
    """``copy_``: the source in the type and shape of the tensor that it is written to."""
    kept, x = call.get("self"), call.tensor("src")
    if not isinstance(kept, TensorArgument) or kept.strides is not None:
        raise CannotMap("a copy into a strided tensor")
    shape = tuple(int(dim) for dim in kept.shape)
    if x.dtype == kept.dtype and x.shape == shape:
        return call.node("Identity", x)
    x = call.cast(x, kept.dtype)
    return x if x.shape == shape else call.reshaped(x, shape, "Expand")


_VIEW = rule("self, size", view)
_COPY = rule("self", copy)
_REFLECTED = rule("self, padding", partial(pad, mode="reflect"))

RULES: dict[str, AtenRule] = {
    "view": _VIEW,
    "_unsafe_view": _VIEW,
    "reshape": rule("self, shape", lambda call: view(call, "shape")),
    "flatten.using_ints": rule("self, start_dim=0, end_dim=-1", flatten),
    "permute": rule("self, dims", permute),
    "transpose.int": rule("self, dim0, dim1", transpose),
    "t": rule("self", transpose),
    "unsqueeze": rule("self, dim", unsqueeze),
    "squeeze": rule("self", squeeze),
    "squeeze.dim": rule("self, dim", squeeze),
    "squeeze.dims": rule("self, dim", squeeze),
    "expand": rule("self, size, implicit=False", expand),
    "repeat": rule("self, repeats", repeat),
    "slice.Tensor": rule("self, dim=0, start=None, end=None, step=1", slicing),
    "select.int": rule("self, dim, index", select),
    "flip": rule("self, dims", flip),
    "cat": rule("tensors, dim=0", cat),
    "stack": rule("tensors, dim=0", stack),
    "split.Tensor": rule("self, split_size, dim=0", split),
    "split_with_sizes": rule("self, split_sizes, dim=0", split_with_sizes),
    "chunk": rule("self, chunks, dim=0", chunk),
    "unbind.int": rule("self, dim=0", unbind),
    "constant_pad_nd": rule("self, pad, value=0", pad),
    "reflection_pad1d": _REFLECTED,
    "reflection_pad2d": _REFLECTED,
    "replication_pad2d": rule("self, padding", partial(pad, mode="edge")),
    "tril": rule("self, diagonal=0", partial(trilu, upper=0)),
    "triu": rule("self, diagonal=0", partial(trilu, upper=1)),
    "clone": _COPY,
    "contiguous": _COPY,
    "lift_fresh_copy": _COPY,
    "copy_": rule("self, src, non_blocking=False", copy_into),
    "_to_copy": rule("self, dtype=None", copy),
}
