"""Operators that once ended as failed: each is answered by a library, held against its definition."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import Operator, Setting, parse_operator
from tests.opatlas.identity.examples import node, tensor
from tests.tuning.measure.conftest import default_artifact
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Status

LENGTHS = tensor(2, dtype="int32")


def number(value: int) -> dict[str, Any]:
    return {"value": value, "dtype": "int64"}


ANSWERED = {
    "LSTM, backwards, lengths, peepholes": node(
        "LSTM", tensor(5, 2, 3), tensor(1, 16, 3), tensor(1, 16, 4), tensor(1, 32), LENGTHS,
        tensor(1, 2, 4), tensor(1, 2, 4), tensor(1, 12), outputs=3, direction="reverse",
    ),
    "LSTM, both ways, batch first": node(
        "LSTM", tensor(2, 5, 3), tensor(2, 16, 3), tensor(2, 16, 4), outputs=3,
        direction="bidirectional", layout=1,
    ),
    "GRU, clipped": node(
        "GRU", tensor(5, 2, 3), tensor(2, 12, 3), tensor(2, 12, 4), tensor(2, 24), LENGTHS, outputs=2,
        direction="bidirectional", linear_before_reset=1, clip=1.5,
    ),
    "STFT": node("STFT", tensor(1, 64, 1), number(8), tensor(16)),
    "DFT of 100": node("DFT", tensor(2, 100, 1), None, number(1), onesided=1),
    "RoiAlign": node(
        "RoiAlign", tensor(1, 2, 8, 8), tensor(3, 4), tensor(3, dtype="int64"), output_height=3,
        output_width=3, sampling_ratio=2,
    ),
    "MaxRoiPool": node("MaxRoiPool", tensor(2, 3, 8, 8), tensor(4, 5), pooled_shape=[2, 3]),
    "MaxUnpool": node(
        "MaxUnpool", tensor(1, 2, 2, 2), tensor(1, 2, 2, 2, dtype="int64"), kernel_shape=[2, 2],
        strides=[2, 2],
    ),
    "GlobalLpPool": node("GlobalLpPool", tensor(2, 3, 5, 6), p=3),
    "DeformConv": node("DeformConv", tensor(1, 4, 6, 7), tensor(4, 4, 3, 3), tensor(1, 18, 4, 5)),
}  # fmt: skip


def judged(lab: Laboratory, operator: Operator, folder: Path) -> tuple[Status, str]:
    setting = Setting(threads=1)
    outcome = lab.check(operator, setting, default_artifact(lab, operator, setting, folder))
    return outcome.status, outcome.detail


@pytest.mark.parametrize("document", ANSWERED.values(), ids=ANSWERED)
def test_it_has_an_answer(document: dict[str, Any], lab: Laboratory, tmp_path: Path) -> None:
    assert judged(lab, parse_operator(document), tmp_path) == (Status.OK, "")


def _recurrent(draw: random.Random) -> dict[str, Any]:
    op, gates, kinds = draw.choice([("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 1)])
    direction = draw.choice(["forward", "reverse", "bidirectional"])
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, width, hidden = (draw.choice(sizes) for sizes in ((1, 3, 7), (1, 5), (1, 8), (1, 4, 16)))
    layout = draw.choice([0, 1])
    shapes = [(batch, steps, width), (batch, ways, hidden)] if layout else [
        (steps, batch, width), (ways, batch, hidden)
    ]  # fmt: skip
    data, state = (tensor(*shape) for shape in shapes)
    maybe = [
        tensor(ways, 2 * gates * hidden), tensor(batch, dtype="int32"), state,
        *([state, tensor(ways, 3 * hidden)] if op == "LSTM" else []),
    ]  # fmt: skip
    attrs: dict[str, Any] = {"direction": direction, "layout": layout}
    if draw.random() < 0.5:
        bounded = ["Tanh", "Sigmoid", "HardSigmoid", "Softsign"]
        attrs["activations"] = [draw.choice(bounded) for _ in range(kinds * ways)]
    if draw.random() < 0.3:
        attrs["clip"] = draw.choice([0.5, 2.0])
    if op == "GRU":
        attrs["linear_before_reset"] = draw.choice([0, 1])
    weights = [tensor(ways, gates * hidden, width), tensor(ways, gates * hidden, hidden)]
    inputs = [data, *weights, *(one if draw.random() < 0.5 else None for one in maybe)]
    while inputs[-1] is None:
        inputs.pop()
    return node(op, *inputs, outputs=draw.randint(1, 3 if op == "LSTM" else 2), **attrs)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100))
def test_every_kind_of_recurrent_node_has_an_answer(seed: int, lab: Laboratory, tmp_path: Path) -> None:
    document = _recurrent(random.Random(seed))
    assert judged(lab, parse_operator(document), tmp_path) == (Status.OK, ""), document
