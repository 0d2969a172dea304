"""How a node hangs together with others: by the numbers of its values. PURE."""

from __future__ import annotations

from typing import Any

LEFT_OUT = -1
"""The number of an optional input or output that is not there."""


NodeAt = int | tuple[int, ...]
"""Where a node is: its number; of one in a body the number of the body's node, which body, and its own there,
and so on inwards."""
NodePath = tuple[int, ...]
"""The same, always as a tuple: ``(3,)``, and ``(3, 0, 5)`` in its first body."""
BodyPath = tuple[int, ...]
"""Which body: a node's path without its last number; ``()`` is the model itself."""


def unique_name(path: NodePath) -> str:
    """``3/0/5``: ONNX asks of no node that its name is the only one, or that it has any."""
    return "/".join(map(str, path))


class Linked:
    """What reads and makes values: ``inputs`` and ``outputs`` are value numbers, ``captured`` what its bodies
    read of the graph's values. ``bodies``: a branch's or loop's, as far as they can be taken apart."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    captured: tuple[int, ...]
    bodies: tuple[Any, ...] = ()

    @property
    def reads(self) -> frozenset[int]:
        return frozenset((*self.inputs, *self.captured)) - {LEFT_OUT}

    @property
    def makes(self) -> frozenset[int]:
        return frozenset(self.outputs) - {LEFT_OUT}
