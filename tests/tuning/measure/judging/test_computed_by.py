"""Default and reference are never one code alone, and the page says who computes which."""

from __future__ import annotations

import onnx
import pytest

pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, detect_target
from tests.opatlas.load.drawn import DRAWS, drawn
from tests.opatlas.load.operators import Case, integers, operator_of, scalar
from tests.tuning.measure.judging.computed_by import BY_PYTORCH, HEADING, computed_by, section
from tests.tuning.measure.judging.page import written
from tuning.measure.judging.confirming import OTHERS
from tuning.measure.judging.reference import methods
from tuning.routes.registry import default_candidate

ROUTE = {"PyTorch eager": "eager", "ONNX Runtime": "onnxruntime"}
METHOD = {"PyTorch's calls in float64": "torch64", "ONNX's evaluator": "onnx"}
BYTES = [integers(2, 3, dtype="uint8"), integers(3, 2, dtype="uint8"), scalar(1, "uint8")]


def example(op: str) -> Operator:
    """Of a form that PyTorch has, where it has the type."""
    if op not in DRAWS:
        return operator_of(Case(op, BYTES))[0]
    made = (drawn(op, number) for number in range(100))
    return next(one for one in made if one is not None)[0]


def test_no_type_has_one_code_alone_for_both() -> None:
    for schema in onnx.defs.get_all_schemas():
        who = computed_by(schema.name)
        pytorch_alone = "PyTorch" in who.default and "PyTorch" in who.reference and not who.others
        assert not pytorch_alone and who.default != who.reference, schema.name
    assert BY_PYTORCH.others == OTHERS and not any("PyTorch" in one for one in OTHERS)


@pytest.mark.parametrize("op", [*sorted(DRAWS), "MatMulInteger"])
def test_the_table_is_what_happens(op: str) -> None:
    operator = example(op)
    chosen = default_candidate(operator, detect_target(), Setting())
    who = computed_by(op)
    assert chosen is not None and chosen[0].name == ROUTE[who.default]
    first, *rest = methods(operator, chosen[0].name)
    assert first == METHOD[who.reference]
    assert chosen[0].name not in (first, *rest), "never the reference of itself"


def test_the_page_says_who_computes_what() -> None:
    assert written(HEADING) == section(), "run: python -m tests.tuning.measure.judging.computed_by"
