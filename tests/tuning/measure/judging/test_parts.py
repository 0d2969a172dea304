"""A part of an operator's output is computed as the whole computes it, whatever the operator."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from opatlas.identity import Operator, Setting, parse_operator
from tests import by_day
from tests.opatlas.load.drawn import DRAWS, drawn
from tuning.measure.judging import parts
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.inputs import make_constants, make_runtime
from tuning.measure.judging.parts import part_of
from tuning.measure.judging.reference import runner
from tuning.measure.outcome import Status
from tuning.measure.shared_tensors import TensorSlot


@pytest.fixture(autouse=True)
def anything_is_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FLOPS", 1), ("BYTES", 1), ("LEAST", 2)):
        monkeypatch.setattr(parts, name, value)


def viewed(operator: Operator, spans: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
    values = {number: operator.inputs[number] for number in spans}
    return {
        number: TensorSlot(0, value.dtype, value.shape, value.strides).view(spans[number])
        for number, value in values.items()
    }


def of_part_and_whole(operator: Operator, seed: int = 0) -> tuple[Reference, Reference] | None:
    """The reference of a part, and of the whole; None where it has no part."""
    rng = np.random.default_rng(seed)
    part = part_of(operator, rng)
    if part is None:
        return None
    constants = make_constants(operator, Dealer(rng).hand(rng))
    inputs = make_runtime(operator, "normal", rng)
    whole = runner("torch64", operator, Setting(), viewed(operator, constants))
    small = runner("torch64", part.operator, Setting(), {})
    [known] = whole(viewed(operator, inputs))
    [made] = small(viewed(part.operator, part.spans({**constants, **inputs})))
    return part.of(Reference(*made)), Reference(*known)


def f32(*shape: int, **more: object) -> dict[str, object]:
    return {"shape": list(shape), "dtype": "float32", **more}


def one(op: str, *inputs: dict[str, object], **attrs: object) -> Operator:
    return parse_operator({"op": op, "attrs": attrs, "inputs": list(inputs)})


HEAVY_TYPES = {
    "convolution": one("Conv", f32(2, 8, 9, 9), f32(12, 8, 3, 3, const=True), f32(12, const=True)),
    "depthwise": one("Conv", f32(1, 12, 9, 9), f32(12, 1, 3, 3, const=True), group=12),
    "product": one("MatMul", f32(3, 8, 5), f32(5, 40, const=True)),
    "product of a batch": one("MatMul", f32(30, 8, 5), f32(30, 5, 4)),
    "linear": one("Gemm", f32(8, 5), f32(40, 5, const=True), f32(40, const=True), transB=1),
    "softmax": one("Softmax", f32(2, 5, 40), axis=1),
    "sum": one("ReduceSum", f32(40, 5, 7), {"value": [1], "dtype": "int64"}, keepdims=0),
    "pool": one("MaxPool", f32(2, 30, 8, 8), kernel_shape=[2, 2]),
    "rows of a table": one("Gather", f32(50, 6), {"shape": [30], "dtype": "int64"}, axis=0),
    "turned, and strided": one("Add", f32(20, 30, strides=[1, 20]), f32(20, 30)),
}


@pytest.mark.parametrize("name", HEAVY_TYPES)
def test_what_is_heavy_has_a_part_that_says_what_the_whole_says(name: str) -> None:
    found = of_part_and_whole(HEAVY_TYPES[name])
    assert found is not None
    part, whole = found
    assert part.places is not None and 0 < len(part.places) <= whole.value.shape[part.axis] // 2
    np.testing.assert_allclose(part.value, whole.value.take(part.places, part.axis), rtol=1e-12)
    if whole.allowed is not None:
        np.testing.assert_allclose(part.allowed, whole.allowed.take(part.places, part.axis), rtol=1e-2)
    off: np.ndarray = whole.value.astype(np.float64)
    off[(*(slice(None),) * part.axis, part.places[-1])] += 1
    assert compare([whole.value], [part]).status is Status.OK
    assert compare([off], [part]).status is Status.WRONG_RESULT
    untold = np.setdiff1d(np.arange(whole.value.shape[part.axis]), part.places)
    off = whole.value.astype(np.float64)
    off[(*(slice(None),) * part.axis, untold)] += 1
    assert compare([off], [part]).status is Status.OK  # of another part nothing is said


@pytest.mark.parametrize(
    "operator",
    [one("MatMul", f32(128, 64), f32(64, 96)), one("MatMul", f32(96, 64), f32(64, 128)),
     one("Conv", f32(1, 4, 5, 5), f32(128, 4, 3, 3, const=True)), one("Softmax", f32(3, 128, 16))],
    ids=["rows", "columns", "filters", "lines"],
)  # fmt: skip
def test_a_part_holds_rows_of_every_kind_that_was_dealt(operator: Operator) -> None:
    rng = np.random.default_rng(3)
    dealer, chosen = Dealer(rng), []
    for _ in range(6):
        hand = dealer.hand(rng)
        make_constants(operator, hand)
        make_runtime(operator, "strata", rng, hand)
        part = part_of(operator, rng, [hand])
        assert part is not None and len(part.places) < 64
        [(axes, dealt)] = [hand.dealt[number] for number in part.axes]
        rows = np.moveaxis(dealt, axes.index(next(iter(part.axes.values()))), 0)
        assert set(rows[part.places].flat) == set(rows.flat)
        chosen.append(tuple(part.places))
    assert len(set(chosen)) == len(chosen), "nobody knows which"


@pytest.mark.parametrize("op", by_day.only(["Add", "Conv", "Gather", "Pad"], sorted(DRAWS)))
def test_a_random_operators_part_says_what_the_whole_says(op: str) -> None:
    for number in range(12):
        made = drawn(op, number)
        try:
            found = None if made is None else of_part_and_whole(made[0], number)
        except NotImplementedError:  # a form that PyTorch does not have
            continue
        if found is not None:
            part, whole = found
            assert part.places is not None
            np.testing.assert_allclose(
                part.value, whole.value.take(part.places, part.axis), rtol=1e-9, atol=1e-12
            )
