"""Halide: operators as Funcs, scheduled by its autoschedulers, shipped without Halide."""

from tuning.routes.compiler.halide.route import HalideRoute

__all__ = ["HalideRoute"]
