"""Matrix products, contractions and attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain


def gemm(site: TorchSite) -> Built:
    """alpha · A' · B' + beta · C: ``linear`` or ``addmm`` where a user of PyTorch would have them."""
    alpha, beta = site.number("alpha"), site.number("beta")
    turn_a, turn_b = site.flag("transA"), site.flag("transB")
    whole = site.input(0).dtype.startswith(("int", "uint"))
    if not site.has(2):
        return lambda a, b, c=None: _scaled(torch.mm(a.t() if turn_a else a, b.t() if turn_b else b), alpha)
    unscaled = alpha == 1 and beta == 1 and not whole
    if unscaled and not turn_a and turn_b and site.shape(2) == (site.shape(1)[0],):
        return F.linear
    if whole:
        alpha, beta = int(alpha), int(beta)

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.addmm(c, a.t() if turn_a else a, b.t() if turn_b else b, beta=beta, alpha=alpha)

    return run


def _scaled(product: torch.Tensor, alpha: float) -> torch.Tensor:
    return product if alpha == 1 else product * alpha


def _einsum(site: TorchSite) -> Built:
    equation = site.attrs["equation"]
    return lambda *tensors: torch.einsum(equation, *tensors)


def _trilu(site: TorchSite) -> Built:
    [diagonal] = site.numbers(1)
    function = torch.triu if site.flag("upper") else torch.tril
    return lambda x, *_: function(x, diagonal)


BUILDERS: dict[str, Builder] = {
    "Det": plain(torch.linalg.det),
    "Einsum": _einsum,
    "Gemm": gemm,
    "MatMul": plain(torch.matmul),
    "Trilu": _trilu,
}
