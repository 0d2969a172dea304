"""The contest's figures and the rule of its sample. The contest itself is a bench."""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bench.conf import BenchConf
from bench.contest.plan import MEASURING_S, ContestPlan, plan
from bench.contest.rivals import Rivals
from bench.contest.sample import (
    HEAVY,
    HEAVY_SIZE,
    SAMPLE,
    SIZE,
    choose,
    is_heavy,
    is_small,
    limited,
    main,
    read_sample,
    sample_path,
)
from bench.contest.summary import ContestRow, route_geomeans, summarize
from bench.contest.table import figures, write
from opatlas.conf import read
from opatlas.errors import InvalidModel
from opatlas.load import Manifest
from tuning.retiming.retiming import CannotBeTimed


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

    def test_a_baseline_that_was_left_out_has_no_figure(self) -> None:
        result = summarize([replace(WON, baselines={"onnxruntime": 2.0}), KEPT])
        assert result["geomean_vs_max_autotune"] is None
        assert result["geomean_vs_eager"] == pytest.approx(2.0)

    def test_of_all_calls_time_each_operator_has_its_share(self) -> None:
        once = row("d", default_us=10.0, chosen=4.0, chosen_again=4.0, oracle=4.0,
                   baselines={"onnxruntime": 2.0})  # fmt: skip
        often = replace(once, calls=30)
        long = row("e", default_us=100.0, chosen=1.0, chosen_again=1.0, oracle=1.0)
        result = summarize([often, long])
        assert result["time_vs_eager"] == pytest.approx(400 / 175, rel=1e-3)
        assert result["time_vs_onnxruntime"] == pytest.approx(250 / 175, rel=1e-3)

    def test_the_best_single_route_is_that_with_the_best_mean(self) -> None:
        assert list(route_geomeans([WON, KEPT])) == ["tvm", "eager", "onnxruntime"]
        result = summarize([WON, KEPT])
        assert result["best_route"] == "tvm"
        assert result["geomean_vs_best_route"] == pytest.approx(1.0)

    def test_regret_is_what_the_oracle_would_have_saved(self) -> None:
        result = summarize([WON, KEPT])
        assert WON.regret == pytest.approx(0.1)
        assert result["max_regret"] == pytest.approx(0.1)
        assert result["p95_regret"] == pytest.approx(0.095)
        assert result["median_regret"] == pytest.approx(0.05)

    def test_a_regression_is_one_in_both_line_ups_with_its_interval(self) -> None:
        twice = row("d", chosen=0.9, chosen_high=0.92, chosen_again=0.95, again_high=0.96)
        once = row("e", chosen=0.9, chosen_high=0.92, chosen_again=1.0, again_high=1.02)
        unsure = row("f", chosen=0.9, chosen_high=0.98, chosen_again=0.9, again_high=0.92)
        assert summarize([twice, once, unsure])["regressions"] == ["d"]

    def test_published_intervals_are_held_against_the_second_line_up(self) -> None:
        inside = row("j", chosen=2.0, chosen_again=2.05, published_low=1.9, published_high=2.1)
        outside = row("k", chosen=2.0, chosen_again=1.8, published_low=1.9, published_high=2.1)
        default = row("l", chosen=1.0, chosen_again=1.0, published_low=1.0, published_high=1.0)
        assert summarize([inside, outside, default, NOTHING])["held_at_once"] == 0.5
        assert summarize([default])["held_at_once"] is None

    def test_operators_of_100_us_have_figures_of_their_own(self) -> None:
        slow = row("g", default_us=100.0, chosen=2.0, routes={"xla": 2.0})
        result = summarize([WON, slow, NOTHING])
        assert result["over_100us"]["operators"] == 1
        assert result["over_100us"]["geomean_vs_eager"] == pytest.approx(2.0)
        assert (result["best_route"], result["over_100us"]["best_route"]) == ("tvm", "xla")

    def test_a_rival_is_judged_by_the_same_races(self) -> None:
        ahead = row("h", chosen=2.0, chosen_again=2.0, oracle=2.0, rival=1.0, rival_again=1.0,
                    rival_high=1.1, rival_again_high=1.1)  # fmt: skip
        behind = row("i", chosen=1.0, chosen_again=1.0, oracle=1.1, rival=1.1, rival_again=1.1,
                     rival_high=1.2, rival_again_high=1.2)  # fmt: skip
        found = summarize([ahead, behind, KEPT])["rival"]
        assert (found["operators"], found["faster"], found["slower"]) == (2, 1, 1)
        assert found["geomean"] == pytest.approx(math.sqrt(2.0 / 1.1), rel=1e-3)
        assert found["max_regret"] == pytest.approx(1.0)
        assert found["regressions"] == []
        assert summarize([KEPT])["rival"] is None

    def test_wins_are_counted_by_method_and_route(self) -> None:
        result = summarize([WON, KEPT, NOTHING])
        assert result["wins_by_method"] == {"compiler": 1, "library": 1}
        assert result["wins_by_route"] == {"tvm": 1, "eager": 1}

    def test_the_tables_have_a_line_for_every_operator(self, tmp_path: Path) -> None:
        rows = [WON, KEPT, NOTHING]
        result = summarize(rows) | {
            "budget_s": 60.0, "cores": 2, "explored_s": 30.0, "measured_again_s": 20.0, "sample": "s.json",
            "trials": {}, "noisy_share": 0.1, "explored_s_per_operator": 10.0, "contested": 2,
            "contest_s_per_operator": None, "per_operator_s": None, "reproduced": None,
            "median_half_width": None, "reproducing": None, "rows": [one.to_json() for one in rows],
        }  # fmt: skip
        measured = {words: (value, aim) for words, value, aim in figures(result)}
        assert measured["noisy trials"] == ("10.00%", "≤ 5 %")
        assert measured["published intervals that hold on re-timing"] == ("–", "≥ 95 %")
        write(json.loads(json.dumps(result)), tmp_path / "contest.md")
        assert "| tvm | 1.59× | 1 | 1 | 0 | 0.0 |" in (tmp_path / "contest.md").read_text()
        text = (tmp_path / "contest.rows.json").read_text()
        [table] = json.loads(text)
        assert table["conditions"] == "60 s on 2 cores; sample s.json."
        assert len(table["columns"]) == 7 and table["rows"] == [
            ["operator a", 10.0, 4.0, 2.0, 8.0, "tvm: tiles", 10.0],
            ["operator b", 0.0, 1.0, None, None, "eager: ", 0.0],
            ["operator c", None, None, None, None, "no answer: nothing is served for it", None],
        ]
        assert '["operator a", 10.0, 4.0, 2.0, 8.0, "tvm: tiles", 10.0],' in text.splitlines()


