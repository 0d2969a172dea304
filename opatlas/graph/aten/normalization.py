"""Norms and softmaxes."""

from __future__ import annotations

from functools import partial

from opatlas.graph.aten.builder import CannotMap, Ref, size_of
from opatlas.graph.aten.call import AtenRule, Call, rule


def _or_filled(call: Call, name: str, number: float, like: Ref, shape: tuple[int, ...]) -> Ref:
    given = call.optional(name)
    return call.filled(number, like.dtype, shape) if given is None else given


def batch_norm(call: Call) -> Ref | list[Ref]:
    """By the running statistics, or in training mode by the batch's own.

    In training mode the batch's mean and variance, which PyTorch keeps for the backward pass, leave too: they
    are ONNX's running statistics with no weight on the old ones. Blending them into the running averages, a
    few numbers a channel, is left out.
    """
    x = call.tensor("input")
    channels = (x.shape[1],)
    weight = _or_filled(call, "weight", 1.0, x, channels)
    bias = _or_filled(call, "bias", 0.0, x, channels)
    epsilon = float(call.number("eps"))
    if not call.arguments.get("training"):
        given = call.tensor("running_mean"), call.tensor("running_var")
        return call.node("BatchNormalization", x, weight, bias, *given, epsilon=epsilon)
    if x.shape[0] * size_of(x.shape[2:]) < 2:
        raise CannotMap("batch norm in training mode of one value a channel")
    wide = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    unread = [call.filled(number, wide, channels) for number in (0.0, 1.0)]
    return call.nodes_of(
        "BatchNormalization",
        [x, weight, bias, *unread],
        [(None, None), (wide, channels), (wide, channels)],
        epsilon=epsilon,
        training_mode=1,
        momentum=0.0,
    )


def layer_norm(call: Call) -> Ref:
    x, shape = call.tensor("input"), tuple(call.numbers("normalized_shape"))
    weight = _or_filled(call, "weight", 1.0, x, shape)
    epsilon = float(call.number("eps"))
    return call.node(
        "LayerNormalization", x, weight, call.optional("bias"), axis=-len(shape), epsilon=epsilon
    )


def group_norm(call: Call) -> Ref:
    x = call.tensor("input")
    groups = int(call.number("group" if "group" in call.arguments else "num_groups"))
    return call.node(
        "GroupNormalization",
        x,
        _or_filled(call, "weight", 1.0, x, (x.shape[1],)),
        _or_filled(call, "bias", 0.0, x, (x.shape[1],)),
        num_groups=groups,
        epsilon=float(call.number("eps")),
    )


def softmax(call: Call, op: str = "Softmax") -> Ref:
    x = call.tensor("self")
    axis = call.axis(x.rank)
    if call.arguments.get("half_to_float"):
        x = call.cast(x, "float32")
    if wanted := ("dtype" in call.arguments and call.dtype("dtype")):
        x = call.cast(x, wanted)
    if not x.shape or size_of(x.shape) == 0:
        raise CannotMap("a softmax of a scalar or of nothing")
    return call.node(op, x, axis=axis)


log_softmax = partial(softmax, op="LogSoftmax")

RULES: dict[str, AtenRule] = {
    "native_batch_norm": rule(
        "input, weight=None, bias=None, running_mean=None, running_var=None, training=False, momentum=0.1, "
        "eps=1e-05",
        batch_norm,
    ),
    "_native_batch_norm_legit_no_training": rule(
        "input, weight=None, bias=None, running_mean=None, running_var=None, momentum=0.1, eps=1e-05",
        batch_norm,
    ),
    "batch_norm": rule(
        "input, weight=None, bias=None, running_mean=None, running_var=None, training=False, momentum=0.1, "
        "eps=1e-05, cudnn_enabled=True",
        batch_norm,
    ),
    "native_layer_norm": rule("input, normalized_shape, weight=None, bias=None, eps=1e-05", layer_norm),
    "layer_norm": rule(
        "input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True", layer_norm
    ),
    "native_group_norm": rule(
        "input, weight=None, bias=None, N=0, C=0, HxW=0, group=1, eps=1e-05", group_norm
    ),
    "group_norm": rule(
        "input, num_groups, weight=None, bias=None, eps=1e-05, cudnn_enabled=True", group_norm
    ),
    "_softmax": rule("self, dim, half_to_float=False", softmax),
    "_log_softmax": rule("self, dim, half_to_float=False", log_softmax),
    "softmax.int": rule("self, dim, dtype=None", softmax),
    "log_softmax.int": rule("self, dim, dtype=None", log_softmax),
}
