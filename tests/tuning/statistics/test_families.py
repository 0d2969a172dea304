"""Colours of the heat map: from margins, and none where there is none."""

from __future__ import annotations

import math

import pytest

from opatlas.identity.operator_types import TYPES
from tuning.statistics.families import OTHER, FamilyCell, FamilyRow, columns, family_of


@pytest.mark.parametrize(
    ("margin", "step"),
    [(0.98, 0), (1.0, 0), (1.0199, 0), (1.021, 1), (1.11, 2), (1.26, 3), (1.61, 4), (50.0, 4)],
)
def test_a_wider_margin_is_a_stronger_colour(margin: float, step: int) -> None:
    cell = FamilyCell("tvm", "compiler", won=3, contested=2, log_margin=2 * math.log(margin))
    assert cell.margin == pytest.approx(margin) and cell.step == step


def test_who_met_nobody_has_no_margin() -> None:
    alone = FamilyCell("tvm", "compiler", won=3)
    assert alone.margin is None and alone.step is None


def test_every_type_has_a_family() -> None:
    assert {family_of(name) for name in TYPES} == {one.family for one in TYPES.values()}
    assert family_of("com.example.Own") == OTHER


def test_columns_stand_by_method_and_by_what_they_won() -> None:
    cells = [
        FamilyCell("xla", "compiler", 2),
        FamilyCell("tvm", "compiler", 9),
        FamilyCell("mkl", "library", 1),
    ]
    row = FamilyRow("linear", ("Gemm",), {cell.name: cell for cell in cells})
    assert columns([row]) == [("mkl", "library"), ("tvm", "compiler"), ("xla", "compiler")]
    assert row.operators == 12
