"""Other ways to write a node in PyTorch: the same result, another kernel inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from opatlas.load.torch.graph import Kept
from opatlas.load.torch.kept import kept_call
from opatlas.load.torch.ops.site import TorchSite, Unsupported
from opatlas.load.torch.ops.windows import read_window

Function = Callable[..., Any]


def reformed(site: TorchSite, form: str, keep: bool) -> Function | Kept | None:
    """The node in another form; None if the form is not for its type. Raises :class:`Unsupported` if it is
    not for its shapes. ``keep``: use a kept output if the form can."""
    build = FORMS[form].get(site.node.op)
    return None if build is None else build(site, keep)


def _windows(site: TorchSite) -> tuple[Sequence[int], Sequence[int]]:
    """Kernel and output sizes of a convolution whose windows neither overlap nor leave anything out."""
    window, made = read_window(site), site.output().shape[2:]
    whole = all(
        (stride == size or count == 1) and size * count == length and (dilation == 1 or size == 1)
        for stride, size, count, length, dilation in zip(
            window.strides, window.kernel, made, site.shape(0)[2:], window.dilations, strict=True
        )
    )
    if not whole or any(site.attrs["pads"]) or site.attrs["group"] != 1:
        raise Unsupported("a convolution that is no single matrix product")
    return window.kernel, made


def _conv_product(site: TorchSite, keep: bool) -> Function | Kept:
    """Windows side by side are a matrix product: 1×1, patches, and a kernel as large as the map."""
    kernel, made = _windows(site)
    batch, channels = site.shape(0)[:2]
    filters, places, taps = site.shape(1)[0], math.prod(made), math.prod(kernel)
    shape = site.output().shape
    if places == 1:

        def linear(x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
            return F.linear(x.reshape(batch, -1), w.reshape(filters, -1), b).view(shape)

        return linear
    if taps != 1:
        return _patches(site, kernel, made)

    def parts(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return w.reshape(filters, channels), x.reshape(batch, channels, places)

    def product(x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
        rows, columns = parts(x, w)
        if b is None:
            return torch.matmul(rows, columns).view(shape)
        return torch.baddbmm(b.view(1, -1, 1), rows.expand(batch, -1, -1), columns).view(shape)

    def into(x: torch.Tensor, w: torch.Tensor, b: Any = None, *, out: torch.Tensor) -> torch.Tensor:
        rows, columns = parts(x, w)
        flat = out.view(batch, filters, places)
        if b is None:
            torch.bmm(rows.expand(batch, -1, -1), columns, out=flat)
        else:
            torch.baddbmm(b.view(1, -1, 1), rows.expand(batch, -1, -1), columns, out=flat)
        return out

    return kept_call(product, into) if keep else product


def _patches(site: TorchSite, kernel: Sequence[int], made: Sequence[int]) -> Function:
    batch, channels = site.shape(0)[:2]
    filters, spatial = site.shape(1)[0], len(kernel)
    split = [size for pair in zip(made, kernel, strict=True) for size in pair]
    order = [0, *range(2, 2 + 2 * spatial, 2), 1, *range(3, 3 + 2 * spatial, 2)]
    rows = batch * math.prod(made)

    def run(x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
        patches = x.reshape(batch, channels, *split).permute(order).reshape(rows, -1)
        return F.linear(patches, w.reshape(filters, -1), b).view(batch, *made, filters).movedim(-1, 1)

    return run


def _transposed_product(site: TorchSite, keep: bool) -> Function:
    """A transposed convolution whose windows do not overlap: one product, then its blocks side by side."""
    kernel = site.attrs["kernel_shape"]
    spatial = len(kernel)
    batch, channels, *sizes = site.shape(0)
    shape = site.output().shape
    grown = [size * window for size, window in zip(sizes, kernel, strict=True)]
    if kernel != site.attrs["strides"] or grown != list(shape[2:]) or site.attrs["group"] != 1:
        raise Unsupported("a transposed convolution that is no single matrix product")
    order = [0, 1, *(axis for i in range(spatial) for axis in (2 + spatial + i, 2 + i))]
    filters = shape[1]

    def run(x: torch.Tensor, w: torch.Tensor, b: Any = None) -> torch.Tensor:
        made = torch.matmul(w.reshape(channels, -1).t(), x.reshape(batch, channels, -1))
        made = made.view(batch, filters, *kernel, *sizes).permute(order).reshape(shape)
        return made if b is None else made.add_(b.view(1, -1, *[1] * spatial))

    return run


def _vector(site: TorchSite, keep: bool) -> Function:
    """A product with one row or one column, as one with a vector."""
    a, b = site.shape(0), site.shape(1)
    shape = site.output().shape
    if len(b) == 2 and b[1] == 1 and len(a) >= 2:
        return lambda x, y: torch.mv(x.reshape(-1, b[0]), y.reshape(-1)).view(shape)
    if len(a) == 2 and a[0] == 1 and len(b) == 2:
        return lambda x, y: torch.mv(y.t(), x.reshape(-1)).view(shape)
    raise Unsupported("a product without a vector")


def _turned(site: TorchSite, keep: bool) -> Function:
    """The second operand is stored transposed in every run, before the product."""
    if len(site.shape(1)) != 2 or len(site.shape(0)) < 2:
        raise Unsupported("a second operand that is no matrix")
    if site.node.op == "MatMul":
        return lambda x, y: F.linear(x, y.t().contiguous())
    if site.number("alpha") != 1 or site.number("beta") != 1 or site.flag("transB"):
        raise Unsupported("a scaled product, or one whose second operand is turned already")
    turn = site.flag("transA")

    def run(a: torch.Tensor, b: torch.Tensor, c: Any = None) -> torch.Tensor:
        a, b = a.t() if turn else a, b.t().contiguous()
        return torch.mm(a, b.t()) if c is None else torch.addmm(c, a, b.t())

    return run


def _attention(site: TorchSite, keep: bool) -> Function:
    """softmax(q·kᵀ·scale + mask)·v, one call after another, for four dimensions."""
    plain = site.rank() == 4 and len(site.node.outputs) == 1 and not site.has(4)
    if not plain or site.shape(0)[1] != site.shape(1)[1] or site.number("softcap"):
        raise Unsupported("attention with flat, cached, grouped or capped heads")
    scale = site.attrs.get("scale")
    scale = site.shape(0)[-1] ** -0.5 if scale is None else float(scale)
    causal = site.flag("is_causal")

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any = None, *_: Any) -> torch.Tensor:
        scores = torch.matmul(q * scale, k.transpose(-1, -2))
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill_(~seen, -math.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return torch.matmul(torch.softmax(scores, -1), v)

    return run


FORMS: Mapping[str, Mapping[str, Callable[[TorchSite, bool], Function | Kept]]] = {
    "product": {"Conv": _conv_product, "ConvTranspose": _transposed_product},
    "vector": {"MatMul": _vector},
    "turned": {"MatMul": _turned, "Gemm": _turned},
    "written_out": {"Attention": _attention},
}
"""Form → operator type → what makes the call."""
