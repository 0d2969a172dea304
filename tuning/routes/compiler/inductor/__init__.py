"""PyTorch's Inductor: operators compiled ahead of time to C++ that the same PyTorch loads."""

from tuning.routes.compiler.inductor.route import InductorRoute

__all__ = ["InductorRoute"]
