"""Matrix products, contractions and attention."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import TorchSite


def _matmul(site: TorchSite) -> Callable[..., torch.Tensor]:
    return torch.matmul


def gemm(site: TorchSite) -> Callable[..., torch.Tensor]:
    """alpha · A' · B' + beta · C: ``linear`` or ``addmm`` where a user of PyTorch would have them."""
    alpha, beta = float(site.attrs.get("alpha", 1.0)), float(site.attrs.get("beta", 1.0))
    turn_a, turn_b = site.flag("transA"), site.flag("transB")
    plain = alpha == 1 and beta == 1 and not site.input(0).dtype.startswith(("int", "uint"))
    if not site.has(2):
        return lambda a, b, c=None: _scaled(torch.mm(a.t() if turn_a else a, b.t() if turn_b else b), alpha)
    if plain and not turn_a and turn_b and site.shape(2) == (site.shape(1)[0],):
        return F.linear

    def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.addmm(c, a.t() if turn_a else a, b.t() if turn_b else b, beta=beta, alpha=alpha)

    if site.input(0).dtype.startswith(("int", "uint")):
        return lambda a, b, c: torch.addmm(
            c, a.t() if turn_a else a, b.t() if turn_b else b, beta=int(beta), alpha=int(alpha)
        )
    return run


def _scaled(product: torch.Tensor, alpha: float) -> torch.Tensor:
    return product if alpha == 1 else product * alpha


def _einsum(site: TorchSite) -> Callable[..., torch.Tensor]:
    equation = str(site.attrs["equation"])
    return lambda *tensors: torch.einsum(equation, *tensors)


def _det(site: TorchSite) -> Callable[..., torch.Tensor]:
    return torch.linalg.det


def _trilu(site: TorchSite) -> Callable[..., torch.Tensor]:
    diagonal = site.numbers(1, "diagonal")[0] if site.has(1) else 0
    function = torch.triu if site.flag("upper", 1) else torch.tril
    return lambda x, *_: function(x, diagonal)


BUILDERS: dict[str, Callable[[TorchSite], Callable[..., object]]] = {
    "Det": _det,
    "Einsum": _einsum,
    "Gemm": gemm,
    "MatMul": _matmul,
    "Trilu": _trilu,
}
