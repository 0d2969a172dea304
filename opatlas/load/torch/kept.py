"""Nodes that write into buffers which a binding keeps, instead of fresh memory in every run.

A fresh tensor above glibc's 32 MiB bound is faulted in page by page in every call: a ReLU over 205 MB takes
50 ms that way, and 6 ms into kept memory. Only operators whose ``out=`` form computes directly into the
buffer are listed; PyTorch's generated ones compute elsewhere and copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.load.torch.graph import Kept
from opatlas.load.torch.ops.elementwise import PLAIN
from opatlas.load.torch.ops.names import KEPT
from opatlas.load.torch.ops.normalisation import is_mixed
from opatlas.load.torch.ops.site import TorchSite, is_hard_sigmoid, plain
from opatlas.load.torch.ops.windows import read_window

Into = Callable[..., Any]
"""A node's call with its arguments, then its buffer by keyword (a tuple for several)."""

aten = torch.ops.aten


def kept(site: TorchSite, plain: Callable[..., Any]) -> Kept | None:
    """The node's call into a kept buffer; None if PyTorch has none that pays. ``plain``: the call that makes
    fresh tensors; its first run decides the buffer's layout."""
    build = BUILDERS.get(site.node.op)
    into = build(site) if build else None
    return None if into is None else kept_call(plain, into)


def kept_whole(function: Callable[..., Any]) -> Kept | None:
    """The same for a call that computes a small graph."""
    into = _WHOLE.get(function)
    return None if into is None else kept_call(function, into)


def kept_call(plain: Callable[..., Any], into: Into) -> Kept:
    """One binding's call: the first run makes the buffer, later ones write into it."""

    def fresh() -> Callable[..., Any]:
        buffers: list[torch.Tensor] = []

        def run(*arguments: Any) -> Any:
            if not buffers:
                first = plain(*arguments)
                several = isinstance(first, tuple | list)
                # Of their own, not of inference mode: such tensors cannot be written to outside it.
                with torch.inference_mode(mode=False):
                    buffers.extend(_like(made) for made in (first if several else (first,)))
                return first
            return into(*arguments, out=buffers[0] if len(buffers) == 1 else tuple(buffers))

        return run

    return Kept(fresh)


