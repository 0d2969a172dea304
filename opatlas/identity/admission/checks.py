"""Contradictions that ONNX's inference lets pass, each refused with what would be right."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from opatlas.identity import schema as schemas
from opatlas.identity.bounds import refuse, shown
from opatlas.identity.operator import Value
from opatlas.identity.workbench import NodeStep, Workbench


def check_step(step: NodeStep, schema: schemas.Schema) -> None:
    """Inputs, outputs and attributes against the schema; attributes become plain data of its kinds."""
    if not schema.min_inputs <= len(step.inputs) <= schema.max_inputs:
        wanted = _count(schema.min_inputs, schema.max_inputs)
        refuse(f"{step.op} takes {wanted} inputs, not {len(step.inputs)}.")
    if not schema.min_outputs <= len(step.outputs) <= schema.max_outputs:
        wanted = _count(schema.min_outputs, schema.max_outputs)
        refuse(f"{step.op} has {wanted} outputs, not {len(step.outputs)}.")
    optional = {
        i for i, formal in enumerate(schema.raw.inputs) if formal.option == formal.option.__class__.Optional
    }
    for position, name in enumerate(step.inputs):
        if not name and position not in optional:
            refuse(f"{step.op}'s input {position} may not be left out.")
    step.attrs = {
        name: schemas.coerce(value, _known(step, schema, name), step.op) for name, value in step.attrs.items()
    }
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in step.attrs:
            refuse(f"{step.op} needs its attribute '{name}'.")


def _known(step: NodeStep, schema: schemas.Schema, name: str) -> schemas.Attribute:
    if name not in schema.attributes:
        known = ", ".join(sorted(schema.attributes)) or "none"
        refuse(f"{step.op} has no attribute '{shown(name)}'; it knows: {known}.")
    return schema.attributes[name]


def _count(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} to {high}" if high < 1000 else f"{low} or more"


def check_shapes(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    """What ONNX accepted though no implementation could compute it."""
    if step.op in _CHECKS:
        _CHECKS[step.op](step, work, outputs)


def _positive(step: NodeStep, *names: str) -> None:
    for name in names:
        values: Any = step.attrs.get(name, ())
        step.need(all(value > 0 for value in values), f"every number in {name} must be at least 1")


def _conv(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    data, weight = work.shape(step, 0), work.shape(step, 3 if step.op == "QLinearConv" else 1)
    group = step.attrs.get("group", 1)
    step.need(len(data) >= 3 and len(data) == len(weight), "input and weight need the same rank, 3 or more")
    step.need(group >= 1, "group must be at least 1")
    _positive(step, "strides", "dilations", "kernel_shape")
    step.need(data[1] % group == 0, f"{data[1]} input channels do not divide into {group} groups")
    share = data[1] // group
    step.need(
        weight[1] == share,
        f"an input of {data[1]} channels in {group} group(s) needs a weight of shape "
        f"[{weight[0]}, {share}, …], not {list(weight)}",
    )
    step.need(weight[0] % group == 0, f"{weight[0]} output channels do not divide into {group} groups")
    if "kernel_shape" in step.attrs:
        kernel = tuple(step.attrs["kernel_shape"])
        step.need(kernel == weight[2:], f"kernel_shape {list(kernel)} is not the weight's {list(weight[2:])}")
    bias = {"Conv": 2, "QLinearConv": 8}.get(step.op, 9)
    if step.input(bias):
        shape = work.shape(step, bias)
        step.need(shape == (weight[0],), f"the bias must have shape [{weight[0]}], not {list(shape)}")


def _conv_transpose(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    data, weight = work.shape(step, 0), work.shape(step, 1)
    group = step.attrs.get("group", 1)
    step.need(len(data) >= 3 and len(data) == len(weight), "input and weight need the same rank, 3 or more")
    _positive(step, "strides", "dilations", "kernel_shape")
    step.need(group >= 1 and data[1] % group == 0, f"{data[1]} channels do not divide into {group} groups")
    step.need(
        data[1] == weight[0], f"an input of {data[1]} channels needs a weight of as many, not {weight[0]}"
    )
    if "kernel_shape" in step.attrs:
        kernel = tuple(step.attrs["kernel_shape"])
        step.need(kernel == weight[2:], f"kernel_shape {list(kernel)} is not the weight's {list(weight[2:])}")
    if step.input(2):
        made = weight[1] * group
        shape = work.shape(step, 2)
        step.need(shape == (made,), f"the bias must have shape [{made}], not {list(shape)}")


def _pool(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    rank = len(work.shape(step)) - 2
    step.need(rank >= 1, "the input needs batch, channels and at least one spatial dimension")
    kernel = step.attrs["kernel_shape"]
    step.need(len(kernel) == rank, f"kernel_shape must have {rank} numbers, not {len(kernel)}")
    _positive(step, "strides", "dilations", "kernel_shape")
    pads = step.attrs.get("pads", (0,) * (2 * rank))
    step.need(all(pad >= 0 for pad in pads), "pads must not be negative")
    dilations = step.attrs.get("dilations", (1,) * rank)
    for i in range(rank if len(pads) == 2 * rank and len(dilations) == rank else 0):
        extent = (kernel[i] - 1) * dilations[i] + 1
        step.need(max(pads[i], pads[rank + i]) < extent, "pads must be smaller than the kernel")


def _same_elements(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    before, after = math.prod(work.shape(step)), math.prod(outputs[0].shape)
    step.need(
        before == after,
        f"{before} elements cannot take the shape {list(outputs[0].shape)}, which has {after}",
    )


def _channel_vectors(*positions: int) -> Callable[[NodeStep, Workbench, list[Value]], None]:
    def check(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
        data = work.shape(step)
        step.need(len(data) >= 2, "the input needs batch and channels")
        for position in positions:
            shape = work.shape(step, position)
            step.need(shape == (data[1],), f"input {position} must have shape [{data[1]}], not {list(shape)}")

    return check


def _broadcasts(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return all(dim in (1, wide) for dim, wide in zip(shape, tail, strict=True))


def _layer_norm(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    data = work.shape(step)
    axis = step.attrs.get("axis", -1)
    step.need(-len(data) <= axis < len(data), f"axis {axis} is outside the input's {len(data)} dimensions")
    normal = data[axis:] if axis >= 0 else data[len(data) + axis :]
    for position in (1, 2):
        if step.input(position):
            shape = work.shape(step, position)
            step.need(
                _broadcasts(shape, normal),
                f"input {position} must have shape {list(normal)}, not {list(shape)}",
            )


def _group_norm(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    _channel_vectors(1, 2)(step, work, outputs)
    groups, channels = step.attrs["num_groups"], work.shape(step)[1]
    step.need(
        groups >= 1 and channels % groups == 0, f"{channels} channels do not divide into {groups} groups"
    )


def _onto_first(*positions: int) -> Callable[[NodeStep, Workbench, list[Value]], None]:
    def check(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
        for position in positions:
            if step.input(position):
                shape = work.shape(step, position)
                wide = outputs[0].shape
                step.need(
                    _broadcasts(shape, wide),
                    f"input {position} of shape {list(shape)} does not broadcast to {list(wide)}",
                )

    return check


def _depth_to_space(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.need(step.attrs["blocksize"] >= 1, "blocksize must be at least 1")
    _same_elements(step, work, outputs)


def _lrn(step: NodeStep, work: Workbench, outputs: list[Value]) -> None:
    step.need(step.attrs["size"] >= 1, "size must be at least 1")
    step.need(len(work.shape(step)) >= 2, "the input needs batch and channels")


_CHECKS: dict[str, Callable[[NodeStep, Workbench, list[Value]], None]] = {
    "AveragePool": _pool,
    "BatchNormalization": _channel_vectors(1, 2, 3, 4),
    "Conv": _conv,
    "ConvInteger": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "Gemm": _onto_first(2),
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _channel_vectors(1, 2),
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LpPool": _pool,
    "MaxPool": _pool,
    "PRelu": _onto_first(1),
    "QLinearConv": _conv,
    "RMSNormalization": _layer_norm,
    "Reshape": _same_elements,
    "SpaceToDepth": _depth_to_space,
}
