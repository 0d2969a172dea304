"""Records of open benchmark lists (DeepBench, TritonBench, KernelBench, TVM) as aten records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opatlas.graph.aten import CallRecord, CannotMap, TensorArgument
from opatlas.graph.aten.registry import MISFITS
from opatlas.identity.strides import dense_strides

_WINDOW = ("stride", "padding", "dilation")


def to_aten(record: CallRecord) -> CallRecord:
    """The aten call of a benchmark record. Raises :class:`CannotMap` with the reason."""
    suite, _, name = record.op.partition(".")
    make = _kernelbench if suite == "kernelbench" else _MAKERS.get(record.op)
    if make is None:
        raise CannotMap(f"{suite}: {name} has no rule yet")
    try:
        return make(record)
    except MISFITS as error:
        raise CannotMap(f"{suite}: {name} has arguments that do not fit ({type(error).__name__})") from None


def _tensor(record: CallRecord, index: int) -> TensorArgument:
    if index >= len(record.inputs) or record.inputs[index] is None:
        raise CannotMap(f"{record.op} lacks its input {index}")
    return record.inputs[index]  # type: ignore[return-value]


def _aten(
    record: CallRecord, op: str, attrs: Mapping[str, Any], **inputs: TensorArgument | None
) -> CallRecord:
    named = tuple(replace(tensor, name=name) for name, tensor in inputs.items() if tensor is not None)
    return replace(record, op=f"aten.{op}", attrs=dict(attrs), inputs=named)


def _chosen(given: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


def _gemm(record: CallRecord) -> CallRecord:
    """A product of two matrices; a transposed one is its storage read with swapped strides."""
    a, b = (_turned(_tensor(record, i), record.attrs.get(flag)) for i, flag in enumerate(("a_t", "b_t")))
    return _aten(record, "mm.default", {}, self=a, mat2=b)


def _turned(tensor: TensorArgument, turn: Any) -> TensorArgument:
    """Lists name the stored shape; the product reads a transposed matrix the other way round."""
    if not turn:
        return tensor
    rows, columns = (int(dim) for dim in tensor.shape)
    return replace(tensor, shape=(columns, rows), strides=(1, columns))


def _conv(record: CallRecord) -> CallRecord:
    attrs = {name: value for name, value in record.attrs.items() if name in (*_WINDOW, "groups")}
    return _aten(record, "conv2d.default", attrs, input=_tensor(record, 0), weight=_tensor(record, 1))


def _permuted(tensor: TensorArgument, order: Sequence[int]) -> TensorArgument:
    """The same storage with its dimensions in another order: NHWC as NCHW with strides."""
    shape = tuple(int(dim) for dim in tensor.shape)
    steps = dense_strides(shape)
    strides = tuple(steps[axis] for axis in order)
    turned = tuple(shape[axis] for axis in order)
    return replace(tensor, shape=turned, strides=None if strides == dense_strides(turned) else strides)


def _channels_last(record: CallRecord) -> CallRecord:
    """TVM's NHWC convolutions with HWIO weights, read as NCHW and OIHW with strides; the output is NCHW."""
    x, weight = _tensor(record, 0), _tensor(record, 1)
    rank, space = len(x.shape), len(x.shape) - 2
    attrs = {name: value for name, value in record.attrs.items() if name in _WINDOW}
    x = _permuted(x, (0, rank - 1, *range(1, rank - 1)))
    if record.op == "tvm.depthwise_conv2d_nhwc":
        attrs["groups"] = x.shape[1]
        return _aten(record, "conv2d.default", attrs, input=x, weight=_permuted(weight, (3, 0, 1, 2)))
    if record.op == "tvm.conv2d_transpose_nhwc":
        return _aten(record, "conv_transpose2d.input", attrs, input=x, weight=_permuted(weight, (2, 3, 0, 1)))
    attrs["groups"] = record.attrs.get("groups", 1)
    weight = _permuted(weight, (rank - 1, rank - 2, *range(space)))
    return _aten(record, f"conv{space}d.default", attrs, input=x, weight=weight)


def _batched(record: CallRecord) -> CallRecord:
    return _aten(record, "bmm.default", {}, self=_tensor(record, 0), mat2=_tensor(record, 1))


def _along_axis(op: str, default: int | None) -> Callable[[CallRecord], CallRecord]:
    return lambda record: _aten(
        record, op, {"dim": record.attrs.get("axis", default)}, self=_tensor(record, 0)
    )


