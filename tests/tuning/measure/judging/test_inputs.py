"""Random inputs: legal, varied, strided as asked, scaled by fan-in."""

from __future__ import annotations

import numpy as np
import pytest

from opatlas.identity import Operator, Value, parse_operator
from tuning.measure.judging.domains import Domain
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.inputs import DISTRIBUTIONS, make_constants, make_runtime, make_span
from tuning.measure.judging.strata import Strata, spread_elements
from tuning.measure.shared_tensors import TensorSlot


def node(op: str, *inputs: dict[str, object], **attrs: object) -> Operator:
    return parse_operator({"op": op, "attrs": attrs, "inputs": list(inputs)})


def f32(*shape: int, **more: object) -> dict[str, object]:
    return {"shape": list(shape), "dtype": "float32", **more}


def i64(*shape: int, **more: object) -> dict[str, object]:
    return {"shape": list(shape), "dtype": "int64", **more}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_indices_of_gather_stay_within_the_axis(rng: np.random.Generator) -> None:
    indices = make_runtime(node("Gather", f32(7, 5), i64(200), axis=0), "normal", rng)[1]
    assert set(indices) == set(range(-7, 7))  # from both ends


def test_scattered_places_differ(rng: np.random.Generator) -> None:
    operator = node("ScatterElements", f32(9, 3), i64(9, 3), f32(9, 3), axis=0)
    indices = make_runtime(operator, "normal", rng)[1].reshape(9, 3)
    assert indices.min() < 0
    assert all(sorted(indices[:, column] % 9) == list(range(9)) for column in range(3))
    tuples = make_runtime(node("ScatterND", f32(6, 5), i64(20, 2), f32(20)), "normal", rng)[1].reshape(20, 2)
    assert len({tuple(row % [6, 5]) for row in tuples}) == 20
    assert (tuples >= [-6, -5]).all() and (tuples < [6, 5]).all() and tuples.min() < 0


def strided(operator: Operator, rng: np.random.Generator) -> np.ndarray:
    """The indices that a strided second input gets."""
    value, flat = operator.inputs[1], make_runtime(operator, "normal", rng)[1]
    assert value.strides is not None and len(flat) == 1 + np.dot(np.array(value.shape) - 1, value.strides)
    return TensorSlot(0, value.dtype, value.shape, value.strides).view(np.ascontiguousarray(flat))


