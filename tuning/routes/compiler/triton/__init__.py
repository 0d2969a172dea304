"""Triton: templates of ours, compiled for a device without one."""

from tuning.routes.compiler.triton.route import TritonRoute

__all__ = ["TritonRoute"]
