"""PyTorch operators that have no rule on purpose, and the reason their calls are counted under."""

from __future__ import annotations

import re

_REASONS: tuple[tuple[str, str], ...] = (
    (r".*_backward(_data|_input|_weight|_per_sample_weights)?(_.*)?", "backward"),
    (r"(_sparse_.*|to_sparse.*|sparse_.*)", "sparse tensors"),
    (r"(bernoulli|normal|uniform|rand|randn|randint|randperm|dropout|native_dropout|multinomial|exponential)_?",
     "random numbers"),
    (r"(new_empty|new_empty_strided|empty|empty_like|empty_strided)",
     "allocates memory: nothing is computed"),
    (r"(new_zeros|new_ones|new_full|zeros|ones|full|zeros_like|ones_like|full_like|arange|fill_?|zero_|scalar_tensor)",
     "makes a constant: nothing is computed from an input"),
    (r"_copy_from", "in-place copy"),
    (r"as_strided_?.*", "a view given by raw strides"),
    (r"(index_put_?|_index_put_impl_?|_unsafe_index_put)", "in-place indexed write"),
    (r"(nonzero|masked_select|unique.*|_unique2|repeat_interleave|bincount)",
     "the result's shape depends on data"),
    (r"_embedding_bag.*", "bags of embeddings: their sizes depend on data"),
    (r"_?fft_.*", "complex tensors"),
    (r"(_local_scalar_dense|item|is_nonzero|equal)", "reads a value back to the host"),
    (r"im2col", "im2col"),
)  # fmt: skip


def refusal(name: str) -> str | None:
    """The reason for an operator's base name (``new_empty_strided``); None where it has none of its own."""
    return next((reason for pattern, reason in _REASONS if re.fullmatch(pattern, name)), None)
