"""Matrix products and contractions."""

from __future__ import annotations

import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, plain


def _gemm(site: TorchSite) -> Built:
    """alpha · A' · B' + beta · C"""
    alpha, beta = site.number("alpha"), site.number("beta")
    turn_a, turn_b = site.flag("transA"), site.flag("transB")

    def run(a, b, c=None):
        made = jnp.matmul(a.T if turn_a else a, b.T if turn_b else b)
        if alpha != 1:
            made = made * jnp.asarray(alpha, made.dtype)
        if c is None or beta == 0:
            return made
        return made + (c if beta == 1 else c * jnp.asarray(beta, c.dtype))

    return run


def _matmul_integer(site: TorchSite) -> Built:
    ranks = site.rank(0), site.rank(1)

    def run(a, b, a_zero=None, b_zero=None):
        a, b = a.astype(jnp.int32), b.astype(jnp.int32)
        if a_zero is not None:
            rows = a_zero.ndim == 1 and a_zero.size > 1 and ranks[0] > 1
            a = a - (a_zero.astype(jnp.int32)[:, None] if rows else a_zero.astype(jnp.int32))
        if b_zero is not None:
            b = b - b_zero.astype(jnp.int32)
        return jnp.matmul(a, b, preferred_element_type=jnp.int32)

    return run


def _einsum(site: TorchSite) -> Built:
    equation = site.attrs["equation"]
    return lambda *tensors: jnp.einsum(equation, *tensors)


def _trilu(site: TorchSite) -> Built:
    [diagonal] = site.numbers(1)
    function = jnp.triu if site.flag("upper") else jnp.tril
    return lambda x, *_: function(x, diagonal)


BUILDERS: dict[str, Builder] = {
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": plain(jnp.matmul),
    "MatMulInteger": _matmul_integer,
    "Trilu": _trilu,
}