def _like(made: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(made.shape, made.stride(), dtype=made.dtype)


def _floating(build: Callable[[TorchSite], Into | None]) -> Callable[[TorchSite], Into | None]:
    """Only for floating inputs: PyTorch promotes whole numbers where ONNX does not."""
    return lambda site: build(site) if site.input(0).dtype in ("float32", "float64", "float16") else None


def _relu(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.clamp_min(x, 0, out=out)


def _gelu(site: TorchSite) -> Into:
    return functools.partial(aten.gelu.out, approximate=site.attrs["approximate"])


def _elu(site: TorchSite) -> Into:
    alpha = site.number("alpha")
    return lambda x, out: aten.elu.out(x, alpha, 1, 1, out=out)


def _leaky_relu(site: TorchSite) -> Into:
    slope = site.number("alpha")
    return lambda x, out: aten.leaky_relu.out(x, slope, out=out)


def _hard_sigmoid(site: TorchSite) -> Into | None:
    return aten.hardsigmoid.out if is_hard_sigmoid(site) else None


def _softmax(function: Into) -> Callable[[TorchSite], Into]:
    def build(site: TorchSite) -> Into:
        axis = site.axis()
        return lambda x, out: function(x, axis, False, out=out)

    return build


def _two(function: Into) -> Callable[[TorchSite], Into | None]:
    return lambda site: function if len(site.node.inputs) == 2 else None


def _pow(site: TorchSite) -> Into | None:
    exponent = site.scalar(1)
    if exponent is not None:
        return lambda x, y=None, out=None: torch.pow(x, exponent, out=out)
    return torch.pow if site.input(0).dtype == site.input(1).dtype else None


def _clip(site: TorchSite) -> Into | None:
    low, high = site.scalar(1), site.scalar(2)
    if low is None and high is None:
        return None
    return lambda x, *_, out: torch.clamp(x, low, high, out=out)


def _cast(site: TorchSite) -> Into | None:
    if site.input(0).dtype == site.output().dtype:
        return None
    return lambda x, *_, out: out.copy_(x)


def _matmul(site: TorchSite) -> Into | None:
    return None if 1 in (site.rank(0), site.rank(1)) else torch.matmul  # a vector's product changes its shape


def _gemm(site: TorchSite) -> Into:
    alpha, beta = site.number("alpha"), site.number("beta")
    turn_a, turn_b = site.flag("transA"), site.flag("transB")

    def run(a: torch.Tensor, b: torch.Tensor, c: Any = None, *, out: torch.Tensor) -> torch.Tensor:
        a, b = a.t() if turn_a else a, b.t() if turn_b else b
        if c is not None:
            return torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
        made = torch.mm(a, b, out=out)
        return made if alpha == 1 else made.mul_(alpha)

    return run


def _concat(site: TorchSite) -> Into:
    axis = site.axis()
    return lambda *tensors, out: torch.cat(tensors, axis, out=out)


def _gather(site: TorchSite) -> Into | None:
    """Rows by one dimension of positions that come with every run: a lookup without a reshape."""
    if site.content(1) is not None or len(site.shape(1)) == 0:
        return None
    axis, size = site.axis(), site.shape(0)[site.axis()]
    flat = [*site.shape(0)]
    flat[axis] = -1

    def run(x: torch.Tensor, indices: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        rows = indices.reshape(-1)
        try:
            torch.index_select(x, axis, rows, out=out.view(flat))
        except (IndexError, RuntimeError):  # a negative index; one out of bounds raises again
            torch.index_select(x, axis, torch.where(rows < 0, rows + size, rows), out=out.view(flat))
        return out

    return run


def _cumulative_sum(site: TorchSite) -> Into | None:
    if site.flag("exclusive") or site.flag("reverse"):
        return None
    [axis] = site.numbers(1)
    return lambda x, *_, out: torch.cumsum(x, axis, dtype=x.dtype, out=out)


def _pad(site: TorchSite) -> Into | None:
    """A constant border, written in every run, since the buffer may be changed between runs."""
    value, pads = site.static(2) if site.has(2) else 0.0, site.numbers(1)
    if site.attrs["mode"] != "constant" or min(pads, default=-1) < 0:
        return None
    inner = tuple(slice(begin, begin + size) for begin, size in zip(pads, site.shape(0), strict=False))

    def run(x: torch.Tensor, *_: Any, out: torch.Tensor) -> torch.Tensor:
        out.fill_(value)
        out[inner].copy_(x)
        return out

    return run


def _max_pool(site: TorchSite) -> Into | None:
    window = read_window(site)
    if not window.native or window.spatial != 2 or len(site.node.outputs) > 1:
        return None
    kernel, strides, pads, dilations = window.kernel, window.strides, window.begins, window.dilations
    call = aten.max_pool2d_with_indices.out
    places: list[torch.Tensor] = []  # PyTorch makes them whether asked for or not: one scratch for all

    def run(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        if not places or places[0].stride() != out.stride():
            places[:] = [torch.empty_strided(out.shape, out.stride(), dtype=torch.int64)]
        call(x, kernel, strides, pads, dilations, False, out=out, indices=places[0])
        return out

    return run


def _average_pool(site: TorchSite) -> Into | None:
    window = read_window(site)
    if not window.native or window.spatial != 2 or any(dilation != 1 for dilation in window.dilations):
        return None
    counts = site.flag("count_include_pad")
    kernel, strides, pads = window.kernel, window.strides, window.begins
    return lambda x, out: aten.avg_pool2d.out(x, kernel, strides, pads, False, counts, out=out)


def _batch_norm(site: TorchSite) -> Into | None:
    if is_mixed(site):
        return None
    epsilon = site.number("epsilon")
    if not site.flag("training_mode"):

        def normalise(x: Any, w: Any, b: Any, mean: Any, var: Any, out: torch.Tensor) -> torch.Tensor:
            none = x.new_empty(0)
            aten.native_batch_norm.out(
                x, w, b, mean, var, False, 0.0, epsilon, out=out, save_mean=none, save_invstd=none
            )
            return out

        return normalise
    if len(site.node.outputs) != 3 or site.number("momentum") != 0:
        return None

    def run(x: Any, w: Any, b: Any, mean: Any, var: Any, out: tuple[torch.Tensor, ...]) -> Any:
        made, new_mean, inverse = out
        aten.native_batch_norm.out(
            x, w, b, None, None, True, 0.0, epsilon, out=made, save_mean=new_mean, save_invstd=inverse
        )
        return made, new_mean, inverse.pow(-2) - epsilon

    return run


BUILDERS: Mapping[str, Callable[[TorchSite], Into | None]] = {
    **{op: plain(function) for op, function in PLAIN.items() if op in KEPT},
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "CumSum": _cumulative_sum,
    "Div": _floating(plain(torch.div)),
    "Elu": _elu,
    "Gather": _gather,
    "Gelu": _gelu,
    "Gemm": _floating(_gemm),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": plain(aten.hardswish.out),
    "LeakyRelu": _leaky_relu,
    "LogSoftmax": _softmax(aten._log_softmax.out),
    "MatMul": _matmul,
    "Max": _two(torch.maximum),
    "MaxPool": _max_pool,
    "Min": _two(torch.minimum),
    "Mish": plain(aten.mish.out),
    "Pad": _pad,
    "Pow": _floating(_pow),
    "Relu": _floating(plain(_relu)),
    "Sigmoid": plain(torch.sigmoid),
    "Softmax": _softmax(aten._softmax.out),
    "Tanh": plain(torch.tanh),
}

_WHOLE: Mapping[Any, Into] = {
    F.silu: aten.silu.out,
    torch.ne: torch.ne,
    torch.rsqrt: torch.rsqrt,
}
