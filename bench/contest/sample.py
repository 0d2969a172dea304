"""Which operators the contest is held over, and the rule that chose them.

The rule: of the open logs' forward operators (``oplogs_merged.json``: phase ``forward_or_shared``), float16
read as float32 and parameters as constants, as inference has them, keep what can be expressed, computes or
moves something (no views), belongs to an inference (no losses, no scatters: those are gradients), and fits
two cores: at most 1 GFLOP and 32 MB of inputs and outputs a call. The logs' families then take turns, in the
order of their names, each giving its next operator by SHA-256 of its key (which no one can steer), until
there are ``SIZE``.

``python -m bench.contest.sample LOGS`` writes ``bench/data/contest_sample.json`` again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import InvalidModel
from opatlas.identity import Operator, describe
from tuning.graph.aten import CannotMap
from tuning.graph.aten import read_record as parse_record
from tuning.graph.operator_list import as_inference, extract_list, map_record

SAMPLE = Path(__file__).parent.parent / "data" / "contest_sample.json"
SIZE = 200
MOST_FLOPS, MOST_BYTES = 1e9, 32e6
FAMILIES = (
    *("conv", "elementwise", "gather_index", "layout_copy", "matmul"),
    *("norm", "pool", "reduce", "resize", "softmax"),
)
VIEWS = {"Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten"}
GRADIENTS = {"ScatterElements", "ScatterND"}


@dataclass(frozen=True)
class Entrant:
    """One operator of the contest: how often the logs call it, and where it comes from."""

    operator: Operator
    calls: int
    example: str  # "aten.addmm.default"
    halved: bool  # recorded in float16 or bfloat16, contested in float32


def read_sample(path: Path = SAMPLE) -> list[Entrant]:
    """The operators of a list in the form of the open logs; raises InvalidModel with a sentence."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidModel(f"The sample {path} cannot be read: {error.strerror}.") from None
    documents = json.loads(data) if data[:1] in b"[{" else []
    records = documents.get("records", []) if isinstance(documents, Mapping) else documents
    halved = {_key(record) for record in records if _is_half(record)}
    extraction = extract_list(data, as_float32=True, const_weights=True)
    return [
        Entrant(one.operator, one.calls, one.example, one.operator.key in halved)
        for one in extraction.operators
    ]


def choose(records: Iterable[Mapping[str, Any]], size: int = SIZE) -> list[Mapping[str, Any]]:
    """The rule: one record for each chosen operator, with the calls of all records that are it."""
    families: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for record in records:
        if record["phase"] == "backward" or record["family"] not in FAMILIES:
            continue
        operator = _operator(record)
        ops = {node.op for node in operator.nodes} if operator else set()
        if operator is None or ops <= VIEWS or ops & GRADIENTS:
            continue
        work = describe(operator)
        if work.flops > MOST_FLOPS or work.bytes_moved > MOST_BYTES:
            continue
        known = families[record["family"]].setdefault(operator.key, {**record, "count": 0})
        known["count"] += record["count"]
    queues = {
        name: sorted(found.items(), key=lambda item: hashlib.sha256(item[0].encode()).digest())
        for name, found in sorted(families.items())
    }
    chosen: list[Mapping[str, Any]] = []
    while len(chosen) < size and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < size:
                chosen.append(queue.pop(0)[1])
    return chosen


def _operator(record: Mapping[str, Any]) -> Operator | None:
    try:
        return map_record(as_inference(parse_record(record, "record", None)))
    except (CannotMap, InvalidModel):
        return None


def _key(record: Mapping[str, Any]) -> str:
    operator = _operator(record)
    return operator.key if operator else ""


def _is_half(record: Mapping[str, Any]) -> bool:
    return any(tensor and tensor["dtype"] in ("float16", "bfloat16") for tensor in record["inputs"])


def main(logs: Path) -> None:
    """Choose from the logs, and write the sample."""
    chosen = choose(json.loads(logs.read_text()))
    kept = ("op", "attrs", "inputs", "count", "family", "phase", "source")
    rows = ",\n".join(json.dumps({key: record[key] for key in kept}) for record in chosen)
    SAMPLE.parent.mkdir(exist_ok=True)
    SAMPLE.write_text(f"[\n{rows}\n]\n")
    print(f"{len(chosen)} operators written to {SAMPLE}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
