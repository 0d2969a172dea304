"""How much of the open operator logs can be expressed, and by which route; nothing is timed.

Every forward call of the logs is read as a canonical operator (float16 and bfloat16 as float32, and counted
as such), and every route is asked whether it supports that operator. ``SAMPLE=`` names other files or folders
in the form of the open logs, separated by colons.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.conf import conf
from bench.record import FOLDER
from opatlas.cores import usable_cores
from opatlas.errors import InvalidModel
from opatlas.graph.aten import CallRecord, CannotMap, read_record
from opatlas.identity import Operator, Setting, Target, detect_target
from tuning.conf import conf as tuning_conf
from tuning.graph.operator_list import map_record
from tuning.routes.base import Route
from tuning.routes.registry import routes_for

NARROW = ("float16", "bfloat16")
NO_COMPUTE = (
    "makes a constant: nothing is computed from an input",
    "allocates memory: nothing is computed",
)
"""Reasons of calls that have no operator because there is nothing to compute."""

TOP = 8
"""Reasons kept for each route."""

PROGRESS_S = 5.0


@dataclass
class CoveredCalls:
    """Forward calls of some logs: by operator key, and the rest by reason."""

    operators: dict[str, Operator] = field(default_factory=dict)
    by_key: Counter[str] = field(default_factory=Counter)
    unmapped: Counter[str] = field(default_factory=Counter)
    backward: int = 0
    narrow: int = 0

    @property
    def mapped(self) -> int:
        return self.by_key.total()

    @property
    def total(self) -> int:
        return self.mapped + self.unmapped.total()


class Reader:
    """Reads logs; a record that was seen before is not mapped again."""

    def __init__(self) -> None:
        self._known: dict[str, Operator | str] = {}

    def read(self, path: Path, into: Sequence[CoveredCalls]) -> None:
        """Add a file's calls to each of ``into``; :class:`InvalidModel` for what is no operator list."""
        try:
            documents = json.loads(path.read_bytes())
        except ValueError as error:
            raise InvalidModel(f"{path} is no valid JSON: {error}.") from None
        if isinstance(documents, dict):
            documents = documents.get("records", documents.get("operators"))
        if not isinstance(documents, list):
            raise InvalidModel(f'{path} is no operator list: a JSON list, or an object with "records".')
        for number, document in enumerate(documents):
            record = read_record(document, f"{path.name}[{number}]")
            for calls in into:
                self._add(record, calls)

    def _add(self, record: CallRecord, calls: CoveredCalls) -> None:
        if record.backward:
            calls.backward += record.count
            return
        wide, narrow = as_float32(record)
        calls.narrow += record.count if narrow else 0
        signature = repr(replace(wide, count=1))
        if signature not in self._known:
            self._known[signature] = _operator(wide)
        found = self._known[signature]
        if isinstance(found, str):
            calls.unmapped[found] += record.count
        else:
            calls.operators[found.key] = found
            calls.by_key[found.key] += record.count


def _operator(record: CallRecord) -> Operator | str:
    if record.symbols:
        return "dimensions that are no numbers"
    try:
        return map_record(record)
    except CannotMap as error:
        return str(error)


def as_float32(record: CallRecord) -> tuple[CallRecord, bool]:
    """The record with its half-width tensors read as float32, and whether it had any."""
    narrow = any(tensor and tensor.dtype in NARROW for tensor in record.inputs)
    inputs = tuple(
        replace(tensor, dtype="float32") if tensor and tensor.dtype in NARROW else tensor
        for tensor in record.inputs
    )
    attrs = dict(record.attrs)
    if str(attrs.get("dtype")).removeprefix("torch.") in NARROW:
        attrs["dtype"], narrow = "float32", True
    return replace(record, inputs=inputs, attrs=attrs), narrow


def route_report(route: Route, calls: CoveredCalls, target: Target, setting: Setting) -> dict[str, Any]:
    """One route's share. ``reasons`` are the commonest for which it lacks the rest, with their calls."""
    available = route.available(target)
    able: set[str] = set()
    lacking: Counter[str] = Counter()
    started = said = time.monotonic()
    for number, (key, operator) in enumerate(calls.operators.items()):
        if not available:
            break
        answer = route.supports(operator, setting)
        if answer:
            able.add(key)
        else:
            lacking[answer.reason] += calls.by_key[key]  # type: ignore[union-attr]
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            print(f"  {route.name}: {number + 1} of {len(calls.operators)} operators …", flush=True)
    count = sum(calls.by_key[key] for key in able)
    return {
        "method": route.method,
        "available": bool(available),
        "why_not": "" if available else available.reason,  # type: ignore[union-attr]
        "calls": count,
        "share": _share(count, calls.total),
        "share_of_expressible": _share(count, calls.mapped),
        "operators": len(able),
        "reasons": lacking.most_common(TOP),
        "seconds": round(time.monotonic() - started, 2),
        "keys": able,
    }


