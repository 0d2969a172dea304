"""What takes room."""

from __future__ import annotations

from catalog.figures.base import Figure

GROWTH: tuple[Figure, ...] = (
    Figure(
        "growth_a_day",
        "A day",
        "bytes per day",
        "How many bytes a table, a folder or a whole disk grows by in a day.",
        "median of the slopes between any two of its last 30 samples; where one step between two outweighs"
        " all others together, of those after it, if there are at least 8",
        "SizeSample",
    ),
    Figure(
        "full_in",
        "Disk full",
        "days, estimated",
        "When a disk will be full at this pace. For a table or folder: if it alone grew.",
        "free bytes of the disk at the last sample ÷ bytes per day",
        "SizeSample",
    ),
)
