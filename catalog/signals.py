"""What the catalogue tells the apps above it."""

from django.dispatch import Signal

misses_recorded = Signal()
"""Sent after commit, with ``capabilities: set[str]``: these targets have misses that could be explored."""
