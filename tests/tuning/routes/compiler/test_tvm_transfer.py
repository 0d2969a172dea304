"""Schedules found for one shape, fitted to others: still correct, and applied where they can be."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting
from tests.tuning.routes.compiler.tvm_cases import ROUTE, TARGET, const, one, random_inputs, reference, run
from tuning.routes.base import Candidate, SearchRecord
from tuning.routes.compiler.tvm.contraction import Shape
from tuning.routes.compiler.tvm.transfer import (
    extents_of,
    refit,
    refitted,
    tile_record,
    without_places,
    without_postproc,
)

TWO = Setting(threads=2)
needs_tvm = pytest.mark.skipif(not ROUTE.available(TARGET), reason="TVM is not installed as pinned")


def test_fitted_factors_multiply_to_the_extent_and_keep_to_the_innermost_limit() -> None:
    made = random.Random(11)
    for _ in range(3000):
        factors = [made.choice((1, 2, 3, 4, 7, 8, 16, 32)) for _ in range(made.randint(2, 5))]
        extent, most = made.randint(1, 4096), made.choice((1, 16, 64))
        fitted = refit(factors, extent, most)
        assert len(fitted) == len(factors)
        assert math.prod(fitted) == extent and min(fitted) >= 1
        assert fitted[-1] <= most


def test_factors_that_fit_stay() -> None:
    made = random.Random(12)
    for _ in range(500):
        factors = [made.choice((1, 2, 3, 4, 8, 16)) for _ in range(made.randint(2, 5))]
        assert refit(factors, math.prod(factors), 64) == factors


@pytest.mark.parametrize(
    ("factors", "extent", "fitted"),
    [
        ((4, 2, 8), 128, [8, 2, 8]),  # a longer loop has more outer steps
        ((4, 2, 8), 16, [1, 2, 8]),
        ((4, 2, 8), 7, [1, 1, 7]),
        ((4, 2, 8), 100, [5, 2, 10]),
        ((4, 2, 8), 1, [1, 1, 1]),
        ((2, 128), 512, [8, 64]),  # the innermost limit
    ],
)
def test_fitted_factors_are_the_nearest(factors: Sequence[int], extent: int, fitted: list[int]) -> None:
    assert refit(factors, extent, 64) == fitted


TRACE: list[Any] = [
    [
        ["GetSBlock", [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v3", "v4"]],
        ["SampleComputeLocation", ["b0"], [], ["l5"]],
        ["EnterPostproc", [], [], []],
        ["Parallel", ["l1"], [], []],
    ],
    [[2, [4, 8]], [3, -1], [5, 1]],
]


def test_a_trace_is_edited_without_touching_the_old_one() -> None:
    before = json.dumps(TRACE)
    stripped = without_postproc(TRACE)
    assert [name for name, *_ in stripped[0]][-1] == "SampleComputeLocation"
    assert stripped[1] == [[2, [4, 8]], [3, -1]]
    assert without_postproc(stripped) == stripped
    assert extents_of(stripped) == {2: 32}
    assert refitted(stripped, {2: 48})[1] == [[2, [6, 8]], [3, -1]]
    assert without_places(stripped)[1] == [[2, [4, 8]]]
    assert json.dumps(TRACE) == before


def matmul(rows: int, inner: int, columns: int) -> Operator:
    return one("MatMul", (rows, inner), const(inner, columns))


def conv(channels: int, size: int, out: int) -> Operator:
    return one("Conv", (1, channels, size, size), const(out, channels, 3, 3), pads=[1, 1, 1, 1])


def assert_correct(operator: Operator, candidate: Candidate, folder: Path) -> None:
    folder.mkdir()
    copied = Candidate(candidate.route, json.loads(json.dumps(candidate.parameters)), candidate.label)
    artifact = ROUTE.build(operator, TARGET, TWO, copied, folder)
    inputs = random_inputs(operator)
    found, wanted = run(artifact, operator, inputs)[0], reference(operator, inputs)[0]
    assert np.allclose(found, wanted, rtol=1e-4, atol=1e-4)


def search(operator: Operator, folder: Path) -> list[Candidate]:
    """Slices, each going on where the last one stopped, until evolution has measured a trace: how many that
    takes is the machine's."""
    folder.mkdir(exist_ok=True)
    for _ in range(6):
        found = list(ROUTE.tune(operator, TARGET, TWO, folder, 13.0))
        if records_of(folder):
            return found
    raise AssertionError("six slices of search have measured no trace")


