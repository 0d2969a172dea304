"""A race's report in words."""

from __future__ import annotations

import pytest

from tuning.explore.race.report import Entry, RaceReport, chance_text, decided_text

FINAL = {"median_us": 10.0, "ratio": 12.34, "low": 12.0, "high": 12.9}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            Entry("tvm", "a", skipped="0.4 % to be faster than 1.83×"),
            "not tried: 0.4 % to be faster than 1.83×",
        ),
        (Entry("tvm", "a", 1, "timed_out", 2), "timed out"),
        (Entry("tvm", "a", 1, "slower", 3, 0.0, dropped=True), "far slower than the default"),
        (Entry("tvm", "a", 1, "ok", 1, 0.02, dropped=True), "dropped after 1 round: 2 % to win"),
        (Entry("tvm", "a", 1, "ok", 12, 1.0), "ran all 12 rounds: led its heat, in no final"),
        (Entry("tvm", "a", 1, "ok", 40), "ran 40 rounds, in no final"),
        (Entry("tvm", "a", status="ok", final=FINAL), "slower in the final"),
    ],
)
def test_what_came_of_a_candidate(entry: Entry, said: str) -> None:
    assert entry.ended == said


def test_what_the_last_round_decided() -> None:
    new, level, other = (Entry(route, "", status="ok", final=FINAL) for route in ("tvm", "xla", "halide"))
    assert decided_text(RaceReport([Entry("tvm", "", 1, "ok", 12, 0.4)])).startswith("No final")
    assert decided_text(RaceReport([new])) == "The final decided for nobody."
    new.won = True
    said = "tvm won: 12.3× the default (ONNX Runtime) (12× – 12.9×)."
    assert decided_text(RaceReport([other, new], default_route="onnxruntime")) == said
    older = "tvm won: 12.3× the default (PyTorch eager, else ONNX Runtime) (12× – 12.9×)."
    assert decided_text(RaceReport([other, new])) == older
    level.equal = other.equal = True
    said = "xla and halide are equal to it: the final could not tell them apart"
    assert decided_text(RaceReport([new, level, other])).endswith(f"{said}.")
    new.held = True
    assert decided_text(RaceReport([new, level, other])).endswith(f"{said}, so who was served stays.")


def test_no_chance_is_a_false_0_or_100() -> None:
    said = [chance_text(one) for one in (0.0, 0.003, 0.25, 0.999)]
    assert said == ["less than 0.1 %", "0.3 %", "25 %", "99 %"]


def test_a_report_is_read_as_it_was_written() -> None:
    report = RaceReport([Entry("tvm", "a", final=FINAL)], heats=1, default_us=3.0)
    assert RaceReport.from_json(report.to_json()) == report
