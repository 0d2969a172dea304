"""Sets that are only checked hold all kinds of values that jobs have: dealt, by row, and with each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from opatlas.identity import Operator, parse_operator
from tests.opatlas.identity.examples import graph, step
from tests.tuning.measure.judging.test_inputs import f32, i64, node
from tuning.measure.judging.drawing.dealing import Dealer
from tuning.measure.judging.drawing.kinds import KINDS, Rows
from tuning.measure.judging.drawing.roles import DATA, rows_to_deal
from tuning.measure.judging.inputs import make_constants, make_runtime
from tuning.measure.specimen import Specimen, how_many_further, is_dear


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def graph_of(inputs: list[dict[str, object]], *nodes: dict[str, object]) -> Operator:
    """The last node's first output is the graph's."""
    return parse_operator(graph(*nodes, inputs=inputs, outputs=nodes[-1]["outputs"]))


def further(operator: Operator, rng: np.random.Generator, sets: int = 3) -> list[Mapping[int, np.ndarray]]:
    """The first sets that are only checked, flat."""
    dealer = Dealer(rng)
    return [make_runtime(operator, "strata", rng, dealer.hand(rng)) for _ in range(sets)]


Drawn = Callable[[np.ndarray], bool]
ROWS: dict[str, Drawn] = {
    "only negatives": lambda x: bool((x < 0).all(1).any()),
    "none negative": lambda x: bool((x >= 0).all(1).any()),
    "nearly nothing but zeros": lambda x: bool(((x == 0).mean(1) > 0.9).any()),
    "equal ones": lambda x: bool((np.ptp(x, 1) == 0).any()),
    "ties for the largest": lambda x: bool(((x == x.max(1, keepdims=True)).sum(1) > 3).any()),
    "places that differ by powers of two": lambda x: bool(
        (abs(x).max(1) > 2.0**20 * np.quantile(abs(x), 0.1, 1))[x.all(1)].any()
    ),
    "an outlier": lambda x: bool((abs(x).max(1) > 40 * np.median(abs(x), 1)).any()),
    "one sign after the other": lambda x: bool((x[:, 1:] == -x[:, :-1]).all(1).any()),
    "an order": lambda x: bool(
        (np.diff(x, axis=1) > 0).all(1).any() or (np.diff(x, axis=1) < 0).all(1).any()
    ),
    "a mean far from zero": lambda x: bool((abs(x.mean(1)) > 8 * x.std(1))[np.ptp(x, 1) > 0].any()),
    "tiny ones": lambda x: bool(((abs(x).max(1) < 2.0**-20) & x.any(1)).any()),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_a_product_are_of_every_kind(name: str, rng: np.random.Generator) -> None:
    operator = node("MatMul", f32(96, 160), f32(160, 128))
    for _ in range(5):
        sets = further(operator, rng)
        found = [(one[0].reshape(96, 160), one[1].reshape(160, 128).T) for one in sets]
        for rows in zip(*found, strict=True):
            if name != "one sign after the other":  # of one period among five
                assert any(ROWS[name](one) for one in rows)


def test_every_row_of_a_reduction_may_be_of_infinities_where_it_chooses(rng: np.random.Generator) -> None:
    operator = node("ReduceMax", f32(64, 512), {"value": [1], "dtype": "int64"}, keepdims=0)
    rows = np.concatenate([one[0].reshape(64, 512) for one in further(operator, rng)])
    assert np.isinf(rows).any() and np.isfinite(rows).any(1).all()
    added = node("ReduceSum", f32(64, 512), {"value": [1], "dtype": "int64"}, keepdims=0)
    assert all(np.isfinite(one[0]).all() for one in further(added, rng))


def test_masks_hide_by_minus_infinity_and_never_everything(rng: np.random.Generator) -> None:
    heads = f32(1, 2, 64, 32)
    operator = node("Attention", heads, heads, heads, f32(64, 64))
    for one in further(operator, rng, 6):
        hidden = np.asarray(np.isneginf(one[3].reshape(64, 64)))
        assert 0.05 < hidden.mean() < 0.95 and not hidden[:, 0].any()
        assert (hidden != hidden[0]).any()
        assert np.abs(one[0]).max() <= 32 and np.abs(one[1]).max() <= 0.95


def test_past_keys_and_values_are_no_masks(rng: np.random.Generator) -> None:
    heads = f32(1, 2, 16, 32)
    operator = node("Attention", heads, heads, heads, f32(16, 32), heads, heads)
    sets = further(operator, rng, 6)
    assert all(np.isfinite(one[4]).all() and np.abs(one[4]).max() <= 0.95 for one in sets)
    assert all(np.isfinite(one[5]).all() for one in sets) and max(np.abs(one[5]).max() for one in sets) > 4


def test_a_base_may_be_negative_where_its_power_is_whole(rng: np.random.Generator) -> None:
    [one] = further(node("Pow", f32(100, 100), f32(100, 100)), rng, 1)
    base, power = one[0], one[1]
    whole = power == np.round(power)
    assert (base[whole] < 0).mean() > 0.3 and not (base[~whole] < 0).any()
    assert {1.0, 0.0} <= set(np.abs(power[whole & (base < 0)]) % 2)


def test_places_of_a_grid_lie_beyond_the_image_too(rng: np.random.Generator) -> None:
    operator = node("GridSample", f32(1, 2, 16, 16), f32(1, 12, 12, 2))
    beyond = [np.mean(np.abs(one[1]) > 1) for one in further(operator, rng, 4)]
    assert (
        np.mean(beyond) > 0.03 and min(np.mean(np.abs(one[1]) < 1) for one in further(operator, rng, 4)) > 0
    )


def test_a_base_may_be_negative_where_its_power_is_known(rng: np.random.Generator) -> None:
    for power, signs in ((2.0, True), (3.0, True), (0.5, False)):
        operator = node("Pow", f32(100, 100), {"value": power, "dtype": "float32"})
        assert (further(operator, rng, 1)[0][0] < 0).any() == signs


def test_infinities_are_told_from_numbers(rng: np.random.Generator) -> None:
    found = further(node("IsInf", f32(100, 100)), rng, 1)[0][0]
    assert np.isposinf(found).any() and np.isneginf(found).any() and np.isfinite(found).any()


DEFINED: dict[str, tuple[int, Callable[[np.ndarray], np.ndarray]]] = {
    "Acos": (0, np.arccos),
    "Acosh": (0, np.arccosh),
    "Atanh": (0, np.arctanh),
    "Log": (0, np.log),
    "Reciprocal": (0, np.reciprocal),
    "Sqrt": (0, np.sqrt),
    "base of Pow": (0, lambda base: np.power(base, np.float32(-2.5))),
    "exponent of Pow": (1, lambda exponent: np.power(np.float32(5), exponent)),
    "divisor of Div": (1, lambda divisor: 1 / divisor),
}


@pytest.mark.parametrize("name", DEFINED)
def test_functions_are_defined_on_their_constants_and_far_from_infinity(
    name: str, rng: np.random.Generator
) -> None:
    place, function = DEFINED[name]
    value, constant = f32(64, 64), f32(64, 64, const=True)
    inputs = [constant, value] if place == 0 else [value, constant]
    op = name.split()[-1]
    operator = node(op, *inputs[: 2 if op in ("Pow", "Div") else 1])
    dealer = Dealer(rng)
    for _ in range(4):
        [drawn] = make_constants(operator, dealer.hand(rng)).values()
        made = function(drawn)
        assert (np.abs(made) < 1e30).all() and len(np.unique(made)) > made.size / 4


def test_a_variance_stays_positive_with_what_is_added(rng: np.random.Generator) -> None:
    operator = graph_of(
        [f32(64, 1), f32(64, 1, const=True)], step("Add", [0, 1], [2]), step("Sqrt", [2], [3])
    )
    dealer = Dealer(rng)
    assert all((one[0] > 0).all() for one in further(operator, rng))
    assert (make_constants(operator, dealer.hand(rng))[1] > 0).all()


def test_scores_of_a_chain_are_near_each_other(rng: np.random.Generator) -> None:
    """Products of far sizes leave a softmax one place: nobody sees what becomes of the others."""
    operator = graph_of(
        [f32(4, 32, 16), f32(4, 16, 32), f32(32, 32)],
        step("MatMul", [0, 1], [3]),
        step("Add", [3, 2], [4]),
        step("Softmax", [4], [5]),
    )
    seen = []
    for one in further(operator, rng, 8):
        scores = one[0].reshape(4, 32, 16) @ one[1].reshape(4, 16, 32) + one[2].reshape(32, 32)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        seen.append((np.sort(powers, -1)[..., -2] > 2.0**-20).mean())
    assert np.mean(seen) > 0.5


def test_steps_of_a_chain_are_usual(rng: np.random.Generator) -> None:
    operator = graph_of(
        [{"shape": [32, 48], "dtype": "uint8"}, f32(), {"shape": [], "dtype": "uint8"}],
        step("DequantizeLinear", [0, 1, 2], [3]),
        step("Relu", [3], [4]),
    )
    assert all(0.01 <= one[1][0] <= 0.05 for one in further(operator, rng, 8))


def test_codes_are_within_their_type_whatever_the_steps(rng: np.random.Generator) -> None:
    operator = node("QuantizeLinear", f32(64, 128), f32(), {"shape": [], "dtype": "int8"})
    steps = []
    for one in further(operator, rng, 4):
        codes = np.round(one[0] / one[1][0])
        steps.append(float(one[1][0]))
        assert ((codes != 0) & (np.abs(codes) < 128)).mean() > 0.05
    assert min(steps) < 2.0**-10 and max(steps) >= 2.0**-3


@pytest.mark.parametrize("constant", [False, True])
def test_steps_of_a_quantisation_are_as_many_as_can_be_counted(
    constant: bool, rng: np.random.Generator
) -> None:
    """ONNX's evaluator, the reference, counts them in 32 bits: an honest default was refused where there were
    more."""
    scale = f32(**({"const": True} if constant else {}))
    operator = node("QuantizeLinear", f32(64, 128), scale, {"shape": [], "dtype": "uint8"})
    for one in further(operator, rng, 12):
        step = 2.0**-20 if constant else abs(float(one[1][0]))
        values = one[0].astype(np.float64)
        assert (np.abs(values[np.isfinite(values)]) <= 1.001 * 2**30 * step).all()


def test_what_finds_its_own_step_is_never_all_zeros(rng: np.random.Generator) -> None:
    operator = parse_operator({"op": "DynamicQuantizeLinear", "inputs": [f32(2, 4)], "outputs": 3})
    assert all(one[0].any() for one in further(operator, rng, 400))


def test_factors_have_signs_and_sizes(rng: np.random.Generator) -> None:
    operator = node("ReduceProd", f32(64, 512), {"value": [1], "dtype": "int64"}, keepdims=0)
    rows = np.concatenate([one[0].reshape(64, 512).astype(np.float64) for one in further(operator, rng)])
    made = rows.prod(1)
    assert (made < 0).any() and (made == 0).any() and (np.abs(rows) > 4).any()
    assert (np.abs(made) < 1e38).all() and (np.abs(made) > 1e-38).mean() > 0.6


def test_maps_differ_within(rng: np.random.Generator) -> None:
    operator = node("Conv", f32(1, 32, 24, 24), f32(32, 32, 3, 3, const=True))
    maps = np.abs(further(operator, rng, 1)[0][0].reshape(32, 24, 24))
    by_row, by_column = maps.mean(2), maps.mean(1)
    spread = np.maximum(
        by_row.max(1) / (by_row.min(1) + 1e-30), by_column.max(1) / (by_column.min(1) + 1e-30)
    )
    assert (spread[maps.reshape(32, -1).all(1)] > 1e4).any()


def test_weights_are_of_trained_kinds_and_scaled_by_their_fan_in(rng: np.random.Generator) -> None:
    operator = node("Conv", f32(1, 64, 8, 8), f32(64, 64, 3, 3, const=True))
    weights: np.ndarray = make_constants(operator, Dealer(rng).hand(rng))[1].reshape(64, -1) * 24
    usual = np.abs(weights).mean(1)
    assert 0.3 < np.median(usual) < 1.5
    assert (np.abs(weights).max(1) > 20 * np.median(np.abs(weights), 1)).any(), "outliers"
    assert ((weights == 0).mean(1) > 0.3).any(), "pruned ones"
    assert usual.max() / usual.min() > 16, "sizes of filters"
    assert np.isfinite(weights).all() and not (np.abs(weights[weights != 0]) < 2.0**-40).any()


def test_scales_have_both_signs_and_variances_all_sizes(rng: np.random.Generator) -> None:
    constant = f32(64, const=True)
    drawn = make_constants(
        node("BatchNormalization", f32(1, 64, 4, 4), *[constant] * 4), Dealer(rng).hand(rng)
    )
    assert (drawn[1] < 0).sum() > 8 and (drawn[1] > 0).sum() > 8
    assert drawn[4].min() > 0 and drawn[4].max() > 100 * drawn[4].min()


def test_a_specimen_renews_its_constants() -> None:
    from opatlas.identity import Setting

    specimen = Specimen(node("MatMul", f32(4, 64), f32(64, 32, const=True)), Setting())
    before = {number: one.copy() for number, one in specimen.constants.items()}
    specimen.renew()
    try:
        assert (specimen.constants[1] != before[1]).mean() > 0.5
        np.testing.assert_array_equal(
            specimen.constant_slots[1].flat(specimen.inputs.map), specimen.constants[1]
        )
    finally:
        specimen.close()


@pytest.mark.parametrize(
    ("op", "dtype", "most"),
    [
        ("Add", "int64", 2.0**62),
        ("Mul", "int32", 2.0**15.5),
        ("Max", "int64", 2.0**63),
        ("Abs", "int32", 2.0**31),
    ],
)
def test_whole_numbers_are_of_all_that_there_is_room_for(
    op: str, dtype: str, most: float, rng: np.random.Generator
) -> None:
    value: dict[str, object] = {"shape": [50, 80], "dtype": dtype}
    operator = node(op, *[value] * (1 if op == "Abs" else 2))
    drawn = np.concatenate([one[0] for one in further(operator, rng)]).astype(np.float64)
    assert most / 2 < np.abs(drawn).max() <= most and (np.abs(drawn) < 100).any() and (drawn == 0).any()


def test_operands_meet(rng: np.random.Generator) -> None:
    [one] = further(node("Equal", f32(50, 80), f32(50, 80)), rng, 1)
    assert 0.1 < ((one[0] == one[1]) & (one[0] != 0)).mean() < 0.3
    [one] = further(node("Add", f32(50, 80), f32(50, 80)), rng, 1)
    assert ((one[0] == -one[1]) & (one[0] != 0)).mean() > 0.04


@pytest.mark.parametrize("shapes", [((50, 80), (80,)), ((1,), (50, 80)), ((50, 1), (50, 80))])
def test_operands_of_unlike_shapes_meet(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], rng: np.random.Generator
) -> None:
    for op in ("Equal", "Div"):
        [one] = further(node(op, *(f32(*shape) for shape in shapes)), rng, 1)
        first, second = (one[number].reshape(shape) for number, shape in enumerate(shapes))
        assert np.mean((first == second) & (first != 0)) > (0.1 if op == "Equal" else -1)
        assert op == "Equal" or second.all()


def test_places_come_again_and_in_order(rng: np.random.Generator) -> None:
    sets = further(node("Gather", f32(20000, 8), i64(400), axis=0), rng, 8)
    places = [one[1] for one in sets]
    assert any((np.diff(one) == 0).any() for one in places) and all(np.ptp(one) > 1000 for one in places)
    assert any((np.diff(one) == 1).sum() > 100 for one in places)


def test_no_kind_comes_again_before_all_others(rng: np.random.Generator) -> None:
    dealer = Dealer(rng)
    for whole in (False, True):
        dealt = [name for _ in range(2 * len(DATA)) for name in dealer.next(0, DATA, 1, whole=whole)]
        assert sorted(dealt[: len(DATA)]) == sorted(DATA) == sorted(dealt[len(DATA) :])
    assert sorted(dealer.next(0, DATA, 1000, whole=False)) == sorted(DATA)


def test_where_there_is_one_row_there_are_more_sets() -> None:
    one_row = node("ReduceMax", f32(4096), {"value": [0], "dtype": "int64"}, keepdims=0)
    rows, kinds = rows_to_deal(one_row)
    assert (rows, how_many_further(one_row)) == (1, 12) and kinds > 12
    assert how_many_further(node("MatMul", f32(96, 160), f32(160, 128))) == 3
    dear = node("MatMul", f32(2048, 1024), f32(1024, 1024))
    assert is_dear(dear) and how_many_further(dear) == 1


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_made_of_rows_of_any_shape(name: str, rng: np.random.Generator) -> None:
    for count, inner in ((1, ()), (1, (1,)), (3, (2, 5)), (2, (1, 300))):
        for wide in (np.float32, np.float64):
            made = KINDS[name].make(Rows(count, inner, rng, wide, reach=3, narrow=len(inner) == 2))
            assert made.shape == (count, max(1, int(np.prod(inner)))) and not np.isnan(made).any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_kinds_stay_within_narrow_types(dtype: str, rng: np.random.Generator) -> None:
    value: dict[str, object] = {"shape": [60, 90], "dtype": dtype}
    for one in further(node("MatMul", value, {"shape": [90, 60], "dtype": dtype}), rng):
        assert all(np.isfinite(array.astype(np.float64)).all() for array in one.values())
