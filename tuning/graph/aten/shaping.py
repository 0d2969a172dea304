"""Operators that move data: reshape, transpose, slice, concatenate, split, pad, copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuning.graph.aten.builder import CannotMap, Ref, normal_axis
from tuning.graph.aten.call import AtenRule, Call, rule
from tuning.graph.aten.record import TensorArgument

FAR = 2**63 - 1
"""PyTorch's "to the end"."""

MAX_PARTS = 1024


def _reshaped(call: Call, x: Ref, shape: Sequence[int]) -> Ref:
    return call.graph.node("Reshape", x, call.graph.constant(list(shape)), shape=shape)


def view(call: Call, name: str = "size") -> Ref:
    x, size = call.tensor("self"), call.numbers(name)
    if size.count(-1) > 1 or any(dim < -1 for dim in size):
        raise CannotMap("a view with several sizes left open")
    if -1 in size:
        known = math.prod(dim for dim in size if dim != -1)
        size = [math.prod(x.shape) // max(known, 1) if dim == -1 else dim for dim in size]
    return _reshaped(call, x, size)


def flatten(call: Call) -> Ref:
    x = call.tensor("self")
    first = normal_axis(call.get("start_dim"), len(x.shape))
    last = normal_axis(call.get("end_dim"), len(x.shape))
    return _reshaped(call, x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :]))


def permute(call: Call) -> Ref:
    x = call.tensor("self")
    perm = [normal_axis(axis, len(x.shape)) for axis in call.numbers("dims")]
    return call.graph.node("Transpose", x, shape=[x.shape[axis] for axis in perm], perm=perm)


def transpose(call: Call) -> Ref:
    x = call.tensor("self")
    perm = list(range(len(x.shape)))
    a, b = (normal_axis(call.arguments.get(name, i), len(perm)) for i, name in enumerate(("dim0", "dim1")))
    if len(perm) < 2:
        return call.graph.node("Identity", x)
    perm[a], perm[b] = perm[b], perm[a]
    return call.graph.node("Transpose", x, shape=[x.shape[axis] for axis in perm], perm=perm)


def unsqueeze(call: Call) -> Ref:
    x = call.tensor("self")
    axis = normal_axis(call.get("dim"), len(x.shape) + 1)
    return call.graph.node(
        "Unsqueeze", x, call.graph.constant([axis]), shape=(*x.shape[:axis], 1, *x.shape[axis:])
    )


def squeeze(call: Call) -> Ref:
    x = call.tensor("self")
    axes = list(range(len(x.shape)))
    if "dim" in call.arguments:
        axes = [normal_axis(axis, len(x.shape)) for axis in call.numbers("dim")]
    axes = [axis for axis in axes if x.shape and x.shape[axis] == 1]
    if not axes:
        return call.graph.node("Identity", x)
    return call.graph.node(
        "Squeeze", x, call.graph.constant(axes), shape=[d for i, d in enumerate(x.shape) if i not in axes]
    )


def expand(call: Call) -> Ref:
    x, size = call.tensor("self"), call.numbers("size")
    padded = (1,) * (len(size) - len(x.shape)) + x.shape
    shape = [dim if want == -1 else want for dim, want in zip(padded, size, strict=True)]
    return call.graph.node("Expand", x, call.graph.constant(shape), shape=shape)


def repeat(call: Call) -> Ref:
    x, repeats = call.tensor("self"), call.numbers("repeats")
    padded = (1,) * (len(repeats) - len(x.shape)) + x.shape
    if padded != x.shape:
        x = _reshaped(call, x, padded)
    shape = [dim * times for dim, times in zip(padded, repeats, strict=True)]
    return call.graph.node("Tile", x, call.graph.constant(repeats), shape=shape)


def _cut(call: Call, x: Ref, axis: int, start: int, end: int, step: int) -> Ref:
    length = len(range(*slice(start, end, step).indices(x.shape[axis])))
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    bounds = [call.graph.constant([value]) for value in (start, end, axis, step)]
    return call.graph.node("Slice", x, *bounds, shape=shape)


def slicing(call: Call) -> Ref:
    x = call.tensor("self")
    start, end = (0 if call.get("start") is None else call.get("start")), call.get("end")
    axis = normal_axis(call.get("dim"), len(x.shape))
    return _cut(call, x, axis, int(start), FAR if end is None else int(end), int(call.number("step")))


def select(call: Call) -> Ref:
    x = call.tensor("self")
    axis = normal_axis(call.get("dim"), len(x.shape))
    index = call.graph.constant(int(call.number("index")), "int64", ())
    return call.graph.node("Gather", x, index, shape=(*x.shape[:axis], *x.shape[axis + 1 :]), axis=axis)


def flip(call: Call) -> Ref:
    x = call.tensor("self")
    axes = [normal_axis(axis, len(x.shape)) for axis in call.numbers("dims")]
    count = len(axes)
    bounds = [call.graph.constant(v) for v in ([-1] * count, [-FAR - 1] * count, axes, [-1] * count)]
    return call.graph.node("Slice", x, *bounds)


def _alike(call: Call, name: str) -> list[Ref]:
    refs = [ref for ref in call.tensors(name) if ref is not None and ref.shape != (0,)]
    if not refs or len({ref.dtype for ref in refs}) > 1:
        raise CannotMap("joining tensors of several types")
    return refs


