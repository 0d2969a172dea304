"""Which operators the figures are of: open lists, each in float32, float16 and bfloat16."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import OpatlasError
from opatlas.graph.aten import read_record
from opatlas.identity import Operator
from tuning.conf import conf
from tuning.graph.operator_list import extract_records

LISTS = ("deepbench_gemm", "deepbench_conv", "tritonbench_gemm", "kernelbench_level1",
         "flashinfer_definitions", "flashinfer_gemm_n4096_k4096_trace")  # fmt: skip
TOKENS = 128
"""What FlashInfer's definitions leave open: tokens of a batch."""
DTYPES = ("float32", "float16", "bfloat16")
OPEN = {"M": TOKENS, "batch": TOKENS}
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
        found = _problem(suite, dtype, number, document)
        key = (
            found.operator.key if found.operator else json.dumps([document.get("op"), document.get("attrs")])
        )
        if key not in seen:  # a list names some twice
            seen.add(key)
            yield found


def _problem(suite: str, dtype: str, number: int, document: Mapping[str, Any]) -> Problem:
    try:
        found = extract_records([read_record(_in(document, dtype), f"{suite}[{number}]", OPEN)])
    except OpatlasError as error:
        return Problem(suite, dtype, number, None, str(error)[:300])
    if not found.operators:
        return Problem(suite, dtype, number, None, "; ".join(found.unmapped)[:300])
    return Problem(suite, dtype, number, found.operators[0].operator)


def _in(document: Mapping[str, Any], dtype: str) -> Mapping[str, Any]:
    """The same record with its floating tensors of another type."""
    inputs = [
        {**one, "dtype": dtype} if isinstance(one, Mapping) and one.get("dtype") in _FLOATING else one
        for one in document.get("inputs", [])
    ]
    # Definitions of attention name no inputs: their type is said beside.
    said = {} if inputs else {"attrs": {**document.get("attrs", {}), "dtype": dtype}}
    return {**document, "inputs": inputs, **said}


def covered(folder: Path | None = None) -> Iterator[str]:
    """Of each list, in one type: how many of its problems are operators, and why the others are none."""
    every = [one for one in problems(folder) if one.dtype == "bfloat16"]
    for suite in LISTS:
        own = [one for one in every if one.suite == suite]
        yield f"{suite}: {sum(one.operator is not None for one in own)} of {len(own)}"
        for reason, count in Counter(one.reason for one in own if one.reason).most_common():
            yield f"  {count} {reason}"


if __name__ == "__main__":
    print("\n".join(covered()))
