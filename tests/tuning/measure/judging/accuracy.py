"""What libraries and compilers need of the errors that are allowed: measured, and written down.

``python -m tests.tuning.measure.judging.accuracy > docs/figures/accuracy.json`` runs every recipe of every
library over the operators of ``tests/opatlas/load/cases.py`` in each floating type and over the contest's
operators, and kernels of the compilers over functions of one element, all on every kind of input set. That
takes minutes. ``shares`` writes a summary of it into ``docs/accuracy.md``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from bench.contest.sample import read_sample
from opatlas.identity import Operator, Setting, detect_target
from opatlas.identity.operator_types import types_with
from opatlas.load import load
from opatlas.load.torch.graph import missing
from tests.opatlas.load.cases import FAMILIES
from tests.opatlas.load.operators import Case, operator_of
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_constants, make_runtime
from tuning.measure.judging.reference import runner
from tuning.measure.outcome import Status
from tuning.measure.shared_tensors import TensorSlot
from tuning.routes.base import Budget, Route
from tuning.routes.registry import ROUTES

SETTING = Setting(threads=1)
QUICK = ("tvm", "halide", "xla")
"""Compilers that build in a second or so."""
TYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclasses.dataclass
class Tally:
    """Pairs of an implementation and an operator: how many were judged, how near each type of operator came
    to what is allowed (by route), and what was refused."""

    judged: int = 0
    operators: set[str] = dataclasses.field(default_factory=set)
    worst: dict[tuple[str, str], dict[str, float]] = dataclasses.field(
        default_factory=lambda: defaultdict(lambda: defaultdict(float))
    )
    refused: dict[tuple[str, str], set[str]] = dataclasses.field(default_factory=lambda: defaultdict(set))
    """By operator and implementation: on which input sets."""


def operators(types: Sequence[str]) -> Iterator[tuple[str, Operator]]:
    """The examples' operators, with their floating inputs in each of these types."""
    for cases in FAMILIES.values():
        for case in cases:
            for name in types:
                try:
                    yield name, operator_of(_in_type(case, name))[0]
                except Exception:  # a form that the type does not have
                    continue


def large_ones() -> Iterator[Operator]:
    """Functions of one element on 65,536: as many places of each stratum as a vector library has cases."""
    seen = set()
    for cases in FAMILIES.values():
        for case in cases:
            floats = all(array is None or array.dtype == np.float32 for array in case.inputs)
            plain = not case.strides and floats and not case.fixed
            if case.op not in types_with("pointwise") or not plain or (case.op, str(case.attrs)) in seen:
                continue
            seen.add((case.op, str(case.attrs)))
            wide = [None if array is None else np.resize(array, (64, 1024)) for array in case.inputs]
            yield operator_of(dataclasses.replace(case, inputs=wide))[0]


def _in_type(case: Case, name: str) -> Case:
    def cast(array: np.ndarray | None) -> np.ndarray | None:
        return array.astype(TYPES[name]) if array is not None and array.dtype == np.float32 else array

    return dataclasses.replace(case, inputs=[cast(array) for array in case.inputs])


def survey(operator: Operator, dtype: str, routes: Sequence[Route], tally: Tally, seed: int = 0) -> None:
    """Judge every candidate of every route on each kind of input set."""
    rng = np.random.default_rng(seed)
    flat = make_constants(operator, Dealer(rng).hand(rng))
    constants = _views(operator, flat)
    sets = [(name, _views(operator, make_runtime(operator, name, rng))) for name in DISTRIBUTIONS]
    try:
        run = runner("onnx" if missing(operator) else "torch64", operator, SETTING, constants)
        references = [[Reference(*pair) for pair in run(inputs)] for _, inputs in sets]
    except Exception as error:
        print(f"no reference: {operator.op_types} {type(error).__name__} {error}"[:200], file=sys.stderr)
        return
    tally.operators.add(operator.key)
    for route in routes:
        for label, results in _results(operator, route, constants, [inputs for _, inputs in sets]):
            tally.judged += 1
            for (name, _), made, wanted in zip(sets, results, references, strict=True):
                verdict = compare(made, wanted)
                types = "+".join(operator.op_types)
                if verdict.status is Status.OK:
                    cell = tally.worst[types, dtype]
                    cell[route.name] = max(cell[route.name], verdict.error)
                    continue
                shapes = [list(operator.inputs[number].shape) for number in operator.tensor_inputs]
                who = f"{types} {dtype} {shapes}", f"{route.name} [{label}]"
                tally.refused[who].add(name)
                print(*who, f"on {name}: {verdict.detail} {verdict.error:.3g}", file=sys.stderr)


