"""Who computes an operator type's default and its reference, and who has to agree: never one code alone.

``python -m tests.tuning.measure.judging.computed_by`` writes its section of ``docs/accuracy.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opatlas.identity.operator_types import TYPES
from opatlas.load.torch.ops.names import FAMILY_OF, LIMITED
from tuning.measure.judging.confirming import OTHERS


@dataclass(frozen=True)
class ComputedBy:
    """``others``: one of them has to agree with the reference, in this order."""

    default: str
    reference: str
    others: tuple[str, ...] = ()


BY_PYTORCH = ComputedBy("PyTorch eager", "PyTorch's calls in float64", OTHERS)
BY_ONNX = ComputedBy("ONNX Runtime", "ONNX's evaluator")


def computed_by(op: str) -> ComputedBy:
    """Of an operator type in a form that PyTorch has, where it has any."""
    return BY_PYTORCH if op in FAMILY_OF else BY_ONNX


PAGE = Path(__file__).parents[4] / "docs" / "accuracy.md"
HEADING = "## Who computes what"

SECTION = """
The default and the reference are never the same code alone: a wrong one would agree with itself.
PyTorch eager and the float64 reference are made by the same calls (`opatlas/load/torch/ops`). So the
first references of an operator are held against another implementation, on the very values that
candidates are checked on (`tuning/measure/judging/confirming.py`): ONNX Runtime's plain graph in the
operator's own types; where that differs or cannot, the same in float32; and then ONNX's evaluator in
float64, for at most 5 s of a processor, since it is slow. One of them has to agree with every set,
within what the operator's types allow. Nobody else decides: ONNX Runtime is wrong now and then
(int32 products kept in floats, int8 Resize with antialias), and so is the evaluator (LRN, pools with
ceil_mode, Resize of a region). Where nobody agrees PyTorch's calls are no reference, the evaluator
alone is, and PyTorch is judged by it; where that cannot compute it either, the operator is refused and
the reason says what everybody came to. `reference_confirmed_by` of a trial says who agreed.

By day a random operator of every type, with random attributes, is held so; `make test-all` holds 60
of each. ONNX Runtime is the default where PyTorch has no right call, as for some forms of the types
with a star (`opatlas/load/torch/ops/names.py`); the evaluator is the reference there.
"""


def section() -> str:
    """The whole section of the page, heading included."""
    return "\n".join([HEADING, SECTION, *table()]) + "\n"


def table() -> Iterator[str]:
    """The lines of a Markdown table: a row for each family and who computes it."""
    groups: dict[tuple[str, ComputedBy], list[str]] = {}
    for op, kind in TYPES.items():
        groups.setdefault((kind.family, computed_by(op)), []).append(f"{op}\\*" if op in LIMITED else op)
    yield "| family | operator types | default | reference | held against |"
    yield "| --- | --- | --- | --- | --- |"
    for (family, who), ops in sorted(groups.items(), key=lambda group: (group[0][0], group[0][1].default)):
        others = ", then ".join(who.others) or "(another's already)"
        yield f"| {family} | {', '.join(ops)} | {who.default} | {who.reference} | {others} |"
    who = BY_ONNX
    yield f"| any other | | {who.default} | {who.reference} | (another's already) |"


def written() -> str:
    """The page's section as it stands."""
    _, found, rest = PAGE.read_text().partition(f"{HEADING}\n")
    return found + rest.partition("\n## ")[0].rstrip("\n") + "\n"


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(page.replace(written(), section()) if HEADING in page else f"{page}\n{section()}")


if __name__ == "__main__":
    main()
