"""The contest's figures and the rule of its sample. The contest itself is a bench."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.contest.sample import MOST_BYTES, MOST_FLOPS, SAMPLE, SIZE, choose, read_sample
from bench.contest.summary import ContestRow, route_geomeans, summarize
from bench.contest.table import markdown
from opatlas.errors import InvalidModel
from opatlas.identity import describe


def row(key: str, **values: object) -> ContestRow:
    return ContestRow(key, f"operator {key}", "aten.relu.default", 1, **values)  # type: ignore[arg-type]


WON = row(
    "a", route="tvm", method="compiler", label="tiles", default_us=10.0, chosen=4.0, chosen_again=4.0,
    oracle=4.4, baselines={"onnxruntime": 2.0, "max_autotune": 0.5}, routes={"eager": 1.0, "tvm": 4.0},
)  # fmt: skip
KEPT = row("b", route="eager", method="library", chosen=1.0, chosen_again=1.0, oracle=1.0,
           routes={"eager": 1.0, "onnxruntime": 0.5})  # fmt: skip
NOTHING = row("c", reason="nothing is served for it")


class TestFigures:
    def test_an_operator_without_an_answer_counts_as_one(self) -> None:
        result = summarize([WON, NOTHING])
        assert (result["answered"], result["total"]) == (1, 2)
        assert result["geomean_vs_eager"] == pytest.approx(2.0)

    def test_a_baseline_that_lacks_the_operator_is_the_default(self) -> None:
        result = summarize([WON, KEPT])
        assert result["geomean_vs_onnxruntime"] == pytest.approx(math.sqrt(4.0 / 2.0), rel=1e-3)
        assert result["geomean_vs_max_autotune"] == pytest.approx(math.sqrt(8.0), rel=1e-3)

    def test_the_best_single_route_is_that_with_the_best_mean(self) -> None:
        assert list(route_geomeans([WON, KEPT])) == ["tvm", "eager", "onnxruntime"]
        result = summarize([WON, KEPT])
        assert result["best_route"] == "tvm"
        assert result["geomean_vs_best_route"] == pytest.approx(1.0)

    def test_regret_is_what_the_oracle_would_have_saved(self) -> None:
        result = summarize([WON, KEPT])
        assert WON.regret == pytest.approx(0.1)
        assert result["max_regret"] == pytest.approx(0.1)
        assert result["median_regret"] == pytest.approx(0.05)

    def test_a_regression_is_one_in_both_line_ups(self) -> None:
        twice = row("d", chosen=0.9, chosen_again=0.95)
        once = row("e", chosen=0.9, chosen_again=1.0)
        assert summarize([twice, once])["regressions"] == ["d"]

    def test_wins_are_counted_by_method_and_route(self) -> None:
        result = summarize([WON, KEPT, NOTHING])
        assert result["wins_by_method"] == {"compiler": 1, "library": 1}
        assert result["wins_by_route"] == {"tvm": 1, "eager": 1}

    def test_the_table_has_a_line_for_every_operator(self) -> None:
        rows = [WON, KEPT, NOTHING]
        result = summarize(rows) | {
            "budget_s": 60.0, "cores": 2, "explored_s": 30.0, "measured_again_s": 20.0, "sample": "s.json",
            "trials": {}, "rows": [one.to_json() for one in rows],
        }  # fmt: skip
        text = markdown(json.loads(json.dumps(result)))
        assert all(f"| operator {key} |" in text for key in "abc")
        assert "no answer: nothing is served for it" in text


class TestSample:
    def test_the_committed_sample_obeys_the_rule(self) -> None:
        entrants = read_sample()
        assert len(entrants) == len({one.operator.key for one in entrants}) == SIZE
        for one in entrants:
            work = describe(one.operator)
            assert work.flops <= MOST_FLOPS and work.bytes_moved <= MOST_BYTES
        assert any(one.halved for one in entrants)

    def test_choosing_from_the_chosen_gives_them_all_again(self) -> None:
        records = json.loads(SAMPLE.read_text())
        again = choose(reversed(records), size=SIZE)
        assert {json.dumps(one["inputs"]) for one in again} == {json.dumps(one["inputs"]) for one in records}

    def test_families_take_turns(self) -> None:
        families = [record["family"] for record in choose(json.loads(SAMPLE.read_text()), size=10)]
        assert len(set(families)) == 10

    def test_backward_records_and_what_is_too_large_stay_out(self) -> None:
        record = json.loads(SAMPLE.read_text())[1]
        huge = {**record, "inputs": [{"shape": [64, 1 << 20], "dtype": "float32"}]}
        assert choose([{**record, "phase": "backward"}, huge]) == []

    def test_a_list_that_is_not_there_is_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidModel, match="cannot be read"):
            read_sample(tmp_path / "none.json")
