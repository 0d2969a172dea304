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


def priority_name(value: int) -> str:
    """As people read it: ``high``; ``unknown (7)`` of what no version of this code gives."""
    known = dict(PRIORITIES).get(value)
    return known.lower() if known else f"unknown ({value})"
