"""How much of the allowed errors libraries and compilers need: the summary of docs/figures/accuracy.json.

``python -m tests.tuning.measure.judging.shares`` writes its section of ``docs/accuracy.md``.
"""

# ruff: noqa: E501 - prose
from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

from tests.tuning.measure.judging.page import DOCS, write

FIGURES = DOCS / "figures" / "accuracy.json"
HEADING = "## How much of it do libraries need?"

SECTION = """
A share of 1 is all that is allowed. Each share is of the worst element of all candidates, on every kind of input set. [tables.md](tables.md) has every operator type. What it does not have was exact. `tests/tuning/measure/judging/accuracy.py` measures them in some minutes.

{conditions}

| implementation | element type | operator types | median share | largest share |
| --- | --- | --: | --: | --- |
{shares}

XLA takes denormal numbers for zero. That is allowed, and uses up the bound.

### What was refused?

| operator | implementation | on input sets |
| --- | --- | --- |
{refused}

ONNX Runtime's LRN on float16 is wrong: it is off by 5 %, fifty times what the type can express. TVM's LayerNormalization leaves its statistics at zero. It was tried apart, and is wrong too. TVM's IsInf heeds neither of its attributes. ONNX Runtime's DFT and STFT lose more than a transform's rounding: up to 1.7·10⁻⁷ where 0 is exact. The others are single sets at the edge of what is allowed, of types that no job of the contest has; they are open.
"""


def section() -> str:
    """The whole section of the page, heading included."""
    shares, refused = json.loads(FIGURES.read_text())
    lines = (f"| {' | '.join(row)} |" for row in refused["rows"])
    text = SECTION.format(
        conditions=shares["conditions"], shares="\n".join(_summary(shares)), refused="\n".join(lines)
    )
    return f"{HEADING}\n{text}"


def _summary(table: dict[str, Any]) -> Iterator[str]:
    """A row for each implementation and element type."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for op, dtype, *shares in table["rows"]:
        for name, share in zip(table["columns"][2:], shares, strict=True):
            if share is not None:
                found[name, dtype].append((share, op))
    for (name, dtype), pairs in sorted(found.items()):
        (most, op), middle = max(pairs), median(share for share, _ in pairs)
        of = f" ({op})" if most else ""
        yield f"| {name} | {dtype} | {len(pairs)} | {middle:.2f} | {most:.2f}{of} |"


if __name__ == "__main__":
    write(section())
