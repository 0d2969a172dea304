"""Definitions of what ONNX's evaluator leaves parts out of, and what a reference by them allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from opatlas.identity import Operator, Setting, parse_operator, to_onnx
from tests.opatlas.identity.examples import known, node, tensor
from tuning.measure.judging.check import Reference, compare
from tuning.measure.judging.definitions import DEFINED
from tuning.measure.judging.inputs import make_runtime
from tuning.measure.judging.reference import methods, runner
from tuning.measure.outcome import Status

torch = pytest.importorskip("torch")

Arrays = Mapping[int, np.ndarray]


def number(value: int) -> dict[str, Any]:
    return {"value": value, "dtype": "int64"}


def drawn(operator: Operator, distribution: str = "normal", seed: int = 3) -> dict[int, np.ndarray]:
    flat = make_runtime(operator, distribution, np.random.default_rng(seed))
    return {number: span.reshape(operator.inputs[number].shape) for number, span in flat.items()}


def referred(operator: Operator, arrays: Arrays) -> list[Reference]:
    made = runner("onnx", operator, Setting(threads=1), {})(arrays)
    return [Reference(value, allowed) for value, allowed in made]


def recurrent(op: str, gates: int, *more: Any, directions: int = 1, **attrs: Any) -> Operator:
    weights = [tensor(directions, gates * 4, 3), tensor(directions, gates * 4, 4)]
    return parse_operator(node(op, tensor(6, 2, 3), *weights, *more, **attrs))


BOTH: dict[str, Any] = {"direction": "bidirectional", "directions": 2}
STATE = tensor(1, 2, 4)
KNOWN_TO_ONNX = [
    recurrent("RNN", 1, outputs=2),
    recurrent("RNN", 1, tensor(1, 8), None, STATE, outputs=2, direction="reverse"),
    recurrent("GRU", 3, tensor(2, 24), outputs=2, **BOTH),
    recurrent("GRU", 3, tensor(1, 24), None, STATE, outputs=2, linear_before_reset=1),
    recurrent("LSTM", 4, tensor(2, 32), outputs=3, **BOTH),
    recurrent("LSTM", 4, tensor(1, 32), None, STATE, STATE, tensor(1, 12), outputs=3),
    parse_operator(node("DFT", tensor(2, 9, 3, 1), number(11), number(1))),
    parse_operator(node("DFT", tensor(2, 3, 8, 2), inverse=1)),
    parse_operator(node("DFT", tensor(2, 9, 1), None, number(1), onesided=1)),
    parse_operator(node("STFT", tensor(2, 40, 1), number(5), tensor(9))),
    parse_operator(node("STFT", tensor(2, 40, 2), number(7), None, number(8), onesided=0)),
    parse_operator(node("HannWindow", number(9), periodic=0)),
    parse_operator(node("BlackmanWindow", number(8))),
    parse_operator(node("AffineGrid", tensor(2, 3, 4), known(2, 1, 2, 3, 4))),
    parse_operator(node("DeformConv", tensor(1, 4, 5, 4), tensor(6, 2, 3, 3), tensor(1, 36, 3, 2), group=2,
                        offset_group=2)),
]  # fmt: skip


@pytest.mark.parametrize("operator", KNOWN_TO_ONNX, ids=[str(one.op_types[0]) for one in KNOWN_TO_ONNX])
def test_a_definition_says_what_onnx_says_where_onnx_has_all_of_it(operator: Operator) -> None:
    assert set(operator.op_types) <= DEFINED
    arrays = drawn(operator)
    wide = {f"in{n}": one.astype(np.float64) for n, one in arrays.items()}
    wanted = ReferenceEvaluator(to_onnx(operator)).run(None, wide)
    for made, want in zip(referred(operator, arrays), wanted, strict=True):
        np.testing.assert_allclose(made.value, want, rtol=1e-6, atol=1e-6)


def test_lengths_end_each_sequence_where_pytorch_ends_it() -> None:
    operator = recurrent("LSTM", 4, None, tensor(2, dtype="int32"), outputs=3, **BOTH)
    arrays = drawn(operator)
    arrays[3] = np.array([6, 3], np.int32)
    x, w, r = (torch.from_numpy(arrays[n]).double() for n in range(3))
    theirs = torch.nn.LSTM(3, 4, bias=False, bidirectional=True).double()
    order = [0, 2, 3, 1]  # ONNX has i, o, f, c; PyTorch i, f, c, o
    for number, suffix in enumerate(("", "_reverse")):
        for name, rows in ((f"weight_ih_l0{suffix}", w[number]), (f"weight_hh_l0{suffix}", r[number])):
            getattr(theirs, name).data = rows.reshape(4, 4, -1)[order].reshape(16, -1)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [6, 3])
    with torch.no_grad():
        made, (state, cell) = theirs(packed)
    whole, _ = torch.nn.utils.rnn.pad_packed_sequence(made, total_length=6)
    wanted = whole.reshape(6, 2, 2, 4).transpose(1, 2).numpy()
    got = referred(operator, arrays)
    for one, want in zip(got, (wanted, state.numpy(), cell.numpy()), strict=True):
        np.testing.assert_allclose(one.value, want, rtol=1e-9, atol=1e-12)


def test_an_activations_own_numbers_and_clipping_are_heeded() -> None:
    plain = recurrent("RNN", 1, activations=["Relu"])
    arrays = drawn(plain)
    clipped = referred(recurrent("RNN", 1, activations=["Relu"], clip=0.25), arrays)[0].value
    assert clipped.max() == 0.25 and (clipped >= 0).all()
    steep = referred(recurrent("RNN", 1, activations=["LeakyRelu"], activation_alpha=[3.0]), arrays)[0].value
    assert steep.min() < 3 * referred(plain, arrays)[0].value.min() - 1


CANCELLING = [
    parse_operator(node("STFT", tensor(1, 64, 1), number(8), None, number(16))),
    parse_operator(node("DFT", tensor(1, 32, 1), None, number(1))),
    recurrent("GRU", 3, tensor(1, 24)),
    recurrent("LSTM", 4, tensor(1, 32)),
]  # fmt: skip


@pytest.mark.parametrize("distribution", ["normal", "strata", "magnitudes"])
@pytest.mark.parametrize("operator", CANCELLING, ids=[str(one.op_types[0]) for one in CANCELLING])
def test_small_results_of_large_terms_may_differ_by_what_the_terms_lose(
    operator: Operator, distribution: str
) -> None:
    ort = pytest.importorskip("onnxruntime")
    arrays = drawn(operator, distribution)
    reference = referred(operator, arrays)
    feeds = {f"in{number}": one for number, one in arrays.items()}
    honest = ort.InferenceSession(to_onnx(operator).SerializeToString()).run(None, feeds)
    assert compare(honest, reference).status is Status.OK


@pytest.mark.parametrize("distribution", ["normal", "strata", "magnitudes"])
@pytest.mark.parametrize("operator", CANCELLING, ids=[str(one.op_types[0]) for one in CANCELLING])
def test_that_room_hides_no_cheat(operator: Operator, distribution: str) -> None:
    """Zeros for what is small beside the largest, one type less exact, a thousandth too much."""
    arrays = drawn(operator, distribution)
    [reference] = referred(operator, arrays)
    honest = reference.value.astype(np.float32)
    assert compare([honest], [reference]).status is Status.OK
    sizes = np.abs(reference.value)
    with np.errstate(over="ignore"):
        halved = honest.astype(np.float16).astype(np.float32)
    cheats = {
        "all zeros": np.zeros_like(honest),
        "small ones are zero": np.where(sizes < 1e-3 * sizes.max(), 0, honest).astype(np.float32),
        "float16": halved,
        "a thousandth off": honest * np.float32(1.001),
    }
    if not (sizes[sizes < 1e-3 * sizes.max()] > 1e-5 * sizes.max()).any():
        del cheats["small ones are zero"]  # there are none
    for name, cheat in cheats.items():
        assert compare([cheat], [reference]).status is not Status.OK, name


def test_only_a_definition_judges_what_has_one() -> None:
    """PyTorch computes a DFT too: as the default, which must not be its own judge."""
    assert methods(CANCELLING[1], "eager") == ("onnx",)
    assert "torch64" in methods(parse_operator(node("Relu", tensor(3))), "eager")