_MAKERS: dict[str, Callable[[CallRecord], CallRecord]] = {
    "deepbench.gemm": _gemm,
    "deepbench.conv2d": _conv,
    "tritonbench.gemm": _gemm,
    "tvm.conv1d_nlc": _channels_last,
    "tvm.conv2d_nhwc": _channels_last,
    "tvm.conv3d_ndhwc": _channels_last,
    "tvm.depthwise_conv2d_nhwc": _channels_last,
    "tvm.conv2d_transpose_nhwc": _channels_last,
    "tvm.batch_matmul": _batched,
    "tvm.softmax": _along_axis("softmax.int", -1),
    "tvm.norm_bmn": _along_axis("linalg_vector_norm.default", None),
}

_LAYERS = {
    "nn.Conv1d": "conv1d",
    "nn.Conv2d": "conv2d",
    "nn.Conv3d": "conv3d",
    "nn.ConvTranspose1d": "conv_transpose1d",
    "nn.ConvTranspose2d": "conv_transpose2d.input",
    "nn.ConvTranspose3d": "conv_transpose3d.input",
}
_POOLS = {
    "nn.MaxPool1d": "max_pool1d",
    "nn.MaxPool2d": "max_pool2d",
    "nn.MaxPool3d": "max_pool3d",
    "nn.AvgPool1d": "avg_pool1d",
    "nn.AvgPool2d": "avg_pool2d",
    "nn.AvgPool3d": "avg_pool3d",
}
_SIMPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "ReLU": ("relu", {}), "Sigmoid": ("sigmoid", {}), "Softmax": ("softmax.int", {"dim": 1}),
    "Swish": ("silu", {}),
    "SELU_": ("selu", {}), "Softplus": ("softplus", {}), "ELU": ("elu", {}), "cumsum": ("cumsum", {"dim": 1}),
    "Sum_reduction_over_a_dimension": ("sum.dim_IntList", {"dim": [1], "keepdim": True}),
    "Max_reduction_over_a_dimension": ("amax", {"dim": [1]}),
    "Argmin_over_a_dimension": ("argmin", {"dim": 1}),
    "MinGPTNewGelu": ("gelu", {"approximate": "tanh"}),
}  # fmt: skip


def _kernelbench(record: CallRecord) -> CallRecord:
    """Problems that are one aten call; the others are small programs."""
    name, calls = record.op.partition(".")[2], record.attrs.get("calls", [])
    if name in _SIMPLE:
        op, attrs = _SIMPLE[name]
        return _aten(record, op, attrs, self=_tensor(record, 0))
    if calls in (["torch.matmul"], ["torch.bmm"]):
        a, b = _tensor(record, 0), _tensor(record, 1)
        if name.endswith(("transposed_B", "transposed_both")):
            b = _turned(b, True)
        if name.endswith(("transposed_A", "transposed_both")):
            a = _turned(a, True)
        return _aten(record, "matmul.default", {}, self=a, other=b)
    layers = record.attrs.get("layers", [])
    if len(layers) == 1 and isinstance(layers[0], Mapping):
        return _layer(record, layers[0])
    raise CannotMap(f"kernelbench: {name} is a program of several calls")


def _layer(record: CallRecord, layer: Mapping[str, Any]) -> CallRecord:
    x, kind = _tensor(record, 0), layer.get("layer")
    if kind in _POOLS:
        attrs = _chosen(layer, "kernel_size", *_WINDOW, "ceil_mode")
        if kind.startswith("nn.Avg"):
            attrs.pop("dilation", None)
        return _aten(record, _POOLS[kind], attrs, self=x)
    if kind in _LAYERS:
        return _conv_layer(record, layer, x)
    raise CannotMap(f"kernelbench: a layer {kind} has no rule yet")


def _conv_layer(record: CallRecord, layer: Mapping[str, Any], x: TensorArgument) -> CallRecord:
    kind = str(layer["layer"])
    space, turned = int(kind[-2]), "Transpose" in kind
    places = dict(zip(("in_channels", "out_channels", "kernel_size"), layer.get("args", []), strict=False))
    given = {**places, **layer}
    try:
        into, out, groups = int(given["in_channels"]), int(given["out_channels"]), int(given.get("groups", 1))
        kernel = given["kernel_size"]
        sizes = [int(size) for size in kernel] if isinstance(kernel, list) else [int(kernel)] * space
    except (KeyError, TypeError, ValueError):
        raise CannotMap(f"kernelbench: a layer {kind} without its sizes") from None
    shape = (into, out // groups, *sizes) if turned else (out, into // groups, *sizes)
    attrs = _chosen(given, *_WINDOW, "groups", *(("output_padding",) if turned else ()))
    weight = TensorArgument(x.dtype, shape, const=True)
    bias = TensorArgument(x.dtype, (out,), const=True) if given.get("bias") else None
    return _aten(record, _LAYERS[kind], attrs, input=x, weight=weight, bias=bias)