def cat(call: Call) -> Ref:
    refs = _alike(call, "tensors")
    axis = normal_axis(call.get("dim"), len(refs[0].shape))
    total = sum(ref.shape[axis] for ref in refs)
    return call.graph.node(
        "Concat", *refs, shape=(*refs[0].shape[:axis], total, *refs[0].shape[axis + 1 :]), axis=axis
    )


def stack(call: Call) -> Ref:
    refs = _alike(call, "tensors")
    shape = refs[0].shape
    axis = normal_axis(call.get("dim"), len(shape) + 1)
    place = call.graph.constant([axis])
    lifted = [
        call.graph.node("Unsqueeze", ref, place, shape=(*shape[:axis], 1, *shape[axis:])) for ref in refs
    ]
    return call.graph.node("Concat", *lifted, shape=(*shape[:axis], len(refs), *shape[axis:]), axis=axis)


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
    shapes = [(None, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes]
    if len(sizes) == 1:
        return [call.graph.node("Identity", x)]
    return call.graph.nodes_of("Split", [x, call.graph.constant(sizes)], shapes, axis=axis)


def split(call: Call) -> list[Ref]:
    x, size = call.tensor("self"), int(call.number("split_size"))
    axis = normal_axis(call.get("dim"), len(x.shape))
    return _split(call, x, _even(x.shape[axis], size), axis)


def chunk(call: Call) -> list[Ref]:
    x = call.tensor("self")
    axis = normal_axis(call.get("dim"), len(x.shape))
    size = math.ceil(x.shape[axis] / max(int(call.number("chunks")), 1))
    return _split(call, x, _even(x.shape[axis], size), axis)


def split_with_sizes(call: Call) -> list[Ref]:
    x = call.tensor("self")
    return _split(call, x, call.numbers("split_sizes"), normal_axis(call.get("dim"), len(x.shape)))


def unbind(call: Call) -> list[Ref]:
    x = call.tensor("self")
    axis = normal_axis(call.get("dim"), len(x.shape))
    parts = _split(call, x, _even(x.shape[axis], 1), axis)
    place = call.graph.constant([axis])
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [call.graph.node("Squeeze", part, place, shape=shape) for part in parts]


def pad(mode: str) -> Callable[[Call], Ref]:
    """PyTorch lists padding from the last dimension on, in pairs; ONNX all starts and then all ends."""

    def build(call: Call) -> Ref:
        x = call.tensor("self")
        pairs = call.numbers("pad" if "pad" in call.arguments else "padding")
        if len(pairs) % 2 or len(pairs) > 2 * len(x.shape):
            raise CannotMap("padding of more dimensions than there are")
        rank = len(x.shape)
        starts, ends = [0] * rank, [0] * rank
        for i in range(len(pairs) // 2):
            starts[rank - 1 - i], ends[rank - 1 - i] = pairs[2 * i], pairs[2 * i + 1]
        shape = [start + dim + end for start, dim, end in zip(starts, x.shape, ends, strict=True)]
        value = call.graph.constant(call.number("value"), x.dtype, ()) if "value" in call.arguments else None
        return call.graph.node("Pad", x, call.graph.constant(starts + ends), value, shape=shape, mode=mode)

    return build


def trilu(upper: bool) -> Callable[[Call], Ref]:
    def build(call: Call) -> Ref:
        k = call.graph.constant(int(call.number("diagonal")), "int64", ())
        return call.graph.node("Trilu", call.tensor("self"), k, upper=int(upper))

    return build


def copy(call: Call) -> Ref:
    """A dense copy; of another dtype where one is asked for."""
    x = call.tensor("self")
    wanted = call.dtype("dtype") if "dtype" in call.arguments else None
    return call.graph.node("Identity", x) if wanted in (None, x.dtype) else call.graph.cast(x, str(wanted))


def copy_into(call: Call) -> Ref:
    """``copy_``: the source in the type and shape of the tensor that it is written to."""
    kept, x = call.get("self"), call.tensor("src")
    if not isinstance(kept, TensorArgument) or kept.strides is not None:
        raise CannotMap("a copy into a strided tensor")
    shape = tuple(int(dim) for dim in kept.shape)
    if x.dtype == kept.dtype and x.shape == shape:
        return call.graph.node("Identity", x)
    x = call.graph.cast(x, kept.dtype)
    return x if x.shape == shape else call.graph.node("Expand", x, call.graph.constant(shape), shape=shape)


_VIEW = rule("self, size", view)
_COPY = rule("self", copy)
_PADDING = "self, padding"

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
    "constant_pad_nd": rule("self, pad, value=0", pad("constant")),
    "reflection_pad1d": rule(_PADDING, pad("reflect")),
    "reflection_pad2d": rule(_PADDING, pad("reflect")),
    "replication_pad2d": rule(_PADDING, pad("edge")),
    "tril": rule("self, diagonal=0", trilu(False)),
    "triu": rule("self, diagonal=0", trilu(True)),
    "clone": _COPY,
    "contiguous": _COPY,
    "lift_fresh_copy": _COPY,
    "copy_": rule("self, src, non_blocking=False", copy_into),
    "_to_copy": rule("self, dtype=None", copy),
}
