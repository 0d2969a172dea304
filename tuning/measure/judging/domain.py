"""What values one input may have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "free", "weight", "between",
    "index", "unique", "tuple", "unique_tuple", "length", "in_plane", "boxes", "boxes_of_images",
    "positive", "nonzero", "unit", "above_one", "near_one", "scale", "grid",
]  # fmt: skip


@dataclass(frozen=True)
class Domain:
    """``bounds``: for indices, the extents (one, or one per column of a tuple); for boxes, the image's height
    and width (after how many images there are); else the least and the largest. ``fan_in``: for weights.
    ``backwards``: indices may be negative, and count from the end then. ``ignored``: an index that the
    operator passes over."""

    kind: Kind = "free"
    bounds: tuple[int, ...] = ()
    axis: int = 0
    fan_in: int = 1
    backwards: bool = False
    ignored: int | None = None
