"""All rules in one table. A new operator is a small function in its family's file and a line there."""

from __future__ import annotations

from collections.abc import Mapping

from opatlas.graph.aten import (
    convolution,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    reduction,
    shaping,
)
from opatlas.graph.aten.builder import CannotMap, Mapped
from opatlas.graph.aten.call import AtenRule
from opatlas.graph.aten.record import CallRecord
from opatlas.graph.aten.refused import refusal

FAMILIES: Mapping[str, Mapping[str, AtenRule]] = {
    "matmul": matmul.RULES,
    "convolution": convolution.RULES,
    "normalization": normalization.RULES,
    "elementwise": elementwise.RULES,
    "reduction": reduction.RULES,
    "pooling": pooling.RULES,
    "shaping": shaping.RULES,
    "indexing": indexing.RULES,
}
RULES: Mapping[str, AtenRule] = {name: rule for rules in FAMILIES.values() for name, rule in rules.items()}

MISFITS = (IndexError, TypeError, KeyError, AttributeError, ValueError, OverflowError, ZeroDivisionError)
"""What a record that contradicts itself raises: a matrix product of a vector, an axis that is no number."""


def map_aten(record: CallRecord) -> Mapped:
    """The ONNX graph of one recorded aten call. Raises :class:`CannotMap` with the reason."""
    name = record.op.removeprefix("aten.").removeprefix("aten::").removesuffix(".default")
    base = name.split(".")[0]
    if reason := refusal(base) or ("backward" if record.backward else None):
        raise CannotMap(reason)
    found = RULES.get(name)
    if found is None:
        raise CannotMap(f"{name} has no rule yet")
    try:
        return found.map(record)
    except CannotMap as error:
        raise CannotMap(f"{base}: {error}" if base not in str(error) else str(error)) from None
    except MISFITS as error:
        raise CannotMap(f"{base}: arguments that do not fit together ({type(error).__name__})") from None