def report(
    calls: CoveredCalls, routes: Iterable[Route] = routes_for("cpu"), target: Target | None = None
) -> dict[str, Any]:
    """The whole report over ``calls``, as it is written (plain JSON)."""
    target, setting = target or detect_target(), Setting(threads=usable_cores())
    rows = {route.name: route_report(route, calls, target, setting) for route in routes}
    keys = {name: row.pop("keys") for name, row in rows.items()}
    by_method: dict[str, set[str]] = {}
    for name, row in rows.items():
        by_method.setdefault(row["method"], set()).update(keys[name])
    anyone: set[str] = set().union(*keys.values())
    empty = sum(calls.unmapped[reason] for reason in NO_COMPUTE)
    return {
        "calls": calls.total,
        "expressible": _share(calls.mapped, calls.total),
        "expressible_of_compute": _share(calls.mapped, calls.total - empty),
        "operators": len(calls.operators),
        "half_width_read_as_float32": _share(calls.narrow, calls.total),
        "backward_left_out": calls.backward,
        "overall": _share(sum(calls.by_key[key] for key in anyone), calls.total),
        "by_method": {
            method: _share(sum(calls.by_key[key] for key in able), calls.total)
            for method, able in by_method.items()
        },
        "routes": rows,
        "unmapped": calls.unmapped.most_common(),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 5) if whole else 0.0


def logs(sample: str | None = None) -> list[Path]:
    """The files to read: those that ``SAMPLE`` names, else every open log."""
    places = (
        [Path(part) for part in sample.split(":") if part] if sample else [tuning_conf().workloads / "oplogs"]
    )
    found: list[Path] = []
    for place in places:
        if not place.exists():
            raise SystemExit(f"There is no {place}: name operator logs with SAMPLE=file.json (or a folder).")
        found += sorted(place.rglob("*.json")) if place.is_dir() else [place]
    return found


def main() -> None:
    files = logs(conf().sample)
    reader, calls, suites = Reader(), CoveredCalls(), dict[str, CoveredCalls]()
    for number, path in enumerate(files, 1):
        suite = suites.setdefault(path.parent.name, CoveredCalls())
        try:
            reader.read(path, (calls, suite))
        except InvalidModel as error:
            raise SystemExit(str(error)) from None
        if number % 20 == 0 or number == len(files):
            print(f"{number} of {len(files)} logs read, {calls.total:,} forward calls", flush=True)
    result = {"files": len(files), **report(calls)}
    result["suites"] = {
        name: {"calls": one.total, "expressible": _share(one.mapped, one.total)}
        for name, one in suites.items()
    }
    print_table(result)
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "coverage.json"
    path.write_text(json.dumps(result, indent=1))
    print(f"Written to {path}")


def print_table(result: dict[str, Any]) -> None:
    """The report for people: shares of all forward calls, and what stands in the way of the rest."""
    print(
        f"\n{result['calls']:,} forward calls, {result['operators']:,} distinct operators; "
        f"{result['half_width_read_as_float32']:.1%} of the calls are float16 and read as float32; "
        f"{result['backward_left_out']:,} backward calls left out.\n"
        f"Expressible as canonical operators: {result['expressible']:.1%} "
        f"({result['expressible_of_compute']:.1%} of what computes something); "
        f"by at least one route: {result['overall']:.1%}.\n"
    )
    print(f"{'route':<13}{'calls':>8}{'operators':>11}  what it lacks")
    for name, row in result["routes"].items():
        lacks = row["why_not"] or "; ".join(f"{reason} ({count:,})" for reason, count in row["reasons"][:3])
        print(f"{name:<13}{row['share']:>8.1%}{row['operators']:>11,}  {lacks}")
    methods = ", ".join(f"{method} {share:.1%}" for method, share in result["by_method"].items())
    print(f"By method: {methods}")
    print("Not expressible:")
    for reason, count in result["unmapped"][:12]:
        print(f"{count:>8,}  {reason}")
