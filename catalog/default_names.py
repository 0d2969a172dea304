"""The default's name for people: "the default" alone does not say whose time it is."""

from __future__ import annotations

_NAMES = {"eager": "PyTorch eager", "onnxruntime": "ONNX Runtime"}
"""By route, the first that can compute an operator (``tuning.routes.registry.DEFAULTS``)."""


def default_name(route: str | None = "") -> str:
    """``default (PyTorch eager)``. Without a route, of many operators or where none was noted:
    ``default (PyTorch eager, else ONNX Runtime)``."""
    return f"default ({default_route_name(route)})"


def default_route_name(route: str | None = "") -> str:
    """``PyTorch eager``; without a route ``PyTorch eager, else ONNX Runtime``."""
    return _NAMES.get(route, route) if route else ", else ".join(_NAMES.values())
