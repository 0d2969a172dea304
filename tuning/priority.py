"""The explore queues' priorities. Rows name them in their choices, the decider gives them. PURE."""

from __future__ import annotations

from enum import IntEnum


class Priority(IntEnum):
    """0 is the most urgent."""

    URGENT = 0  # somebody waits, or an operator said so
    HIGH = 1
    NORMAL = 2
    LOW = 3  # related operators, never asked for themselves

    @property
    def label(self) -> str:
        return self.name.capitalize()


PRIORITIES = [(one.value, one.label) for one in Priority]
"""As a field's or a form's choices."""
