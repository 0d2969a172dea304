"""Orders in which a model's operators come, read from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from opatlas.errors import InvalidModel
from opatlas.graph import extract
from tuning.graph.operator_list import extract_list

Recorded = dict[str, Any]
"""An operator's key → its canonical JSON, in the order in which they were asked for."""


def given_in(paths: Iterable[Path]) -> Iterator[Recorded]:
    """Orders of ONNX models and operator lists, folders of them too. A list says nothing of an order beyond
    its own. Raises :class:`InvalidModel`."""
    for path in paths:
        if not path.exists():
            raise InvalidModel(f"There is no {path}: name ONNX models, operator lists, or folders of them.")
        files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
        for one in files:
            if one.suffix in (".onnx", ".json"):
                yield read_order(one.read_bytes())


def read_order(data: bytes) -> Recorded:
    """Of one model or list. Raises :class:`InvalidModel`."""
    found = extract_list(data, as_float32=True) if data.lstrip()[:1] in (b"[", b"{") else extract(data)
    return {one.operator.key: one.operator.to_json() for one in found.operators}


def longest_first(orders: Sequence[Recorded], most: int) -> list[Recorded]:
    """As many as have ``most`` operators together, those that say most first."""
    kept, keys = list[Recorded](), set[str]()
    for order in sorted(orders, key=len, reverse=True):
        if len(keys | order.keys()) <= most:
            kept.append(order)
            keys |= order.keys()
    return kept
