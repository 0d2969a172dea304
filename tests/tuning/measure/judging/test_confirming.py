"""References by PyTorch's calls are believed once somebody else computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from opatlas.identity import Operator, Setting  # noqa: E402
from opatlas.load.torch.graph import missing  # noqa: E402
from opatlas.load.torch.ops import activation  # noqa: E402
from opatlas.load.torch.ops.names import FAMILY_OF  # noqa: E402
from tests.opatlas.load.drawn import DRAWS, drawn  # noqa: E402
from tests.opatlas.load.operators import Case, expected_by_ort, ints, normal, operator_of, scalar  # noqa: E402
from tuning.measure.judging import confirming, reference  # noqa: E402
from tuning.measure.judging.check import Reference, compare  # noqa: E402
from tuning.measure.judging.confirming import Confirmation, Unconfirmed, retyped  # noqa: E402
from tuning.measure.outcome import Status  # noqa: E402

ORT, SINGLE, EVALUATOR = "ONNX Runtime", "ONNX Runtime in float32", "ONNX's evaluator"


def references(operator: Operator, inputs: Mapping[int, np.ndarray]) -> list[Reference]:
    run = reference.runner("torch64", operator, Setting(), {})
    return [Reference(*pair) for pair in run(inputs)]


def confirmed(operator: Operator, inputs: Mapping[int, np.ndarray], **others: Any) -> str:
    makes = {"onnxruntime": reference._onnxruntime, "evaluator": reference._onnx} | others
    return Confirmation(operator, {}, **makes).confirm(inputs, references(operator, inputs))


def test_every_type_that_pytorch_has_is_drawn() -> None:
    of_definitions = {"DFT", "STFT"}  # PyTorch's calls are no reference for these
    assert set(DRAWS) == set(FAMILY_OF) - of_definitions


@pytest.mark.parametrize("op", sorted(DRAWS))
def test_random_operators_are_confirmed(op: str) -> None:
    made = (drawn(op, number) for number in range(100))
    operator, inputs = next(one for one in made if one is not None)
    assert confirmed(operator, inputs) in (ORT, SINGLE, EVALUATOR)


@pytest.mark.nightly
@pytest.mark.parametrize("op", sorted(DRAWS))
def test_many_random_operators_are_confirmed(op: str) -> None:
    for number in range(60):
        if (made := drawn(op, number)) is not None:
            assert confirmed(*made), (op, number)


def test_a_wrong_call_of_pytorch_is_confirmed_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(activation.BUILDERS, "Relu", lambda site: torch.abs)
    operator, inputs = operator_of(Case("Relu", [normal(3, 4)]))
    with pytest.raises(Unconfirmed) as refused:
        confirmed(operator, inputs)
    assert "ONNX Runtime: output 0: " in str(refused.value) and "ONNX's evaluator: output 0: " in str(
        refused.value
    )


def test_the_evaluator_speaks_where_onnx_runtime_is_wrong() -> None:
    """It keeps products of int32 in floats."""
    operator, inputs = operator_of(Case("ReduceProd", [np.full((1, 40), 3, np.int32)], {"keepdims": 0}))
    assert confirmed(operator, inputs) == EVALUATOR


def test_what_onnx_runtime_has_in_float32_only_is_computed_so() -> None:
    operator, inputs = operator_of(Case("Mish", [normal(3, 4).astype(np.float64)]))
    assert confirmed(operator, inputs) == SINGLE


def _spin() -> None:
    while True:
        pass


def _spin_whatever_comes() -> None:
    """As code that catches any error, and once even what is none."""
    with suppress(BaseException):
        _spin()
    with suppress(Exception):
        _spin()
    pytest.fail("it went on")


@pytest.mark.parametrize("spin", [_spin, _spin_whatever_comes])
def test_the_evaluator_has_so_much_time(spin: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(operator: Operator) -> Callable[..., list[np.ndarray]]:
        def run(arrays: Mapping[int, np.ndarray]) -> list[np.ndarray]:
            spin()
            return []

        return run

    def nobody(operator: Operator) -> Callable[..., list[np.ndarray]]:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(confirming, "LONGEST_CPU_S", 0.05)
    monkeypatch.setattr(confirming, "AGAIN_CPU_S", 0.02)
    operator, inputs = operator_of(Case("Relu", [normal(3, 4)]))
    with pytest.raises(
        Unconfirmed, match=r"it cannot compute it; ONNX's evaluator: it takes more than 0.05 s"
    ):
        confirmed(operator, inputs, onnxruntime=nobody, evaluator=endless)


@pytest.mark.parametrize("method", ["onnx", "onnxruntime"])
def test_a_scalar_input_is_fed_as_one(method: str) -> None:
    """Of a Gather by one index: its axis goes."""
    operator, inputs = operator_of(Case("Gather", [normal(3, 4), scalar(2, np.int64)], {"axis": 0}))
    [(value, _)] = reference.runner(method, operator, Setting(), {})(inputs)
    np.testing.assert_array_equal(value, inputs[0][2])


def test_a_retyped_operator_says_its_type_everywhere() -> None:
    operator, inputs = operator_of(Case("Cast", [normal(3, 4)], {"to": 10}))
    wide = retyped(operator, "float64")
    assert [value.dtype for value in (*wide.inputs, *wide.produced)] == ["float64"] * 2
    [made] = reference._onnx(wide)({0: inputs[0].astype(np.float64)})
    assert made.dtype == np.float64


def resize(x: np.ndarray, sizes: np.ndarray | None = None, **attrs: Any) -> Case:
    scales, roi = attrs.pop("scales", None), attrs.pop("roi", None)
    return Case("Resize", [x, roi, scales, sizes], attrs, fixed=[1, 2, 3], opset=19)


IMAGE, SMALLER = normal(1, 2, 9, 11), ints(1, 2, 4, 5)
BYTES = np.random.default_rng(1).integers(0, 256, (1, 2, 6, 7)).astype(np.uint8)
SCALES = np.array([1, 1, 1.7, 0.6], np.float32)
CROP = {
    "coordinate_transformation_mode": "tf_crop_and_resize",
    "extrapolation_value": 3.0,
    "roi": np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.1], np.float32),
}
KEYS = {"mode": "cubic", "antialias": 1, "cubic_coeff_a": -0.5, "exclude_outside": 1}
POLICY = "keep_aspect_ratio_policy"
PAST = [
    normal(1, 2, 2, 8),
    normal(1, 2, 4, 8),
    normal(1, 2, 4, 8),
    None,
    normal(1, 2, 3, 8),
    normal(1, 2, 3, 8),
]
BLIND = [*[normal(1, 2, 3, 8)] * 3, np.zeros((3, 3), bool)]
SAME = {"strides": [1, 3], "auto_pad": "SAME_UPPER"}

FOUND_WRONG = [
    resize(IMAGE, ints(4, 5), mode="linear", axes=[2, 3], **{POLICY: "not_larger"}),
    resize(IMAGE, ints(4, 5), mode="linear", axes=[2, 3], **{POLICY: "not_smaller"}),
    resize(IMAGE, SMALLER, mode="linear", antialias=1),
    resize(IMAGE, ints(1, 2, 13, 5), mode="cubic", antialias=1),
    resize(IMAGE, SMALLER, **KEYS),
    *(
        resize(normal(1, 2, 5, 7), ints(1, 2, 6, 5), mode=mode, **CROP)
        for mode in ("nearest", "linear", "cubic")
    ),
    *(resize((BYTES // 2).astype(kind), scales=SCALES, mode="linear") for kind in ("uint8", "int8", "int32")),
    Case("Attention", PAST, {"is_causal": 1}, outputs=3),
    Case("Attention", BLIND, {"softcap": 2.0}),
    Case("ConvTranspose", [normal(1, 2, 2, 2), normal(2, 2, 2, 1)], SAME),
    Case("InstanceNormalization", [normal(1, 4, 1), normal(4), normal(4)]),
    Case("Split", [normal(3, 4)], {"num_outputs": 1}),
    Case("Cast", [normal(3, 4) * 1000], {"to": 17, "saturate": 1}),
]
NOT_PYTORCHS = [
    (resize(BYTES, SMALLER, mode="linear", antialias=1), "no antialiased Resize of uint8"),
    (resize(BYTES, SMALLER, mode="cubic"), "no cubic Resize of uint8"),
    (Case("Cast", [normal(3)], {"to": 17, "saturate": 0}), "no word for what does not fit"),
    (
        Case("MaxPool", [normal(1, 2, 5, 5)], {"kernel_shape": [2, 2], "storage_order": 1}, outputs=2),
        "no column-major indices",
    ),
    (Case("BitShift", [ints(1).astype(np.uint16)] * 2, {"direction": "LEFT"}), "shifts no uint16"),
]


@pytest.mark.parametrize("case", FOUND_WRONG, ids=str)
def test_pytorch_means_what_onnx_runtime_computes(case: Case) -> None:
    operator, inputs = operator_of(case)
    assert missing(operator) is None
    wanted = references(operator, inputs)
    assert confirmed(operator, inputs) in (ORT, SINGLE, EVALUATOR)
    if case.op != "Cast":  # whose eight bits ONNX Runtime gives NumPy as bytes
        assert compare(expected_by_ort(case), wanted).status is Status.OK


@pytest.mark.parametrize(("case", "words"), NOT_PYTORCHS)
def test_what_pytorch_has_no_right_call_for_is_known_beforehand(case: Case, words: str) -> None:
    operator, _ = operator_of(case)
    assert words in (missing(operator) or "")
