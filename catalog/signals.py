"""Signals from the catalogue to the apps above it."""

from django.dispatch import Signal

misses_recorded = Signal()
"""Sent after commit, with ``capabilities: set[str]``: these targets have misses that could be explored."""

stage_awaited = Signal()
"""Sent with ``operators: list[int]``, ``target`` and ``setting`` (ids): a lookup waits for a further stage of
these."""
