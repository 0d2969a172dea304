"""Whether a route works in this very laboratory: one tiny operator is built by it, loaded, run and compared.

A route's library may be there and still fail in a sandbox (a compiler without a folder for its temporary
files), so that nothing but a real build in the worker's own tier says that it works.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, parse_operator
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome
from tuning.routes.base import Budget, Candidate, No, Route
from tuning.routes.manual.own import proof_of
from tuning.routes.manual.submitted import SubmittedRoute

SETTING = Setting(threads=1)
_BUDGET = Budget(seconds=1.0, candidates=1)
_MOST_CHARACTERS = 300


def prove(laboratory: Laboratory, route: Route) -> str:
    """Empty where the route builds and computes here; else why it does not, in one sentence."""
    if isinstance(answer := route.available(laboratory.target), No):
        return answer.reason
    given = next(tiny(laboratory, route), None)
    if given is None:
        return ""  # it has nothing for any of them: there is nothing to hold against it
    with tempfile.TemporaryDirectory(prefix="opatlas-proof-", dir=laboratory.home) as folder:
        return _failure(laboratory, route, *given, Path(folder))


def _failure(
    laboratory: Laboratory, route: Route, operator: Operator, candidate: Candidate, folder: Path
) -> str:
    built = laboratory.build(route, operator, SETTING, candidate, folder)
    done = built if isinstance(built, Outcome) else laboratory.check(operator, SETTING, built)
    if done.ok:
        return ""
    doing = "built" if built is done else "run"
    said = (done.detail.strip().splitlines() or [done.status])[0]
    return f"A tiny {operator.op_types[0]} cannot be {doing} in the sandbox: {said}"[:_MOST_CHARACTERS]


def tiny(laboratory: Laboratory, route: Route) -> Iterator[tuple[Operator, Candidate]]:
    """Operators that take no time, and the route's first candidate for those that it can express."""
    if isinstance(route, SubmittedRoute):
        yield operator_of("Relu", [8, 16]), own_kernel(route.name)
        return
    for operator in (
        operator_of("Add", [8, 16], [8, 16]),
        operator_of("MatMul", [16, 16], [16, 16]),
        operator_of("MatMul", [16, 16], {"shape": [16, 16], "dtype": "float32", "role": "const"}),
        *((operator_of("LayerNormalization", [8, 16], [16], [16]),) if route.name == "cudnn" else ()),
    ):
        if route.supports(operator, SETTING):
            for candidate in route.candidates(operator, laboratory.target, SETTING, _BUDGET):
                yield operator, candidate
                break


def own_kernel(route: str = "cpp") -> Candidate:
    """A source of our own: what somebody else wrote is not run to see whether that works."""
    return Candidate(route, proof_of(route), "our own Relu")


def operator_of(op: str, *inputs: Any) -> Operator:
    described = [one if isinstance(one, dict) else {"shape": one, "dtype": "float32"} for one in inputs]
    return parse_operator({"op": op, "inputs": described})
