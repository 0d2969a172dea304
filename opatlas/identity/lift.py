"""From the caller's opset to the canonical one, operator type by operator type.

ONNX's own version converter is not used: it turns some nodes into several (Softmax), knows no way back from
newer opsets, and a key must not change when it does. What changed between opsets 7 and 28 was listed from
ONNX's schemas; ``tests/opatlas/identity/test_lift.py`` fails when a type changes that is not handled here.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import refuse
from opatlas.identity.dtypes import CODES
from opatlas.identity.operator import OPSET
from opatlas.identity.statics import REDUCTIONS
from opatlas.identity.workbench import NodeStep, Workbench


def lift(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """The nodes at the canonical opset that mean what ``step`` means at ``opset`` (mostly one)."""
    before = schemas.get(step.op, opset)
    if step.op in _ALWAYS:
        return _ALWAYS[step.op](step, opset, work)
    if step.op in _RENAMED and opset < OPSET:
        return _RENAMED[step.op](step, opset, work)
    after = schemas.find(step.op, OPSET)
    if after is None:
        refuse(f"{step.op} came after ONNX opset {OPSET}, in which operators are kept here.")
    if before.since == after.since:
        return [step]
    if opset > OPSET:
        return [_lower(step, before, after)]
    if step.op in REDUCTIONS:
        return _axes_to_input(step, opset, work)
    return _LIFTS[step.op](step, opset, work) if step.op in _LIFTS else [step]


def _lower(step: NodeStep, before: schemas.Schema, after: schemas.Schema) -> NodeStep:
    """A newer node as an older one: only where what is new is left at its default."""
    for name in list(step.attrs):
        if name not in after.attributes:
            if step.attrs[name] != before.attributes[name].default:
                refuse(f"{step.op}'s attribute '{name}' came after ONNX opset {OPSET}; leave it out.")
            del step.attrs[name]
    if len(step.inputs) > after.max_inputs:
        refuse(f"{step.op} takes at most {after.max_inputs} inputs at ONNX opset {OPSET}.")
    return step


def _attribute_to_input(step: NodeStep, work: Workbench, name: str, position: int) -> None:
    if name in step.attrs and not step.input(position):
        step.set_input(position, work.make_static(step.attrs.pop(name)))


def _axes_to_input(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    _attribute_to_input(step, work, "axes", 1)
    return [step]


def _split(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    _attribute_to_input(step, work, "split", 1)
    if not step.input(1):
        step.attrs["num_outputs"] = len(step.outputs)
        _check_even_split(step, work)
    return [step]


def _check_even_split(step: NodeStep, work: Workbench) -> None:
    shape = work.shape(step)
    axis = step.attrs.get("axis", 0)
    if -len(shape) <= axis < len(shape) and shape[axis] % len(step.outputs):
        refuse(f"Split cannot divide a dimension of {shape[axis]} into {len(step.outputs)} equal parts.")


def _slice(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    for position, name in enumerate(("starts", "ends", "axes"), start=1):
        _attribute_to_input(step, work, name, position)
    return [step]


def _clip(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    # Left out, opset 6 clips at float32's ends, which changes infinities only: that is no bound.
    dtype = work.value(step.inputs[0]).dtype
    for position, (name, none) in enumerate((("min", -3.4028235e38), ("max", 3.4028235e38)), start=1):
        bound = step.attrs.pop(name, None)
        if bound is not None and bound != none:
            step.set_input(position, work.make_static((bound,), dtype, ()))
    return [step]


def _pad(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if opset < 11:
        _attribute_to_input(step, work, "pads", 1)
        value = step.attrs.pop("value", 0.0)
        step.set_input(2, work.make_static((value,), work.value(step.inputs[0]).dtype, ()))
    return [step]


def _top_k(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if "k" in step.attrs:
        step.set_input(1, work.make_static((step.attrs.pop("k"),)))
    return [step]


def _softmax(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """Before opset 13 the input was flattened to two dimensions at ``axis``."""
    if opset >= 13:
        return [step]
    shape = work.shape(step)
    rank = len(shape)
    axis = step.attrs.pop("axis", 1)
    if not -rank <= axis <= rank:
        refuse(f"{step.op}'s axis {axis} is outside the {rank} dimensions of its input.")
    axis = axis + rank if axis < 0 else axis
    wide = [i for i in range(axis, rank) if shape[i] > 1]
    if rank and axis < rank and len(wide) <= 1:
        step.attrs["axis"] = wide[0] if wide else rank - 1
        return [step]
    flat, result = work.fresh(), work.fresh()
    two = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return [
        NodeStep("Reshape", [step.inputs[0], work.make_static(two)], [flat]),
        NodeStep(step.op, [flat], [result], {**step.attrs, "axis": 1}),
        NodeStep("Reshape", [result, work.make_static(shape)], step.outputs),
    ]


def _dropout(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    training = work.static(step, 2, "training_mode")
    if training is not None and training.data and training.data[0]:
        refuse("Dropout in training mode draws random numbers, so that no implementation can be checked.")
    if len(step.outputs) > 1:
        refuse("Dropout's mask has no use at inference; ask for its first output only.")
    return [NodeStep("Identity", [step.inputs[0]], step.outputs)]


def _batch_norm(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if step.attrs.pop("spatial", 1) != 1:
        refuse("BatchNormalization with spatial 0 was dropped from ONNX; use statistics per channel.")
    if opset < 14 and len(step.outputs) > 1:
        refuse("BatchNormalization with several outputs is for training; ask for its first output only.")
    return [step]


def _grid_sample(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if opset < 20:
        mode = step.attrs.get("mode", "bilinear")
        step.attrs["mode"] = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    return [step]


def _dft(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if opset < 20:
        step.set_input(2, work.make_static((step.attrs.pop("axis", 1),), "int64", ()))
    return [step]


def _roi_align(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if opset < 16:
        step.attrs["coordinate_transformation_mode"] = "output_half_pixel"
    return [step]


def _group_norm(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """Before opset 21 scale and bias were per group: spread them over each group's channels."""
    shape, groups = work.shape(step), step.attrs.get("num_groups", 0)
    scale = work.shape(step, 1)
    if opset >= 21 or len(shape) < 2 or scale == (shape[1],):
        return [step]
    if scale != (groups,) or groups < 1 or shape[1] % groups:
        refuse(f"GroupNormalization's scale must have {groups} values at opset {opset}, not {list(scale)}.")
    steps = []
    for position in (1, 2):
        column, spread, flat = (work.fresh() for _ in range(3))
        steps += [
            NodeStep("Reshape", [step.inputs[position], work.make_static((groups, 1))], [column]),
            NodeStep("Expand", [column, work.make_static((groups, shape[1] // groups))], [spread]),
            NodeStep("Reshape", [spread, work.make_static((shape[1],))], [flat]),
        ]
        step.inputs[position] = flat
    return [*steps, step]


def _resize(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    if opset == 10:
        return _upsample(step, opset, work)
    if step.attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        refuse("Resize's tf_half_pixel_for_nn was dropped from ONNX; use half_pixel.")
    return [step]


def _upsample(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """Upsample and opset 10's Resize: asymmetric coordinates, nearest rounds down."""
    if "scales" in step.attrs:
        scales = work.make_static(step.attrs.pop("scales"), "float32")
    else:
        scales = step.input(1)
    mode = {"bilinear": "linear"}.get(step.attrs.get("mode", "nearest"), step.attrs.get("mode", "nearest"))
    attrs = {"mode": mode, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return [NodeStep("Resize", [step.inputs[0], "", scales], step.outputs, attrs)]


def _scatter(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    return [NodeStep("ScatterElements", step.inputs, step.outputs, step.attrs)]


def _global_lp_pool(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """One window over the whole image."""
    return [
        NodeStep("LpPool", step.inputs, step.outputs, {**step.attrs, "kernel_shape": work.shape(step)[2:]})
    ]


def _recurrent(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """Time first: with the batch first (``layout`` 1) tensors are turned before and after."""
    if not step.attrs.pop("layout", 0):
        return [step]
    before, after = [], []
    for position in (0, 5, 6):  # the sequences, and the states that they begin from
        if step.input(position):
            turned = work.fresh()
            before.append(NodeStep("Transpose", [step.inputs[position]], [turned], {"perm": (1, 0, 2)}))
            step.inputs[position] = turned
    for position, perm in enumerate(((2, 0, 1, 3), (1, 0, 2), (1, 0, 2))[: len(step.outputs)]):
        turned = work.fresh()
        after.append(NodeStep("Transpose", [turned], [step.outputs[position]], {"perm": perm}))
        step.outputs[position] = turned
    return [*before, step, *after]


def _cast_like(step: NodeStep, opset: int, work: Workbench) -> list[NodeStep]:
    """Only the second input's type matters: a Cast."""
    attrs = {name: value for name, value in step.attrs.items() if name == "saturate"}
    attrs["to"] = CODES[work.value(step.inputs[1]).dtype]
    return [NodeStep("Cast", [step.inputs[0]], step.outputs, attrs)]


_Lift = Callable[[NodeStep, int, Workbench], list[NodeStep]]

_ALWAYS: dict[str, _Lift] = {
    "CastLike": _cast_like,
    "Dropout": _dropout,
    "GRU": _recurrent,
    "GlobalLpPool": _global_lp_pool,
    "LSTM": _recurrent,
    "RNN": _recurrent,
}
_RENAMED: dict[str, _Lift] = {"Upsample": _upsample, "Scatter": _scatter}
_LIFTS: dict[str, _Lift] = {
    "BatchNormalization": _batch_norm,
    "Clip": lambda step, opset, work: _clip(step, opset, work) if opset < 11 else [step],
    "DFT": _dft,
    "GridSample": _grid_sample,
    "GroupNormalization": _group_norm,
    "Hardmax": _softmax,
    "LogSoftmax": _softmax,
    "Pad": _pad,
    "Resize": _resize,
    "RoiAlign": _roi_align,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _axes_to_input,
    "TopK": _top_k,
    "Unsqueeze": _axes_to_input,
}