def test_strided_places_are_drawn_as_others_are(rng: np.random.Generator) -> None:
    scatter = node("ScatterElements", f32(9, 3), i64(9, 3, strides=[1, 9]), f32(9, 3), axis=0)
    indices = strided(scatter, rng)
    assert all(sorted(indices[:, column] % 9) == list(range(9)) for column in range(3))
    tuples = strided(node("ScatterND", f32(6, 5), i64(20, 2, strides=[4, 2]), f32(20)), rng)
    assert len({tuple(row % [6, 5]) for row in tuples}) == 20 and (tuples < [6, 5]).all()
    gathered = strided(node("GatherND", f32(6, 5), i64(20, 2, strides=[1, 20])), rng)
    assert len({tuple(row) for row in gathered}) > 10
    assert (gathered >= [-6, -5]).all() and (gathered < [6, 5]).all()
    both = strided(node("GatherND", f32(6, 5), i64(20, 2, strides=[1, 0])), rng)
    assert len(np.unique(both)) > 2 and (both[:, 0] == both[:, 1]).all() and both.max() < 5
    unpool = node(
        "MaxUnpool", f32(2, 3, 2, 2), i64(2, 3, 2, 2, strides=[12, 1, 6, 3]),
        kernel_shape=[2, 2], strides=[2, 2],
    )  # fmt: skip
    planes = strided(unpool, rng).reshape(6, 4)
    assert all(len(set(plane)) == 4 and set(plane // 16) == {at} for at, plane in enumerate(planes))


@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_some_labels_are_ignored_where_some_may_be(op: str, rng: np.random.Generator) -> None:
    labels = make_runtime(node(op, f32(400, 5), i64(400), ignore_index=-100), "normal", rng)[1]
    assert set(labels) == {-100, 0, 1, 2, 3, 4} and 20 < np.sum(labels == -100) < 100
    for ignored in (-100, 1):
        one = node(op, f32(1, 2), i64(1), ignore_index=ignored)
        for distribution in ("normal", "strata"):
            drawn = [make_runtime(one, distribution, rng)[1].item() for _ in range(20)]
            assert set(drawn) <= {0, 1} - {ignored}
    assert set(make_runtime(node(op, f32(400, 5), i64(400)), "normal", rng)[1]) == set(range(5))


@pytest.mark.parametrize(("op", "smallest"), [("Log", 2.0**-126), ("Sqrt", 0.0), ("Acosh", 1.0)])
def test_arguments_lie_where_the_function_does(op: str, smallest: float, rng: np.random.Generator) -> None:
    for distribution in DISTRIBUTIONS:
        assert np.nanmin(make_runtime(node(op, f32(500)), distribution, rng)[0]) >= smallest


def test_queries_and_keys_leave_scores_that_float32_can_tell_apart(rng: np.random.Generator) -> None:
    heads = f32(1, 2, 64, 64)
    for distribution in DISTRIBUTIONS:
        found = make_runtime(node("Attention", heads, heads, heads), distribution, rng)
        query, key = (found[number].reshape(2, 64, 64) for number in (0, 1))
        sharper = 32 if distribution == "strata" else 1
        assert 8 < np.abs(query @ key.transpose(0, 2, 1)).max() < 64 * sharper


def test_variances_are_positive(rng: np.random.Generator) -> None:
    constant = f32(16, const=True)
    operator = node("BatchNormalization", f32(1, 16, 4, 4), constant, constant, constant, constant)
    assert make_constants(operator, Dealer(rng).hand(rng))[4].min() > 0


def test_sets_differ_and_sparse_ones_have_zeros(rng: np.random.Generator) -> None:
    operator = node("Relu", f32(1000))
    sets = [make_runtime(operator, distribution, rng)[0] for distribution in DISTRIBUTIONS]
    assert len({one.tobytes() for one in sets}) == len(sets)
    zeros = [(one == 0).mean() for one in sets]
    assert zeros[DISTRIBUTIONS.index("sparse")] == pytest.approx(0.7, abs=0.06)
    magnitudes = np.abs(sets[DISTRIBUTIONS.index("magnitudes")])
    assert magnitudes.max() / np.median(magnitudes) > 50


def test_every_stratum_has_its_share_of_every_part(rng: np.random.Generator) -> None:
    made = spread_elements(Strata(extra=(np.inf,)), np.dtype(np.float32), 200_000, rng)
    for part in (made[:100_000], made[100_000:]):
        sizes = np.abs(part)
        assert np.mean((sizes > 0) & (sizes < 2.0**-126)) == pytest.approx(0.05 + 0.45 * 23 / 275, abs=0.01)
        assert np.mean((sizes > 1e-3) & (sizes < 4)) == pytest.approx(0.49, abs=0.03)
        assert np.mean(sizes > 1e20) == pytest.approx(0.45 * 60 / 275, abs=0.02)
        assert (
            np.mean(part == 0) == pytest.approx(0.1 * 2 / 11, abs=0.005) and np.signbit(part[part == 0]).any()
        )
        assert np.mean(part == 4.0) == pytest.approx(0.1 / 11, abs=0.003) and np.isinf(part).any()
        assert np.mean(part < 0) == pytest.approx(0.475, abs=0.02)
    assert spread_elements(Strata(), np.dtype(np.float64), 10, rng).dtype == np.float64


def test_strides_are_honoured(rng: np.random.Generator) -> None:
    value = Value("float32", (4, 3), strides=(1, 4))
    flat = make_span(value, Domain(), "normal", rng)
    assert flat.shape == (12,)
    view = TensorSlot(0, value.dtype, value.shape, value.strides).view(flat)
    assert view[1, 2] == flat[9]
    broadcast = Value("float32", (4, 3), strides=(0, 1))
    assert make_span(broadcast, Domain(), "normal", rng).shape == (3,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "bool"])
def test_every_type_is_made(dtype: str, rng: np.random.Generator) -> None:
    made = make_span(Value(dtype, (100,)), Domain(), "normal", rng)
    assert made.dtype.name == dtype
    assert len(np.unique(made.astype(np.float64))) > 1


def test_lengths_lie_within_the_sequence(rng: np.random.Generator) -> None:
    operator = node(
        "GRU", f32(7, 300, 2), f32(1, 12, 2), f32(1, 12, 4), None, {"shape": [300], "dtype": "int32"}
    )
    number = operator.nodes[0].inputs[4]
    assert set(make_runtime(operator, "strata", rng)[number]) == set(range(1, 8))


@pytest.mark.parametrize(
    ("operator", "extents"),
    [
        (node("Gather", f32(7, 5), i64(400), axis=0), 7),
        (node("GatherElements", f32(7, 5), i64(90, 5), axis=0), 7),
        (node("OneHot", i64(400), {"value": 7, "dtype": "int64"}, f32(2)), 7),
    ],
)
def test_indices_count_from_both_ends(operator: Operator, extents: int, rng: np.random.Generator) -> None:
    index = next(n for n in operator.runtime_inputs if operator.inputs[n].dtype == "int64")
    drawn = make_runtime(operator, "normal", rng)[index]
    assert set(drawn) == set(range(-extents, extents))


def test_what_a_pool_is_undone_with_points_to_places_of_its_own_image(rng: np.random.Generator) -> None:
    operator = node("MaxUnpool", f32(2, 3, 2, 2), i64(2, 3, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    places = make_runtime(operator, "normal", rng)[1].reshape(6, 4)
    assert all(len(set(one)) == 4 and set(one // 16) == {number} for number, one in enumerate(places))


@pytest.mark.parametrize("op", ["RoiAlign", "MaxRoiPool"])
def test_boxes_have_a_size_and_lie_about_their_image(op: str, rng: np.random.Generator) -> None:
    image = f32(2, 3, 8, 16)
    if op == "RoiAlign":
        operator = node(op, image, f32(50, 4), i64(50), spatial_scale=0.5)
        made = make_runtime(operator, "magnitudes", rng)
        boxes = made[1].reshape(50, 4)
        assert set(made[2]) == {0, 1}
    else:
        operator = node(op, image, f32(50, 5), pooled_shape=[2, 2], spatial_scale=0.5)
        rows = make_runtime(operator, "magnitudes", rng)[1].reshape(50, 5)
        boxes = rows[:, 1:]
        assert set(rows[:, 0]) == {0, 1}
    assert (boxes[:, 2:] >= boxes[:, :2]).all()
    assert boxes.min() < 0 and 32 < boxes[:, 2].max() < 36 and 16 < boxes[:, 3].max() <= 18


def test_bits_are_shifted_by_less_than_there_are(rng: np.random.Generator) -> None:
    byte = {"shape": [400], "dtype": "uint8"}
    drawn = make_runtime(node("BitShift", byte, byte, direction="LEFT"), "normal", rng)[1]
    assert set(drawn) == set(range(8))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_of_whole_numbers_fit_their_type(dtype: str, rng: np.random.Generator) -> None:
    values = {"shape": [3000], "dtype": dtype}
    base, exponent = make_runtime(node("Pow", values, values), "normal", rng).values()
    assert base.min() < 0 <= exponent.min()
    assert (np.abs(base.astype(float)) ** exponent).max() < min(np.iinfo(dtype).max, 2**53)


@pytest.mark.parametrize(
    ("exponent", "negative", "zero"),
    [(2.0, True, True), (3.0, True, True), (-1.0, True, False), (0.5, False, False)],
)
def test_whole_powers_are_taken_of_negative_numbers_too(
    exponent: float, negative: bool, zero: bool, rng: np.random.Generator
) -> None:
    operator = node("Pow", f32(500), {"value": exponent, "dtype": "float32"})
    drawn = np.stack([make_runtime(operator, one, rng)[0] for one in ("normal", "sparse")])
    assert ((drawn < 0).any(), (drawn == 0).any()) == (negative, zero)


@pytest.mark.parametrize(("to", "low"), [(2, 0), (3, -100), (6, -100)])
def test_fractions_become_whole_only_within_the_type(to: int, low: int, rng: np.random.Generator) -> None:
    operator = node("Cast", f32(2000), to=to)
    drawn = {one: make_runtime(operator, one, rng)[0] for one in DISTRIBUTIONS}
    ends = np.iinfo(operator.output_values[0].dtype)
    for name, values in drawn.items():
        least, most = (ends.min, ends.max + 1.0) if name == "strata" else (low, 101)
        assert least <= values.min() and most / 2 < values.max() < most and len(set(np.trunc(values))) > 70


def test_divisors_have_both_signs_and_overflow_nothing(rng: np.random.Generator) -> None:
    for dtype in ("int8", "int32", "uint8"):
        values = {"shape": [4000], "dtype": dtype}
        divisors = make_runtime(node("Div", values, values), "normal", rng)[1]
        assert 0 not in divisors and (divisors.min() < 0) == (dtype != "uint8")
        assert dtype != "int8" or -1 not in divisors
