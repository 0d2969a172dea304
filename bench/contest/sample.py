"""Which operators the contest is held over, and the rules that chose them.

``open``: of the open logs' forward operators (``oplogs_merged.json``: phase ``forward_or_shared``), float16
read as float32 and parameters as constants, as inference has them, keep what can be expressed, computes or
moves something (no views), belongs to an inference (no losses, no scatters: those are gradients), and fits
two cores: at most 1 GFLOP and 32 MB of inputs and outputs a call. The logs' families then take turns, in the
order of their names, each giving its next operator by SHA-256 of its key (which no one can steer), until
there are ``SIZE``.

``heavy``: the same without the limit of size, of operators that take two cores a while. The longer of FLOP ÷
``HEAVY_FLOPS_PER_S`` and bytes ÷ ``HEAVY_BYTES_PER_S`` (what a plain library may reach on two cores) is 2 to
40 ms. As its turn comes, an operator is timed by its default, once, on the machine that makes the list: it
stays where that takes 4 to 40 ms of one thread, which is 2 to 40 ms on two cores (``heavy``), until there are
``HEAVY_SIZE``.

``python -m bench.contest.sample LOGS`` writes ``bench/data/contest_sample.json`` again, ``… LOGS heavy``
times for some minutes and writes ``bench/data/heavy_sample.json``; ``… LIST 60 OUT`` writes those of a list
that ``LIMIT=60`` leaves, for a version that knows no limit; ``… LOGS further OUT`` the ``FURTHER_SIZE``
operators that come after the open sample's by its rules: from these a new service's odds were learnt
(``manage.py export_odds``), and over none of them the contest is held.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from opatlas.errors import InvalidModel
from opatlas.graph.aten import CannotMap
from opatlas.graph.aten import read_record as parse_record
from opatlas.identity import Operator, describe
from tuning.graph.operator_list import as_inference, extract_list, map_record

DATA = Path(__file__).parent.parent / "data"
SAMPLE = DATA / "contest_sample.json"
HEAVY = DATA / "heavy_sample.json"
NAMED = {"open": SAMPLE, "heavy": HEAVY}
SIZE = 200
MOST_FLOPS, MOST_BYTES = 1e9, 32e6
HEAVY_SIZE, FURTHER_SIZE = 80, 80
HEAVY_US = (2e3, 40e3)
HEAVY_FLOPS_PER_S, HEAVY_BYTES_PER_S = 60e9, 8e9
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


def sample_path(named: str) -> Path:
    """The list that ``SAMPLE=`` says: one of ours by its name, or a file; nothing is the open sample."""
    return NAMED.get(named) or Path(named or SAMPLE)


def limited(entrants: Sequence[Entrant], limit: int) -> list[Entrant]:
    """The same few of a list, whoever asks; 0: all. Not in the order of their keys' own digests: by those the
    lists were chosen, so that the first would all be of the families that have most."""
    if not 0 < limit < len(entrants):
        return list(entrants)
    chosen = sorted(entrants, key=lambda one: _drawn(one.operator.key))[:limit]
    return [one for one in entrants if one in chosen]


def _drawn(key: str) -> bytes:
    return hashlib.sha256(f"limit {key}".encode()).digest()


def choose(records: Iterable[Mapping[str, Any]], size: int = SIZE, after: int = 0) -> list[Mapping[str, Any]]:
    """The open sample: a record for each chosen operator, with the calls of all records that are it; or those
    that come ``after`` so many."""
    return [record for _, record in islice(in_turns(records, is_small), after, after + size)]


def is_small(operator: Operator) -> bool:
    work = describe(operator)
    return work.flops <= MOST_FLOPS and work.bytes_moved <= MOST_BYTES


def is_heavy(operator: Operator) -> bool:
    work = describe(operator)
    estimate_us = 1e6 * max(work.flops / HEAVY_FLOPS_PER_S, work.bytes_moved / HEAVY_BYTES_PER_S)
    return HEAVY_US[0] <= estimate_us <= HEAVY_US[1]


def in_turns(
    records: Iterable[Mapping[str, Any]], fits: Callable[[Operator], bool]
) -> Iterator[tuple[Operator, Mapping[str, Any]]]:
    """All operators of an inference that fit, each with its record, the families in turns."""
    families: dict[str, dict[str, tuple[Operator, dict[str, Any]]]] = defaultdict(dict)
    for record in records:
        if record["phase"] == "backward" or record["family"] not in FAMILIES:
            continue
        operator = operator_of(record)
        ops = {node.op for node in operator.nodes} if operator else set()
        if operator is None or ops <= VIEWS or ops & GRADIENTS or not fits(operator):
            continue
        found = families[record["family"]]
        _, known = found.setdefault(operator.key, (operator, {**record, "count": 0}))
        known["count"] += record["count"]
    queues = [
        [one for _, one in sorted(found.items(), key=lambda item: hashlib.sha256(item[0].encode()).digest())]
        for _, found in sorted(families.items())
    ]
    for turn in zip_longest(*queues):
        yield from (one for one in turn if one is not None)


def operator_of(record: Mapping[str, Any]) -> Operator | None:
    """As it is contested; None where it cannot be."""
    try:
        return map_record(as_inference(parse_record(record, "record", None)))
    except (CannotMap, InvalidModel):
        return None


def _key(record: Mapping[str, Any]) -> str:
    operator = operator_of(record)
    return operator.key if operator else ""


def _is_half(record: Mapping[str, Any]) -> bool:
    return any(tensor and tensor["dtype"] in ("float16", "bfloat16") for tensor in record["inputs"])


def write_records(chosen: Iterable[Mapping[str, Any]], path: Path) -> None:
    kept = ("op", "attrs", "inputs", "count", "family", "phase", "source")
    rows = [json.dumps({key: record[key] for key in kept if key in record}) for record in chosen]
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"{len(rows)} operators written to {path}")


def main(source: Path, what: str = "open", out: str = "") -> None:
    """Choose from the logs (or of a list) and write what was chosen."""
    records = json.loads(source.read_text())
    if what == "open":
        write_records(choose(records), SAMPLE)
    elif what == "heavy":
        from bench.contest.heavy import choose_heavy

        write_records(choose_heavy(in_turns(records, is_heavy), HEAVY_SIZE, HEAVY_US), HEAVY)
    elif what == "further":
        write_records(choose(records, FURTHER_SIZE, after=SIZE), Path(out))
    else:
        keys = {one.operator.key for one in limited(read_sample(source), int(what))}
        write_records([record for record in records if _key(record) in keys], Path(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
