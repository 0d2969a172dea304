"""Size classes of operators: powers of ten of the bytes that one run moves. PURE."""

from __future__ import annotations

from bisect import bisect_right

BOUNDS_BYTES = (1e4, 1e5, 1e6, 1e7, 1e8)
"""Where a class ends and the next begins; a bound itself belongs to the larger one."""
SIZE_LABELS = ("< 10 kB", "10–100 kB", "100 kB–1 MB", "1–10 MB", "10–100 MB", "≥ 100 MB")


def size_class(bytes_moved: float) -> int:
    """0 to 5: the decade of the inputs' and outputs' bytes; SQL does the same (``services.standings``)."""
    return bisect_right(BOUNDS_BYTES, bytes_moved)


def size_label(number: int) -> str:
    """How people read a class: ``10–100 kB``."""
    return SIZE_LABELS[number]
