"""Canonical ONNX operators in XLA, by our own table of ``jax.numpy`` and ``jax.lax``: a file a family."""