class TestSample:
    def test_the_committed_sample_obeys_the_rule(self) -> None:
        entrants = read_sample()
        assert len(entrants) == len({one.operator.key for one in entrants}) == SIZE
        assert all(is_small(one.operator) for one in entrants)
        assert any(one.halved for one in entrants)

    def test_the_heavy_sample_obeys_its_rule(self) -> None:
        entrants = read_sample(sample_path("heavy"))
        assert len(entrants) == HEAVY_SIZE
        assert all(is_heavy(one.operator) for one in entrants)
        assert HEAVY.stat().st_size < 50_000

    def test_a_limit_leaves_the_same_operators_of_every_family(self, tmp_path: Path) -> None:
        every = read_sample()
        chosen = limited(every, 60)
        assert limited(list(reversed(every)), 60) == chosen[::-1]
        assert limited(every, 0) == every
        main(SAMPLE, "60", str(tmp_path / "sixty.json"))
        assert {one.operator.key for one in read_sample(tmp_path / "sixty.json")} == {
            one.operator.key for one in chosen
        }
        assert len({one.example for one in chosen}) > 10

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


def said(**variables: str) -> ContestPlan:
    return plan(read(BenchConf, variables))


class TestPlan:
    def test_exploring_takes_nothing_of_measuring_again(self) -> None:
        todo = said(PER_OPERATOR_S="5", LIMIT="60")
        assert (todo.exploring_s, todo.measuring_s(300.0)) == (300.0, 60 * MEASURING_S)
        whole = said(BUDGET_S="1000", LIMIT="5")
        assert (whole.exploring_s, whole.measuring_s(650.0)) == (650.0, 350.0)
        assert whole.measuring_s(990.0) == 5 * MEASURING_S

    def test_other_operators_are_another_run(self) -> None:
        assert said(LIMIT="60").identity != said().identity
        assert said(BUDGET_S="60").identity == said(PER_OPERATOR_S="1").identity


class TestRivals:
    """Rows of whatever version: only what is asked of them."""

    def home(self, folder: Path, sha256: str) -> Path:
        manifest = Manifest("c-abi", "tvm", {}, {}, {"kernel.so": sha256}).to_json()
        with closing(sqlite3.connect(folder / "opatlas.sqlite3")) as old:
            old.executescript(
                "CREATE TABLE catalog_operator (id, key); INSERT INTO catalog_operator VALUES (1, 'op:a');"
                "CREATE TABLE catalog_setting (id, key); INSERT INTO catalog_setting VALUES (1, 'set:a');"
                "CREATE TABLE catalog_artifact (id, manifest);"
                "CREATE TABLE catalog_implementation (id, artifact_id, route, label, candidate);"
                "INSERT INTO catalog_implementation VALUES (1, 1, 'tvm', 'tiles', '{}');"
                "CREATE TABLE catalog_best (operator_id, setting_id, implementation_id, scope, rank);"
                "INSERT INTO catalog_best VALUES (1, 1, 1, 'shared', 0);"
            )
            old.execute("INSERT INTO catalog_artifact VALUES (1, ?)", (json.dumps(manifest),))
            old.commit()
        file = folder / "artifacts" / sha256[:2] / sha256[2:4] / sha256
        file.parent.mkdir(parents=True)
        file.write_bytes(b"code")
        return folder

    def test_what_another_home_serves_comes_with_its_files(self, tmp_path: Path) -> None:
        rivals = Rivals(self.home(tmp_path, hashlib.sha256(b"code").hexdigest()))
        (tmp_path / "taken").mkdir()
        found = rivals.choice("op:a", "set:a", tmp_path / "taken")
        assert found is not None and (found.route, found.label) == ("tvm", "tiles")
        assert (found.artifact.folder / "kernel.so").read_bytes() == b"code"
        assert rivals.choice("op:b", "set:a", tmp_path) is None

    def test_a_file_that_was_changed_takes_no_part(self, tmp_path: Path) -> None:
        rivals = Rivals(self.home(tmp_path, "0" * 64))
        with pytest.raises(CannotBeTimed, match="is not what"):
            rivals.choice("op:a", "set:a", tmp_path)

    def test_no_home_is_said_at_once(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match="is no home"):
            Rivals(tmp_path)
