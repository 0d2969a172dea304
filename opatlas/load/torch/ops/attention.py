"""Attention and rotary embedding, as ONNX has them since opset 23."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from opatlas.load.torch.ops.site import Builder, Built, TorchSite


def _attention(site: TorchSite) -> Built:
    """Q, K, V of 4 dimensions [batch, heads, length, size] or 3 [batch, length, heads · size]."""
    flat = site.rank() == 3
    q_heads, kv_heads = (site.attrs.get(name, 0) for name in ("q_num_heads", "kv_num_heads"))
    if not flat:
        q_heads, kv_heads = site.shape(0)[1], site.shape(1)[1]
    scale = site.attrs.get("scale")
    causal, cap = site.flag("is_causal"), site.number("softcap")
    outputs = len(site.node.outputs)

    def run(q, k, v, mask=None, past_key=None, past_value=None, *_):
        if flat:
            q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
        before = 0 if past_key is None else past_key.shape[2]  # a query sees the past and what is up to it
        if past_key is not None:
            k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
        bias = _mask(q, k, mask, causal, before)
        made = _scores(q, k, v, bias, scale, cap)
        if flat:
            made = made.transpose(1, 2).reshape(made.shape[0], made.shape[2], -1)
        return (made, k, v)[:outputs] if outputs > 1 else made

    return run


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _mask(q, k, mask, causal: bool, offset: int):
    if not causal:
        return mask
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(offset)
    if mask is None:
        return seen
    return mask & seen if mask.dtype == torch.bool else mask.masked_fill(~seen, -math.inf)


def _scores(q, k, v, bias, scale: float | None, cap: float):
    grouped = q.shape[1] != k.shape[1]
    if not cap:
        return F.scaled_dot_product_attention(q, k, v, bias, 0.0, False, scale=scale, enable_gqa=grouped)
    if grouped:
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
    scores = q @ k.transpose(-1, -2) * (scale if scale is not None else q.shape[-1] ** -0.5)
    scores = torch.tanh(scores / cap) * cap
    if bias is None:
        return torch.softmax(scores, -1) @ v
    scores = scores.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else scores + bias
    blind = torch.isneginf(scores).all(-1, keepdim=True)  # who sees nothing gets nothing
    return torch.softmax(scores, -1).masked_fill(blind, 0) @ v


def _rotary(site: TorchSite) -> Built:
    heads, interleaved = site.attrs.get("num_heads", 0), site.flag("interleaved")
    part = site.attrs["rotary_embedding_dim"]
    flat = site.rank() == 3

    def run(x, cos, sin, positions=None):
        if positions is not None:
            cos, sin = cos[positions], sin[positions]
        turned = x.reshape(*x.shape[:2], heads, -1) if flat else x.transpose(1, 2)
        size = part or turned.shape[-1]
        head, tail = turned[..., :size], turned[..., size:]
        cos, sin = (table[..., : size // 2].unsqueeze(2) for table in (cos, sin))
        one, two = (head[..., 0::2], head[..., 1::2]) if interleaved else head.chunk(2, -1)
        pair = (one * cos - two * sin, one * sin + two * cos)
        made = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
        made = torch.cat([made, tail], -1)
        return made.reshape(x.shape) if flat else made.transpose(1, 2)

    return run


BUILDERS: dict[str, Builder] = {"Attention": _attention, "RotaryEmbedding": _rotary}
