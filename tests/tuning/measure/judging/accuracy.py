"""What libraries and compilers need of the errors that are allowed: measured, and written down.

``python -m tests.tuning.measure.judging.accuracy > docs/accuracy.md`` runs every recipe of every library over
the operators of ``tests/opatlas/load/cases.py`` in each floating type and over the contest's operators, and
kernels of the compilers over functions of one element, all on every kind of input set.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np

from bench.contest.sample import read_sample
from opatlas.identity import Operator, Setting, detect_target
from opatlas.identity.operator_types import types_with
from opatlas.load import load
from opatlas.load.torch.graph import missing
from tests.opatlas.load.cases import FAMILIES
from tests.opatlas.load.operators import Case, operator_of
from tests.tuning.measure.judging import drawn_values
from tests.tuning.measure.judging.computed_by import section
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
    refused: list[str] = dataclasses.field(default_factory=list)


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
                line = f"{types} {dtype} {shapes} {route.name} [{label}] on {name}: {verdict.detail}"
                tally.refused.append(f"{line} {verdict.error:.3g}")
                print(tally.refused[-1], file=sys.stderr)


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


_HEAD = """# How exact libraries and compilers are

Each element of a result may differ from the float64 reference by what honest arithmetic of its type
can lose there (`tuning/measure/judging/rounding`; the constants with their reasons:
`tuning/measure/judging/tolerance.py`). Here is how much of that libraries and compilers need, as a
share of what is allowed (1 is all of it): the worst element of every candidate on every kind of
input set. Judged are the examples of `tests/opatlas/load/cases.py`, functions of one element on
65,536 elements, and the operators of the contest. The page is written by `python -m
tests.tuning.measure.judging.accuracy` (minutes; another processor gives other shares).

XLA's shares near 1 are denormal numbers, which it takes for zero: that is allowed, and all of it is
used. What is not in the table was exact.
"""

_REFUSED = """
## Refused

What was refused in the run that wrote this page. ONNX Runtime's LRN on float16 is off by 5 %, fifty
times what the type can say: it is wrong. TVM's IsInf heeds neither of its attributes: it is wrong, too.
(TVM leaves the statistics of a LayerNormalization at zero: its examples, tried apart, are wrong too.)
"""


def document(tally: Tally) -> Iterator[str]:
    """The page, line by line."""
    yield _HEAD
    refused = {line.split(" on ")[0] for line in tally.refused}
    judged = f"{tally.judged:,} pairs of an implementation and one of {len(tally.operators):,} operators"
    yield f"Judged: {judged}. Refused: {len(refused)}, see below.\n"
    yield "| operator type | element type | share of what is allowed |\n| --- | --- | --- |"
    for (types, dtype), cell in sorted(tally.worst.items()):
        if max(cell.values()) > 0:
            shares = ", ".join(f"{name} {share:.2f}" for name, share in sorted(cell.items()))
            yield f"| {types} | {dtype} | {shares} |"
    yield _REFUSED
    for line in sorted({line.split(":")[0] for line in tally.refused}):
        yield f"- {line}"
    yield f"\n{section().rstrip()}"
    yield f"\n{drawn_values.section().rstrip()}"


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
    for line in document(tally):
        print(line)


if __name__ == "__main__":
    main()
