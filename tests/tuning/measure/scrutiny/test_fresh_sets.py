"""What no process has seen is of all kinds too, and of what is heavy a part of the results is enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, parse_operator
from tuning.measure import specimen
from tuning.measure.judging import parts
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.parts import OutputPart
from tuning.measure.judging.reference import runner
from tuning.measure.outcome import Status
from tuning.measure.scrutiny import fresh_sets
from tuning.measure.scrutiny.fresh_sets import EVERYDAY, FreshSets

M, K, N = 128, 64, 96
PRODUCT = parse_operator(
    {"op": "MatMul", "inputs": [{"shape": [M, K], "dtype": "float32"}, {"shape": [K, N], "dtype": "float32"}]}
)
Array = np.ndarray
MANY = 24
"""Sets. Four of them miss what is rarest one time in 25: where the one row of tiny numbers is hardly tiny; so
many miss it less than one time in ten million."""


def references(sets: Sequence[Mapping[int, Array]], part: OutputPart | None) -> list[list[Reference]]:
    operator = PRODUCT if part is None else part.operator
    run = runner("torch64", operator, Setting(), {})

    def of(spans: Mapping[int, Array]) -> list[Reference]:
        spans = spans if part is None else part.spans(spans)
        made = run({number: flat.reshape(operator.inputs[number].shape) for number, flat in spans.items()})
        found = [Reference(*one) for one in made]
        return found if part is None else [part.of(one) for one in found]

    return [of(one) for one in sets]


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setattr(fresh_sets, "HEAVY_FLOPS", 1)
    monkeypatch.setattr(specimen, "CHEAP_FLOPS", 1)
    monkeypatch.setattr(parts, "FLOPS", 1)
    return PRODUCT


def product(a: Array, b: Array) -> Array:
    return a.astype(np.float64) @ b


WRONG: dict[str, Callable[[Array, Array], Array]] = {
    "on mostly zeros": lambda a, b: np.where((a == 0).mean(1, keepdims=True) > 0.5, 0, product(a, b)),
    "on negatives only": lambda a, b: np.where((a < 0).all(1, keepdims=True), 0, product(a, b)),
    "on tiny ones": lambda a, b: np.where(np.abs(a).max(1, keepdims=True) < 2.0**-20, 0, product(a, b)),
    "on outliers": lambda a, b: product(np.clip(a, -20, 20), b),
    "on columns of equals": lambda a, b: np.where(np.ptp(b, 0) == 0, 0, product(a, b)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_heavy_product_is_found_wrong_on_one_kind_of_values(heavy: Operator, name: str) -> None:
    fresh = FreshSets(heavy, references)
    assert fresh.batch.heavy
    statuses = []
    for _ in range(MANY):
        fresh.forget_used()
        fresh.draw_ahead(4)
        for one in fresh.wide():
            [reference] = one.references
            assert reference.places is not None and reference.value.size <= M * N // 2
            a, b = one.spans[0].reshape(M, K), one.spans[1].reshape(K, N)
            assert compare([product(a, b)], one.references).status is Status.OK
            statuses.append(compare([WRONG[name](a, b)], one.references).status)
    assert len(statuses) == MANY and Status.WRONG_RESULT in statuses, statuses


def test_a_heavy_operators_timed_runs_go_through_all_everyday_distributions(
    heavy: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One decides in each process: in four, each of them once."""
    drawn: list[str] = []
    make = fresh_sets.make_runtime

    def noted(operator: Operator, name: str, *more: Any) -> dict[int, Array]:
        drawn.append(name)
        return make(operator, name, *more)

    monkeypatch.setattr(fresh_sets, "make_runtime", noted)
    fresh = FreshSets(heavy, lambda sets, part: [[] for _ in sets])
    for _ in range(4):
        fresh.forget_used()
        fresh.draw_ahead(4)
        fresh.everyday(0)
        fresh.wide()
    assert sorted(name for name in drawn if name != "strata") == sorted(EVERYDAY)
    assert drawn.count("strata") == 4
