"""XLA, through JAX: canonical ONNX operators lowered by our own table of ``jax.numpy`` and ``jax.lax``."""

from tuning.routes.compiler.xla.route import XlaRoute

__all__ = ["XlaRoute"]
