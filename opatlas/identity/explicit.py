"""Attributes with every default that matters made explicit, and those that change nothing dropped."""

from __future__ import annotations

import math
from collections.abc import Callable

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import refuse
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import OPSET, Value
from opatlas.identity.workbench import NodeStep, Workbench

_AXIS_OF_INPUT = frozenset(
    {
        "ArgMax", "ArgMin", "Concat", "Gather", "GatherElements", "Hardmax", "LayerNormalization",
        "LogSoftmax", "LpNormalization", "RMSNormalization", "ScatterElements", "Softmax", "Split", "TopK",
    }
)  # fmt: skip


def prepare(step: NodeStep, work: Workbench) -> None:
    """What inference needs said: the schema's defaults, a recurrent node's hidden size."""
    for name, attribute in schemas.get(step.op, OPSET).attributes.items():
        if name not in step.attrs and attribute.default is not None:
            step.attrs[name] = attribute.default
    if step.op in _ACTIVATIONS and "hidden_size" not in step.attrs and len(step.inputs) > 2:
        shape = work.shape(step, 2)
        if len(shape) == 3:
            step.attrs["hidden_size"] = shape[2]


def make_explicit(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    """Say what defaults mean for these shapes; drop what changes nothing."""
    if step.op in _AXIS_OF_INPUT and "axis" in step.attrs:
        step.attrs["axis"] = _axis(step.attrs["axis"], len(work.shape(step)), step)
    if step.op in _EXPLICIT:
        _EXPLICIT[step.op](step, work, outputs)


def _axis(axis: int, rank: int, step: NodeStep, highest: int | None = None) -> int:
    top = rank if highest is None else highest
    if not -rank <= axis < top:
        refuse(f"{step.op}'s axis {axis} is outside the {rank} dimensions of its input.")
    return axis if axis >= 0 else axis + rank


def _windows(step: NodeStep, work: Workbench, kernel: tuple[int, ...]) -> None:
    """Strides, dilations and pads of a window over the spatial dimensions, auto_pad worked out."""
    spatial = work.shape(step)[2:]
    rank = len(kernel)
    attrs = step.attrs
    attrs["kernel_shape"] = kernel
    attrs.setdefault("strides", (1,) * rank)
    attrs.setdefault("dilations", (1,) * rank)
    attrs.setdefault("pads", (0,) * (2 * rank))
    for name, length in (("strides", rank), ("dilations", rank), ("pads", 2 * rank)):
        if len(attrs[name]) != length:
            refuse(f"{step.op}'s {name} must have {length} numbers, not {len(attrs[name])}.")
    auto_pad = attrs.pop("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        attrs["pads"] = (0,) * (2 * rank)
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        begin, end = [], []
        for dim, size, stride, dilation in zip(
            spatial, kernel, attrs["strides"], attrs["dilations"], strict=True
        ):
            total = max((math.ceil(dim / stride) - 1) * stride + (size - 1) * dilation + 1 - dim, 0)
            small, large = total // 2, total - total // 2
            begin.append(small if auto_pad == "SAME_UPPER" else large)
            end.append(large if auto_pad == "SAME_UPPER" else small)
        attrs["pads"] = (*begin, *end)
    elif auto_pad != "NOTSET":
        refuse(f"{step.op}'s auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID.")


def _conv(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    weight = 3 if step.op == "QLinearConv" else 1
    _windows(step, work, work.shape(step, weight)[2:])


def _pool(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    attrs = step.attrs
    _windows(step, work, attrs["kernel_shape"])
    floor = []
    rank = len(attrs["kernel_shape"])
    for i, dim in enumerate(work.shape(step)[2:]):
        extent = (attrs["kernel_shape"][i] - 1) * attrs["dilations"][i] + 1
        padded = dim + attrs["pads"][i] + attrs["pads"][rank + i]
        floor.append((padded - extent) // attrs["strides"][i] + 1)
    if tuple(floor) == outputs[0].shape[2:]:
        attrs["ceil_mode"] = 0
    if not any(attrs["pads"]) and not attrs.get("ceil_mode"):
        attrs.pop("count_include_pad", None)
    if len(step.outputs) < 2:
        attrs.pop("storage_order", None)


def _conv_transpose(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    attrs = step.attrs
    kernel = work.shape(step, 1)[2:]
    rank = len(kernel)
    spatial = work.shape(step)[2:]
    attrs["kernel_shape"] = kernel
    for name, default in (("strides", 1), ("dilations", 1), ("output_padding", 0)):
        attrs.setdefault(name, (default,) * rank)
        if len(attrs[name]) != rank:
            refuse(f"ConvTranspose's {name} must have {rank} numbers, not {len(attrs[name])}.")
    auto_pad = attrs.pop("auto_pad", "NOTSET")
    wanted = attrs.pop("output_shape", None)
    made = outputs[0].shape[2:]
    if len(made) != rank:
        refuse(f"ConvTranspose's output_shape must be at least {list(spatial)}, the input's.")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER") and not wanted:
        wanted = made  # the input times the stride, or all that the windows reach
    if wanted:
        begin, end = [], []
        for i, target in enumerate(tuple(wanted)[-rank:]):
            grown = attrs["strides"][i] * (spatial[i] - 1) + attrs["output_padding"][i]
            total = grown + (kernel[i] - 1) * attrs["dilations"][i] + 1 - target
            if total < 0:  # what the windows do not reach is padded at the end
                padding = list(attrs["output_padding"])
                padding[i] -= total
                attrs["output_padding"], total = tuple(padding), 0
            if attrs["output_padding"][i] >= max(attrs["strides"][i], attrs["dilations"][i]):
                refuse(f"ConvTranspose cannot reach an output of {target} in spatial dimension {i}.")
            small, large = total // 2, total - total // 2
            begin.append(small if auto_pad == "SAME_UPPER" else large)
            end.append(large if auto_pad == "SAME_UPPER" else small)
        attrs["pads"] = (*begin, *end)
    elif auto_pad == "VALID":
        attrs["pads"] = (0,) * (2 * rank)
    attrs.setdefault("pads", (0,) * (2 * rank))


def _spatial_defaults(kernel_input: int | None) -> Callable[[NodeStep, Workbench, list[Value]], None]:
    """DeformConv, Col2Im, MaxUnpool: windows without auto_pad."""

    def settle(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
        attrs = step.attrs
        known = schemas.get(step.op, OPSET).attributes
        if kernel_input is not None:
            attrs["kernel_shape"] = work.shape(step, kernel_input)[2:]
        rank = len(attrs["kernel_shape"]) if "kernel_shape" in attrs else len(outputs[0].shape) - 2
        for name, default, count in (("strides", 1, rank), ("dilations", 1, rank), ("pads", 0, 2 * rank)):
            if name in known:
                attrs.setdefault(name, (default,) * count)

    return settle


def _batch_norm(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    if not step.attrs.get("training_mode"):
        step.attrs.pop("momentum", None)
        if len(step.outputs) > 1:
            refuse("BatchNormalization has running statistics as outputs only with training_mode 1.")


def _gemm(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    if not step.input(2):
        step.attrs["beta"] = 1.0
    for name in ("transA", "transB"):
        step.attrs[name] = int(bool(step.attrs[name]))


def _transpose(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.attrs.setdefault("perm", tuple(reversed(range(len(work.shape(step))))))


def _flatten(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    step.attrs["axis"] = _axis(step.attrs["axis"], rank, step, rank + 1)


def _one_hot(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.attrs["axis"] = _axis(step.attrs["axis"], len(work.shape(step)) + 1, step)


def _cast(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    if not outputs[0].dtype.startswith("float8"):
        step.attrs.pop("saturate", None)


def _quantize(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    attrs = step.attrs
    rank = len(work.shape(step))
    if not work.shape(step, 1):
        attrs.pop("axis", None)  # one scale for the whole tensor
    else:
        attrs["axis"] = _axis(attrs["axis"], rank, step)
    attrs["output_dtype"] = CODES[outputs[0].dtype]
    _cast(step, work, outputs)


def _shape(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    start, end, _ = slice(step.attrs["start"], step.attrs.get("end")).indices(rank)
    step.attrs.update(start=start, end=max(start, end))


def _axes_attribute(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    axes = [_axis(axis, rank, step) for axis in step.attrs.get("axes", range(rank))]
    if step.op == "MeanVarianceNormalization":
        axes.sort()
    step.attrs["axes"] = tuple(axes)


def _reverse_sequence(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step))
    for name in ("batch_axis", "time_axis"):
        step.attrs[name] = _axis(step.attrs[name], rank, step)


def _constant_of_shape(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.attrs.setdefault("value", ("float32", (1,), (0.0,)))


def _eye_like(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.attrs["dtype"] = CODES[outputs[0].dtype]


def _attention(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    query = work.shape(step)
    if len(query) == 4:
        step.attrs.pop("q_num_heads", None)
        step.attrs.pop("kv_num_heads", None)


_ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def _recurrent(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    directions = 2 if step.attrs["direction"] == "bidirectional" else 1
    names = _ACTIVATIONS[step.op]
    given = step.attrs.get("activations", names * directions)
    step.attrs["activations"] = tuple(given[: len(names) * directions])


def _einsum(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    """Subscripts are names: give them new ones in order of appearance, and say the output."""
    equation = step.attrs["equation"].replace(" ", "")
    left, arrow, right = equation.partition("->")
    if not arrow:
        letters = sorted({c for c in left if c.isalpha() and left.count(c) == 1})
        right = ("..." if "..." in left else "") + "".join(letters)
    names: dict[str, str] = {}
    for character in left + right:
        if character.isalpha() and character not in names:
            names[character] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[len(names)]
    step.attrs["equation"] = "".join(names.get(c, c) for c in f"{left}->{right}")


def _resize(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    attrs = step.attrs
    if attrs["mode"] == "nearest":
        attrs.pop("antialias", None)
    else:
        attrs.pop("nearest_mode", None)
    if attrs["mode"] != "cubic":
        attrs.pop("cubic_coeff_a", None)
        if not attrs.get("antialias"):
            attrs.pop("exclude_outside", None)
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        attrs.pop("extrapolation_value", None)
        step.set_input(1, "")
    if step.input(2):
        attrs.pop("keep_aspect_ratio_policy", None)
    _all_axes(step, work)


def _all_axes(step: NodeStep, work: Workbench) -> None:
    """A Resize of some axes as one of all: the others keep their size."""
    axes = step.attrs.get("axes")
    if axes is None or step.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch" or step.input(1):
        return
    shape = work.shape(step)
    for position, word, others in ((2, "scales", (1.0,) * len(shape)), (3, "sizes", shape)):
        given = work.static(step, position, word)
        if given is not None and given.data is not None:
            full: list[object] = list(others)
            for axis, value in zip(axes, given.data, strict=True):
                full[_axis(axis, len(shape), step)] = value
            step.set_input(position, work.make_static(full, given.dtype))
    del step.attrs["axes"]


_EXPLICIT: dict[str, Callable[[NodeStep, Workbench, list[Value]], None]] = {
    "Attention": _attention,
    "AveragePool": _pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CenterCropPad": _axes_attribute,
    "Col2Im": _spatial_defaults(None),
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _spatial_defaults(1),
    "DequantizeLinear": _quantize,
    "Einsum": _einsum,
    "EyeLike": _eye_like,
    "Flatten": _flatten,
    "GRU": _recurrent,
    "Gemm": _gemm,
    "LSTM": _recurrent,
    "LpPool": _pool,
    "MaxPool": _pool,
    "MaxUnpool": _spatial_defaults(None),
    "MeanVarianceNormalization": _axes_attribute,
    "OneHot": _one_hot,
    "QLinearConv": _conv,
    "QuantizeLinear": _quantize,
    "RNN": _recurrent,
    "Resize": _resize,
    "ReverseSequence": _reverse_sequence,
    "Shape": _shape,
    "Transpose": _transpose,
}
