"""Names of layouts, and which tensors can have them. PURE.

``NHWC`` stores dimensions in that order; ``NCHW8c`` splits the channels into blocks of eight, the innermost
dimension. ONNX's tensors are row-major, so ``NCHW`` and ``OIHW`` are row-major. Any other name (``L1``,
``buffer``) says nothing about dimensions, and every tensor can have it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from opatlas.graph.types import TensorType

ROW_MAJOR = "row-major"
NHWC = "NHWC"
"""The one other layout in which plans run operators."""
ANY = "any"
"""The layout of a model's output if its reader accepts every one."""
_INSIDE = "inside "
_ORDERS = ("NCW", "NCHW", "NCDHW", "OIW", "OIHW", "OIDHW")
_NAME = re.compile(r"([A-Z]+?)(?:(\d+)([a-z]))?")


def inside(unit: int, layout: str) -> str:
    """The layout of a value inside one operator of several nodes. There is no reorder from or to it, so
    either all nodes of the unit run so, or none does."""
    return f"{_INSIDE}{unit} {layout}"


def is_inside(layout: str) -> bool:
    return layout.startswith(_INSIDE)


def settled(layout: str) -> str:
    """One name for each layout."""
    return ROW_MAJOR if layout in _ORDERS else layout


def misfit(layout: str, kind: TensorType | None) -> str:
    """Why a tensor cannot have a layout, in words; empty if it can. ``kind``: None if its shape is unknown
    before the run, or it is no tensor."""
    if layout == ROW_MAJOR or is_inside(layout):
        return ""
    if kind is None:
        return f"{layout} needs a tensor whose shape is known"
    parts = _parts(layout)
    if parts is None:
        return ""
    order, _, axis, block = parts
    if len(order) != len(kind.shape):
        return f"{layout} is of {len(order)} dimensions, not of {list(kind.shape)}"
    if block and kind.shape[axis] % block:
        size = kind.shape[axis]
        return f"{layout} splits {size} of {list(kind.shape)} by {block}, which does not divide it"
    return ""


def is_told(layout: str) -> bool:
    """Whether its name says how it is stored."""
    return layout == ROW_MAJOR or _parts(layout) is not None


def stored_order(layout: str, rank: int, split: int | None = None) -> list[tuple[int, str]]:
    """The stored order of dimensions, as (axis, part): part ``""`` for a whole one; for the axis ``split``
    into blocks, ``"outer"`` and ``"inner"``."""
    parts = _parts(layout)
    order, letters, axis, own = parts or ("", "", 0, 0)
    axes = [order.index(letter) for letter in letters] if parts else list(range(rank))
    stored = []
    for one in axes:
        if one != split:
            stored.append((one, ""))
        elif own and axis == split:
            stored.append((one, "outer"))
        else:
            stored += [(one, "outer"), (one, "inner")]
    return [*stored, (axis, "inner")] if own else stored


def block_of(layout: str) -> tuple[int, int] | None:
    """The axis that is split, and the size of its blocks."""
    parts = _parts(layout)
    return (parts[2], parts[3]) if parts and parts[3] else None


@lru_cache(maxsize=1024)
def _parts(layout: str) -> tuple[str, str, int, int] | None:
    """ONNX's order of the dimensions, theirs here, and which axis is split by how many (0: none)."""
    named = _NAME.fullmatch(layout)
    if named is None:
        return None
    letters, size, letter = named.groups()
    order = next((one for one in _ORDERS if sorted(one) == sorted(letters)), None)
    if order is None or (letter and letter.upper() not in letters) or size == "0":
        return None
    return order, letters, order.index(letter.upper()) if letter else 0, int(size or 0)
