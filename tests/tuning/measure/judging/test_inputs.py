"""Random inputs: legal, varied, strided as asked, scaled by fan-in."""

from __future__ import annotations

import numpy as np
import pytest

from opatlas.identity import Operator, Value, parse_operator
from tuning.measure.judging.domains import Domain
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
    assert set(indices) == set(range(7))


def test_scattered_places_differ(rng: np.random.Generator) -> None:
    operator = node("ScatterElements", f32(9, 3), i64(9, 3), f32(9, 3), axis=0)
    indices = make_runtime(operator, "normal", rng)[1].reshape(9, 3)
    assert all(sorted(indices[:, column]) == list(range(9)) for column in range(3))
    tuples = make_runtime(node("ScatterND", f32(6, 5), i64(20, 2), f32(20)), "normal", rng)[1].reshape(20, 2)
    assert len({tuple(row) for row in tuples}) == 20
    assert (tuples.max(axis=0) < [6, 5]).all()


@pytest.mark.parametrize(("op", "smallest"), [("Log", 2.0**-126), ("Sqrt", 0.0), ("Acosh", 1.0)])
def test_arguments_lie_where_the_function_does(op: str, smallest: float, rng: np.random.Generator) -> None:
    for distribution in DISTRIBUTIONS:
        assert np.nanmin(make_runtime(node(op, f32(500)), distribution, rng)[0]) >= smallest


def test_queries_and_keys_leave_scores_that_float32_can_tell_apart(rng: np.random.Generator) -> None:
    heads = f32(1, 2, 64, 64)
    for distribution in DISTRIBUTIONS:
        found = make_runtime(node("Attention", heads, heads, heads), distribution, rng)
        query, key = (found[number].reshape(2, 64, 64) for number in (0, 1))
        assert np.abs(query @ key.transpose(0, 2, 1)).max() < 64 and query.std() > 0.5


def test_variances_are_positive(rng: np.random.Generator) -> None:
    constant = f32(16, const=True)
    operator = node("BatchNormalization", f32(1, 16, 4, 4), constant, constant, constant, constant)
    assert make_constants(operator, rng)[4].min() > 0


def test_weights_are_scaled_by_their_fan_in(rng: np.random.Generator) -> None:
    operator = node("Conv", f32(1, 64, 8, 8), f32(32, 64, 3, 3, const=True))
    weights = make_constants(operator, rng)[1]
    assert weights.std() == pytest.approx((64 * 9) ** -0.5, rel=0.05)


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
