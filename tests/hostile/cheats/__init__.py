"""Kernels that cheat, and honest ones that look odd: all measured by the real laboratory."""
