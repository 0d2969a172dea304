"""What the catalogue tells the apps above it."""

from django.dispatch import Signal

misses_recorded = Signal()
"""Sent after commit, with ``capabilities: set[str]``: misses were asked for that these targets could explore."""
