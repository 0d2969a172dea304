"""Which operators the figures are of: open lists, each in float32, float16 and bfloat16."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import OpatlasError
from opatlas.graph.aten import read_record
from opatlas.identity import Operator
from tuning.conf import conf
from tuning.graph.operator_list import extract_records

LISTS = ("deepbench_gemm", "deepbench_conv", "tritonbench_gemm", "kernelbench_level1")
DTYPES = ("float32", "float16", "bfloat16")
_FLOATING = frozenset({*DTYPES, "float64"})


@dataclass(frozen=True)
class Problem:
    """One operator of a list. Unmapped (None): ``reason`` says why; it counts as uncovered."""

    suite: str
    dtype: str
    number: int
    operator: Operator | None
    reason: str = ""

    @property
    def name(self) -> str:
        """``deepbench_gemm/float16/3``."""
        return f"{self.suite}/{self.dtype}/{self.number}"


def problems(folder: Path | None = None) -> list[Problem]:
    """Of every list that lies in ``folder`` (``OPATLAS_WORKLOADS``), the first of each list and type before
    any second one: a slice that ends early has seen something of all."""
    folder = folder or conf().workloads
    kinds = [
        _of_list(suite, dtype, documents)
        for suite in LISTS
        if (documents := _read(folder / f"{suite}.json"))
        for dtype in DTYPES
    ]
    return [one for row in itertools.zip_longest(*kinds) for one in row if one is not None]


def _read(path: Path) -> Sequence[Mapping[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else ()


def _of_list(suite: str, dtype: str, documents: Sequence[Mapping[str, Any]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, document in enumerate(documents):
        try:
            found = extract_records([read_record(_in(document, dtype), f"{suite}[{number}]")])
        except OpatlasError as error:
            yield Problem(suite, dtype, number, None, str(error)[:300])
            continue
        if not found.operators:
            yield Problem(suite, dtype, number, None, "; ".join(found.unmapped)[:300])
            continue
        operator = found.operators[0].operator
        if operator.key not in seen:  # a list names some twice
            seen.add(operator.key)
            yield Problem(suite, dtype, number, operator)


def _in(document: Mapping[str, Any], dtype: str) -> Mapping[str, Any]:
    """The same record with its floating tensors of another type."""
    inputs = [
        {**one, "dtype": dtype} if isinstance(one, Mapping) and one.get("dtype") in _FLOATING else one
        for one in document.get("inputs", [])
    ]
    return {**document, "inputs": inputs}
