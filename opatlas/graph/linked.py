"""How a node hangs together with others: by the numbers of its values. PURE."""

from __future__ import annotations

LEFT_OUT = -1
"""The number of an optional input or output that is not there."""


class Linked:
    """What reads and makes values: ``inputs`` and ``outputs`` are value numbers, ``captured`` what its bodies
    read of the graph's values."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...]

    @property
    def reads(self) -> frozenset[int]:
        return frozenset((*self.inputs, *self.captured)) - {LEFT_OUT}

    @property
    def makes(self) -> frozenset[int]:
        return frozenset(self.outputs) - {LEFT_OUT}
