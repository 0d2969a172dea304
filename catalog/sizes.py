"""Size classes of operators: powers of ten of the bytes that one run moves. PURE."""

from __future__ import annotations

BOUNDS_BYTES = (1e4, 1e5, 1e6, 1e7, 1e8)
"""Where a class ends and the next begins; a bound itself belongs to the larger one."""
SIZE_LABELS = ("< 10 kB", "10–100 kB", "100 kB–1 MB", "1–10 MB", "10–100 MB", "≥ 100 MB")
"""How people read the classes 0 to 5, the decades of the inputs' and outputs' bytes."""
