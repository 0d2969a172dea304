"""Inputs whose values shape the computation: which they are, and their one canonical spelling.

An axis, a target shape or a bound that comes as an input is part of the operator's identity, unlike a
weight. The table follows ONNX's operator pages at the canonical opset.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from opatlas.identity.bounds import MAX_DIM, MAX_STATIC, refuse
from opatlas.identity.operator import Value
from opatlas.identity.workbench import NodeStep, Workbench, cast_static

_REDUCTIONS = (
    "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare",
)  # fmt: skip
REDUCTIONS = frozenset(f"Reduce{name}" for name in _REDUCTIONS)

STATIC: dict[str, dict[int, str]] = {
    "AffineGrid": {1: "size"},
    "BlackmanWindow": {0: "size"},
    "CenterCropPad": {1: "shape"},
    "Clip": {1: "min", 2: "max"},
    "Col2Im": {1: "image_shape", 2: "block_shape"},
    "ConstantOfShape": {0: "shape"},
    "CumSum": {1: "axis"},
    "DFT": {1: "dft_length", 2: "axis"},
    "Expand": {1: "shape"},
    "HammingWindow": {0: "size"},
    "HannWindow": {0: "size"},
    "MaxUnpool": {2: "output_shape"},
    "MelWeightMatrix": {
        0: "num_mel_bins",
        1: "dft_length",
        2: "sample_rate",
        3: "lower_edge_hertz",
        4: "upper_edge_hertz",
    },
    "OneHot": {1: "depth"},
    "Pad": {1: "pads", 2: "constant_value", 3: "axes"},
    "Range": {0: "start", 1: "limit", 2: "delta"},
    "Reshape": {1: "shape"},
    "Resize": {1: "roi", 2: "scales", 3: "sizes"},
    "STFT": {1: "frame_step", 3: "frame_length"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "split"},
    "Squeeze": {1: "axes"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
    "Trilu": {1: "k"},
    "Unsqueeze": {1: "axes"},
    **{reduction: {1: "axes"} for reduction in REDUCTIONS},
}
"""Operator type → position of a static input → its name."""

# Static inputs whose element type is the computation's; all the others are counted in int64.
_TYPED = {("Clip", 1), ("Clip", 2), ("Pad", 2), ("Resize", 1), ("Resize", 2)} | {
    (op, position) for op, words in STATIC.items() if op in ("Range", "MelWeightMatrix") for position in words
}


def read_statics(step: NodeStep, work: Workbench) -> None:
    """Replace every static input by a constant that carries its values."""
    if step.op == "Pow":
        _exponent(step, work)
    for position, word in STATIC.get(step.op, {}).items():
        value = work.static(step, position, word)
        if value is None or value.data is None:
            continue
        origin = step.input(position)
        if (step.op, position) not in _TYPED and value.dtype != "int64":
            if not value.dtype.startswith(("int", "uint")) and step.op != "OneHot":
                refuse(f"{step.op}'s input {position} ({word}) is {value.dtype}; it must be int64.")
            if not all(isinstance(item, int) or float(item).is_integer() for item in value.data):
                refuse(f"{step.op}'s input {position} ({word}) must be a whole number.")
            value = cast_static(value, "int64")
        if len(value.data or ()) > MAX_STATIC:
            refuse(f"{step.op}'s input {position} ({word}) has more than {MAX_STATIC} values.")
        if step.op == "Slice" and word != "axes":
            value = _clamped(value)
        if not value.data and step.op in ("Pad", "Resize", "Clip"):
            step.set_input(position, "")  # an empty tensor stands for an input left out
            continue
        name = work.make_static(value.data or (), value.dtype, value.shape)
        if origin in work.source.values:  # else it is an attribute that lifting made an input
            work.origin.setdefault(name, origin)
        step.set_input(position, name)


def _exponent(step: NodeStep, work: Workbench) -> None:
    """A Pow whose exponent is one known number is a square or a root, with kernels of its own; any other Pow
    keeps its exponent as a tensor."""
    name = step.input(1)
    if not name or (name not in work.source.contents and work.value(name).data is None):
        return
    base, exponent = work.value(step.inputs[0]), work.value(name)
    if "float" in base.dtype and math.prod(exponent.shape) == 1 and len(exponent.shape) <= len(base.shape):
        value = work.static(step, 1, "exponent")
        if value is not None and value.data:
            static = work.make_static(value.data, value.dtype, ())
            work.origin.setdefault(static, name)
            step.set_input(1, static)


def _clamped(value: Value) -> Value:
    """Ends such as the largest integer mean "to the end": no dimension is beyond the limit."""
    items = tuple(min(max(int(item), -MAX_DIM), MAX_DIM) for item in value.data or ())
    return Value(dtype=value.dtype, shape=value.shape, role="const", data=items)


def settle_statics(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    """Give the static inputs their one spelling, now that shapes are known and ONNX has accepted them."""
    if step.op in _SETTLERS:
        _SETTLERS[step.op](step, work, outputs)
    elif step.op in REDUCTIONS:
        _reduction(step, work, outputs)


def _put(
    step: NodeStep,
    work: Workbench,
    position: int,
    data: list[int] | tuple[int, ...],
    shape: tuple[int, ...] | None = None,
) -> None:
    origin = work.origin.get(step.input(position))
    name = work.make_static(data, "int64", shape)
    if origin is not None:
        work.origin.setdefault(name, origin)
    step.set_input(position, name)


def _ints(step: NodeStep, work: Workbench, position: int) -> list[int] | None:
    return work.ints(step, position, STATIC[step.op][position])


def _output_shape(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    """Reshape, Expand, ConstantOfShape: the shape that comes out, with no 0 or -1 to be filled in."""
    _put(step, work, 0 if step.op == "ConstantOfShape" else 1, outputs[0].shape)
    if step.op == "Reshape":
        step.attrs["allowzero"] = 0


def _reduction(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    axes = _ints(step, work, 1)
    if not axes:
        if step.attrs.get("noop_with_empty_axes"):
            step.set_input(1, "")
            return
        axes = list(range(rank))
    _put(step, work, 1, sorted({axis % rank for axis in axes}) if rank else [])
    step.attrs["noop_with_empty_axes"] = 0


def _squeeze(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    shape = work.shape(step)
    axes = _ints(step, work, 1)
    if axes is None:
        axes = [axis for axis, dim in enumerate(shape) if dim == 1]
    _put(step, work, 1, sorted({axis % len(shape) for axis in axes}) if shape else [])


def _unsqueeze(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(outputs[0].shape)
    _put(step, work, 1, sorted(axis % rank for axis in _ints(step, work, 1) or []))


def _slice(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    shape = work.shape(step)
    starts, ends = _ints(step, work, 1) or [], _ints(step, work, 2) or []
    axes = _ints(step, work, 3)
    steps = _ints(step, work, 4) or [1] * len(starts)
    axes = list(range(len(starts))) if axes is None else [axis % len(shape) for axis in axes]
    if len(set(axes)) != len(axes):
        refuse(f"Slice names an axis twice: {axes}.")
    cuts: list[tuple[int, int, int, int]] = []
    for axis, start, end, stride in sorted(zip(axes, starts, ends, steps, strict=True)):
        dim = shape[axis]
        start, end, stride = slice(start, end, stride).indices(dim)
        length = len(range(start, end, stride))
        if length == dim and (stride == 1 or dim == 1):
            continue  # the whole axis is no cut
        # The tightest end; -dim-1 is how ONNX says "past the beginning" to a negative stride.
        end = start + (length - 1) * stride + (1 if stride > 0 else -1)
        stride = 1 if length == 1 else stride
        end = start + 1 if length == 1 else (end if end >= 0 else -dim - 1)
        cuts.append((axis, start, end, stride))
    if not cuts:
        cuts = [(0, 0, shape[0], 1)]
    for position, column in ((1, 1), (2, 2), (3, 0), (4, 3)):
        _put(step, work, position, [cut[column] for cut in cuts])


def _pad(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    pads, axes = _ints(step, work, 1) or [], _ints(step, work, 3)
    axes = list(range(rank)) if axes is None else [axis % rank for axis in axes]
    full = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        full[axis], full[rank + axis] = pads[i], pads[len(axes) + i]
    _put(step, work, 1, full)
    step.set_input(3, "")
    filler = work.static(step, 2, "constant_value")
    if filler is not None and filler.data is not None:
        zero = filler.data[0] in (0, False) and str(filler.data[0]) != "-0.0"
        if zero or step.attrs.get("mode", "constant") != "constant":
            step.set_input(2, "")
        else:
            step.set_input(2, work.make_static(filler.data, filler.dtype, ()))


def _split(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    axis = step.attrs.get("axis", 0)
    _put(step, work, 1, [value.shape[axis] for value in outputs])
    step.attrs.pop("num_outputs", None)


def _clip(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    for position in (1, 2):
        bound = work.static(step, position, STATIC["Clip"][position])
        if bound is not None and bound.data is not None:
            if len(bound.data) != 1:
                refuse(f"Clip's {STATIC['Clip'][position]} must be one number, not {len(bound.data)}.")
            step.set_input(position, work.make_static(bound.data, bound.dtype, ()))


def _scalar(position: int) -> Callable[[NodeStep, Workbench, list[Value]], None]:
    def settle(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
        numbers = _ints(step, work, position)
        if numbers is not None:
            if len(numbers) != 1:
                refuse(f"{step.op}'s {STATIC[step.op][position]} must be one number, not {len(numbers)}.")
            _put(step, work, position, numbers, ())

    return settle


def _cumsum(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    _scalar(1)(step, work, outputs)
    rank = len(work.shape(step))
    axis = (_ints(step, work, 1) or [0])[0]
    if not -rank <= axis < rank:
        refuse(f"CumSum's axis {axis} is outside the {rank} dimensions of its input.")
    _put(step, work, 1, [axis % rank], ())


def _trilu(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    if step.input(1):
        _scalar(1)(step, work, outputs)
    else:
        _put(step, work, 1, [0], ())


def _dft(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    _scalar(1)(step, work, outputs)
    rank = len(work.shape(step))
    axis = (_ints(step, work, 2) or [-2])[0]
    _put(step, work, 2, [axis % rank], ())


_SETTLERS: dict[str, Callable[[NodeStep, Workbench, list[Value]], None]] = {
    "BlackmanWindow": _scalar(0),
    "Clip": _clip,
    "ConstantOfShape": _output_shape,
    "CumSum": _cumsum,
    "DFT": _dft,
    "Expand": _output_shape,
    "HammingWindow": _scalar(0),
    "HannWindow": _scalar(0),
    "OneHot": _scalar(1),
    "Pad": _pad,
    "Reshape": _output_shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
