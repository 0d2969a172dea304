"""Attention and rotary embedding, as ONNX has them since opset 23."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from opatlas.load.torch.ops.site import Builder, Built, TorchSite, Unsupported


def _attention(site: TorchSite) -> Built:
    """Q, K, V of 4 dimensions [batch, heads, length, size] or 3 [batch, length, heads · size]."""
    if site.wants(3):
        raise Unsupported("Attention with the scores as an output")
    flat = site.rank() == 3
    q_heads, kv_heads = (site.attrs.get(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    if not flat:
        q_heads, kv_heads = site.shape(0)[1], site.shape(1)[1]
    causal, cap = site.flag("is_causal"), site.number("softcap")
    outputs = len(site.node.outputs)

    def run(q, k, v, mask=None, past_key=None, past_value=None, *_):
        if flat:
            q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
        before = 0 if past_key is None else past_key.shape[2]
        if past_key is not None:
            k, v = jnp.concatenate([past_key, k], 2), jnp.concatenate([past_value, v], 2)
        scale = float(site.attrs.get("scale") or q.shape[-1] ** -0.5)
        made = _weighted(q, k, v, _mask(q, k, mask, causal, before), scale, cap)
        if flat:
            made = made.transpose(0, 2, 1, 3).reshape(made.shape[0], made.shape[2], -1)
        return (made, k, v)[:outputs] if outputs > 1 else made

    return run


def _heads(x: jax.Array, heads: int) -> jax.Array:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def _mask(q, k, mask, causal: bool, offset: int):
    if not causal:
        return mask
    seen = jnp.tril(jnp.ones((q.shape[2], k.shape[2]), bool), offset)
    if mask is None:
        return seen
    return mask & seen if mask.dtype == jnp.bool_ else jnp.where(seen, mask, -jnp.inf)


def _weighted(q, k, v, bias, scale: float, cap: float) -> jax.Array:
    """softmax(scale · q · kᵀ + bias) · v; query heads share key heads in groups."""
    batch, heads, length, size = q.shape
    groups = heads // k.shape[1]
    grouped = q.reshape(batch, k.shape[1], groups, length, size)
    scores = jnp.einsum("bhgqd,bhkd->bhgqk", grouped * jnp.asarray(scale, q.dtype), k)
    if cap:
        scores = jnp.tanh(scores / cap) * cap
    scores = scores.reshape(batch, heads, length, k.shape[2])
    if bias is not None:
        scores = jnp.where(bias, scores, -jnp.inf) if bias.dtype == jnp.bool_ else scores + bias
    weights = jax.nn.softmax(scores, -1)
    if bias is not None:  # who sees nothing gets nothing
        weights = jnp.where(jnp.isneginf(scores).all(-1, keepdims=True), 0, weights)
    weights = weights.reshape(batch, k.shape[1], groups, length, k.shape[2])
    return jnp.einsum("bhgqk,bhkd->bhgqd", weights, v).reshape(batch, heads, length, v.shape[-1])


def _rotary(site: TorchSite) -> Built:
    heads, interleaved = site.attrs.get("num_heads", 0), site.flag("interleaved")
    part = site.attrs["rotary_embedding_dim"]
    flat = site.rank() == 3
    if not site.has(3) and len(site.shape(1)) != 3:
        raise Unsupported("RotaryEmbedding without positions needs tables of three dimensions")

    def run(x, cos, sin, positions=None):
        if positions is not None:
            cos, sin = cos[positions], sin[positions]
        turned = x.reshape(*x.shape[:2], heads, -1) if flat else x.swapaxes(1, 2)
        size = part or turned.shape[-1]
        head, tail = turned[..., :size], turned[..., size:]
        cos, sin = (table[..., : size // 2][:, :, None] for table in (cos, sin))
        one, two = (head[..., 0::2], head[..., 1::2]) if interleaved else jnp.split(head, 2, -1)
        pair = (one * cos - two * sin, one * sin + two * cos)
        made = jnp.stack(pair, -1).reshape(head.shape) if interleaved else jnp.concatenate(pair, -1)
        made = jnp.concatenate([made, tail], -1)
        return made.reshape(x.shape) if flat else made.swapaxes(1, 2)

    return run


BUILDERS: dict[str, Builder] = {"Attention": _attention, "RotaryEmbedding": _rotary}
