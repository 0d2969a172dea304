"""A small transformer encoder, exported from PyTorch with random weights."""

from __future__ import annotations


def encoder_model(
    *, layers: int = 1, hidden: int = 256, heads: int = 4, sequence: int = 128, vocabulary: int = 1000,
    symbolic_batch: bool = False, seed: int = 0,
) -> bytes:  # fmt: skip
    """ONNX bytes of an encoder like BERT's: embeddings, ``layers`` blocks, batch 1, ``sequence`` tokens.

    With ``symbolic_batch`` the first dimension is named ``batch``. Needs torch and onnxscript.
    """
    import torch

    torch.manual_seed(seed)
    model = _encoder(layers, hidden, heads, sequence, vocabulary).eval()
    tokens = torch.randint(0, vocabulary, (2 if symbolic_batch else 1, sequence))
    shapes = {"tokens": {0: torch.export.Dim("batch", min=1, max=64)}} if symbolic_batch else None
    program = torch.onnx.export(
        model, (tokens,), input_names=["tokens"], output_names=["hidden"], dynamic_shapes=shapes,
        dynamo=True, verbose=False,
    )  # fmt: skip
    assert program is not None
    return program.model_proto.SerializeToString()


def _encoder(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int):  # type: ignore[no-untyped-def]
    import torch
    from torch import nn

    class Encoder(nn.Module):
        """Token and position embeddings, then PyTorch's own encoder blocks."""

        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, hidden)
            self.positions = nn.Embedding(sequence, hidden)
            self.norm = nn.LayerNorm(hidden)
            block = nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True
            )
            self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            return self.blocks(self.norm(self.tokens(tokens) + self.positions(places)))

    return Encoder()
