"""The table of operators that a framework computes otherwise than ONNX Runtime, by operator and type.

It is data (``semantics.json``) and ships with the package. ``python -m tests.opatlas.plan.semantics.made``
makes it by running each operator over edge values.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

PATH = Path(__file__).with_name("semantics.json")
EVERY = "*"
"""Stands for operators without rows: what most operators of a type have in common."""
_CALLS = {"torch.compile": "pytorch"}
"""Compilers that execute another framework's calls."""
_TYPED_BY: Mapping[str, int] = {"Where": 1, "OneHot": 2}
"""The input whose type selects an operator's row, if it is not the first."""


@dataclass(frozen=True)
class KnownDifference:
    """An operator that gives other values in a framework. ``aspect``: the values for which it does
    (:mod:`opatlas.plan.semantics.ranges`, :mod:`opatlas.plan.semantics.intervals`); ``attributes``: those
    that the node must have; ``why``: in words; ``shown``: one element, as both give it."""

    framework: str
    op_type: str
    element: str
    aspect: str
    why: str
    shown: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> list[Any]:
        line = [self.framework, self.op_type, self.element, self.aspect, self.why, self.shown]
        return [*line, dict(self.attributes)] if self.attributes else line

    def holds_for(self, node: onnx.NodeProto) -> bool:
        given = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        return all(_plain(given.get(name)) == wanted for name, wanted in self.attributes.items())


@dataclass(frozen=True)
class SemanticsTable:
    """``versions``: of the libraries that were compared; ``tried``: the types run, by framework and
    operator."""

    versions: Mapping[str, str]
    tried: Mapping[str, Mapping[str, Sequence[str]]]
    differences: Sequence[KnownDifference]

    def of(self, framework: str, op_type: str, element: str) -> Sequence[KnownDifference]:
        """The known differences of an operator. For one that was never run: those in the framework whose
        calls it makes, or what most operators have in common."""
        if element in self.tried.get(framework, {}).get(op_type, ()):
            return self._rows.get((framework, op_type, element), ())
        if framework in _CALLS:
            return self.of(_CALLS[framework], op_type, element)
        return self._rows.get((framework, EVERY, element), ())

    @cached_property
    def _rows(self) -> Mapping[tuple[str, str, str], Sequence[KnownDifference]]:
        found: dict[tuple[str, str, str], list[KnownDifference]] = {}
        for one in self.differences:
            found.setdefault((one.framework, one.op_type, one.element), []).append(one)
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": dict(self.versions),
            "tried": {
                name: {op: list(types) for op, types in ops.items()} for name, ops in self.tried.items()
            },
            "differences": [one.to_json() for one in self.differences],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SemanticsTable:
        differences = [KnownDifference(*line) for line in document["differences"]]
        return cls(document["versions"], document["tried"], differences)


@cache
def known_table() -> SemanticsTable:
    """The table that ships with the package."""
    return SemanticsTable.from_json(json.loads(PATH.read_text()))


@cache
def digest() -> str:
    """The table's digest: choices made with another table are not reused."""
    return hashlib.sha256(PATH.read_bytes()).hexdigest()


def element_of(op_type: str, inputs: Sequence[str], output: str) -> str:
    """The type that selects a node's row: that of one input; of a cast ``from>to``."""
    if op_type in ("Cast", "CastLike"):
        return f"{inputs[0]}>{output}" if inputs else output
    slot = _TYPED_BY.get(op_type, 0)
    return inputs[slot] if slot < len(inputs) else output


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