def records_of(folder: Path) -> list[Any]:
    """What MetaSchedule's own database holds."""
    database = folder / "database_tuning_record.json"
    return [json.loads(line) for line in database.read_text().splitlines()] if database.exists() else []


@needs_tvm
@pytest.mark.slow
@pytest.mark.nightly
def test_what_a_search_learns_serves_other_shapes(tmp_path: Path) -> None:
    """A real search of a small product; its records for larger, odd and tiny ones."""
    work = tmp_path / "work"
    assert search(matmul(64, 64, 96), work)
    learnt = ROUTE.learnt(work)
    assert learnt and [one.time_us for one in learnt] == sorted(one.time_us for one in learnt)
    evolved = SearchRecord({"trace": without_postproc(records_of(work)[0][1][0])}, 50.0, "64×64, 64×96")
    tiles = [record for record in learnt if "tile" in record.record][:1]
    records = [SearchRecord(record.record, record.time_us, "64×64, 64×96") for record in tiles]
    for number, other in enumerate((matmul(128, 32, 192), matmul(100, 36, 120), matmul(7, 33, 50))):
        found = list(ROUTE.transfer(other, TARGET, TWO, [evolved, *records]))
        assert found, other.inputs[0].shape
        assert found[0].label == "tuned for a neighbour (64×64, 64×96)"
        for place, candidate in enumerate(found):
            assert_correct(other, candidate, tmp_path / f"{number}-{place}")


@needs_tvm
@pytest.mark.slow
@pytest.mark.nightly
def test_a_search_begins_with_what_it_is_given(tmp_path: Path) -> None:
    operator, first, second = conv(16, 14, 16), tmp_path / "first", tmp_path / "second"
    search(operator, first)
    evolved = SearchRecord({"trace": without_postproc(records_of(first)[0][1][0])}, 1.0)
    tile = SearchRecord(tile_record("packed", Shape(2, 1, 64, 32, False)), 1.0)
    junk = SearchRecord({"trace": [[["NoSuchThing", [], [], []]], []]}, 1.0)
    second.mkdir()
    ROUTE.seed(second, [junk, evolved, tile])
    search(conv(24, 10, 20), second)
    tried = json.loads((second / "tiles.json").read_text())["tried"]
    assert tried[0]["tile"] == tile.record["tile"]
    progress = json.loads((second / "search.json").read_text())
    assert len(progress["given"]) == 2
    names = [name for name, *_ in records_of(second)[0][1][0][0]]
    assert names[: len(evolved.record["trace"][0])] == [name for name, *_ in evolved.record["trace"][0]]


@needs_tvm
def test_tiles_and_nonsense(tmp_path: Path) -> None:
    tile = SearchRecord(tile_record("packed", Shape(4, 2)), 1.0, "x")
    nonsense = [
        SearchRecord({}, 1.0),
        SearchRecord({"tile": {"variant": "packed", "colour": 3}}, 1.0),
        SearchRecord({"tile": {"variant": "upside down"}}, 1.0),
        SearchRecord({"trace": [[], [], []]}, 1.0),
        SearchRecord({"trace": TRACE}, 1.0),
    ]
    (found,) = ROUTE.transfer(conv(24, 9, 20), TARGET, TWO, [*nonsense, tile, tile])
    assert_correct(conv(24, 9, 20), found, tmp_path / "built")
