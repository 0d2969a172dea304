"""Who computes an operator type's default and its reference, and who has to agree: never one code alone.

``python -m tests.tuning.measure.judging.computed_by`` writes its section of ``docs/accuracy.md``.
"""

# ruff: noqa: E501 - prose
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opatlas.identity.operator_types import TYPES
from opatlas.load.torch.ops.names import FAMILY_OF, LIMITED
from tests.tuning.measure.judging.page import write
from tuning.measure.judging.confirming import EVALUATOR, IN_OWN_TYPES, LONGEST_CPU_S, OTHERS


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


HEADING = "## Who computes the reference?"

SECTION = f"""
Default and reference never come from one implementation alone: a wrong one would agree with itself. PyTorch eager and the float64 reference come from the same calls (`opatlas/load/torch/ops`). So an operator's first references need somebody else who agrees, on the very values that candidates are checked on (`tuning/measure/judging/confirming.py`). These are asked in turn:

1. {IN_OWN_TYPES}'s plain graph, in the operator's own types.
2. The same in float32.
3. {EVALUATOR} in float64, for at most {LONGEST_CPU_S:g} s of a processor, since it is slow.

One of them has to agree on every set, within what the operator's types allow. Nobody else decides, since each is wrong now and then. ONNX Runtime keeps int32 products in floats, and resizes int8 wrongly with antialias. The evaluator is wrong on LRN, on pools with `ceil_mode`, and on Resize of a region.

Where nobody agrees, the evaluator is the reference, and PyTorch is judged by it. Where it cannot compute the operator, ONNX Runtime is, unless that is the default. If nobody can, the operator is refused, and the reason says what each came to. `reference_confirmed_by` of a trial says who agreed.

`make test` tries a random operator of every type, with random attributes. `make test-all` tries 60 of each.
"""


def section() -> str:
    """The whole section of the page, heading included."""
    return "\n".join([HEADING, SECTION, *table()]) + "\n"


def table() -> Iterator[str]:
    """The lines of a Markdown table: a row for each way of computing both."""
    by_onnx = ", ".join(op for op in sorted(TYPES) if computed_by(op) is BY_ONNX)
    yield "| operator types | default | reference | has to agree |"
    yield "| --- | --- | --- | --- |"
    yield f"| those of `opatlas/identity/operator_types.py`, but for the next rows | {_row(BY_PYTORCH)} |"
    yield f"| {by_onnx}, and any other | {_row(BY_ONNX)} |"
    limited = ", ".join(sorted(LIMITED))
    yield f"| forms that PyTorch does not have (`opatlas/load/torch/ops/names.py`) of {limited} | {_row(BY_ONNX)} |"


def _row(who: ComputedBy) -> str:
    return f"{who.default} | {who.reference} | {'one of the three' if who.others else 'nobody: these are two implementations'}"


if __name__ == "__main__":
    write(section())