def _views(operator: Operator, flat: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    return {
        number: TensorSlot(0, value.dtype, value.shape, value.strides).view(flat[number])
        for number, value in enumerate(operator.inputs)
        if number in flat
    }


def _results(
    operator: Operator, route: Route, constants: dict[int, np.ndarray], sets: Sequence[dict[int, np.ndarray]]
) -> Iterator[tuple[str, list[list[np.ndarray]]]]:
    if not route.supports(operator, SETTING):
        return
    target = detect_target()
    most = 32 if route.method == "library" else 1
    with tempfile.TemporaryDirectory() as folder:
        for candidate in route.candidates(operator, target, SETTING, Budget(seconds=10, candidates=most)):
            try:
                artifact = route.build(operator, target, SETTING, candidate, Path(folder))
                kernel = load(artifact.manifest, artifact.folder)
                kernel.prepare(constants)
                results = []
                for inputs in sets:
                    bound = kernel.bind(inputs)
                    bound()
                    results.append([np.array(made) for made in bound.outputs()])
            except Exception as error:
                # What a library lacks it says now.
                print(f"{operator.op_types} {route.name} {candidate.label}: {error}"[:160], file=sys.stderr)
                continue
            yield candidate.label, results
            if route.method != "library":
                return


def tables(tally: Tally) -> list[dict[str, Any]]:
    """As a file of docs/figures/ has them: the shares, and what was refused."""
    routes = sorted({route for cell in tally.worst.values() for route in cell})
    shares = {
        "title": "Errors of libraries and compilers, as shares of what is allowed",
        "conditions": f"{tally.judged:,} pairs of an implementation and one of {len(tally.operators):,} "
        "operators were judged on one processor: the examples of the tests, functions of one element on "
        "65,536 elements, and the contest's operators. Another processor gives other shares.",
        "columns": ["operator type", "element type", *routes],
        "rows": [
            [types, dtype, *(round(cell[route], 2) if route in cell else None for route in routes)]
            for (types, dtype), cell in sorted(tally.worst.items())
            if max(cell.values()) > 0
        ],
    }
    refused = {
        "title": "What was refused",
        "conditions": "In the same run.",
        "columns": ["operator", "implementation", "on input sets"],
        "rows": [[*who, ", ".join(sorted(names))] for who, names in sorted(tally.refused.items())],
    }
    return [shares, refused]


def as_json(tables: list[dict[str, Any]]) -> str:
    """In which whoever compares two runs sees which rows differ."""
    return "[" + ",\n".join(map(_one_row_a_line, tables)) + "]\n"


def _one_row_a_line(table: dict[str, Any]) -> str:
    head = json.dumps({**table, "rows": []}, ensure_ascii=False).removesuffix("]}")
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
    return f"{head}\n{rows}\n]}}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--routes", default="", help="these only; else libraries and quick compilers")
    parser.add_argument("--types", default=",".join(TYPES), help="element types of the examples")
    parser.add_argument("--only", default="", help="one operator type")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    np.seterr(all="ignore")
    named = options.routes.split(",") if options.routes else []
    libraries = [one for one in ROUTES if one.name in named or (not named and one.method == "library")]
    routes = [one for one in ROUTES if one in libraries or (not named and one.name in QUICK)]
    tally, started = Tally(), time.monotonic()
    for dtype, operator in operators([name for name in options.types.split(",") if name]):
        if not options.only or options.only in operator.op_types:
            survey(operator, dtype, libraries, tally)
    for operator in large_ones():
        if not options.only or options.only in operator.op_types:
            survey(operator, "float32", routes, tally)
    for entrant in read_sample():
        if not options.only or options.only in entrant.operator.op_types:
            survey(entrant.operator, "float32", libraries, tally)
    print(f"{tally.judged} judged in {time.monotonic() - started:.0f} s", file=sys.stderr)
    print(as_json(tables(tally)), end="")


if __name__ == "__main__":
    main()
