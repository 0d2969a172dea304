"""A bare machine's slices: measured on a simulated device, gone on with, and brought into a catalogue."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from catalog.models import Best, Implementation, Measurement
from opatlas.identity import parse_operator
from tests.catalog.making import GPU
from tests.tuning.device_tools import ROUTES, TESTS, default
from tests.tuning.measure.device.simulated import NO_GPU, SimulatedMonitor
from tests.tuning.measure.simulated_device import SimulatedRoute
from tuning.bare import slices
from tuning.bare.lines import Lines
from tuning.bare.measuring import PASSES, ProblemTools
from tuning.bare.prebuilt import Prebuilt
from tuning.bare.problems import Problem
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.laboratory import Laboratory

pytestmark = [pytest.mark.slow, pytest.mark.alone]

RELU = parse_operator({"op": "Relu", "inputs": [{"shape": [4, 700], "dtype": "float32"}]})
TANH = parse_operator({"op": "Tanh", "inputs": [{"shape": [4, 700], "dtype": "float32"}]})
COMPILED = SimulatedRoute("torch_compile", us=300, method="compiler")
WANTED = [
    Problem("deepbench_gemm", "float32", 0, None, "deepbench: gemm has no rule yet"),
    Problem("kernelbench_level1", "float32", 0, TANH),
    Problem("kernelbench_level1", "float32", 1, RELU),
]


@pytest.mark.django_db
def test_what_a_slice_measures_goes_on_and_comes_home(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    watch = DeviceWatch(NO_GPU, SimulatedMonitor())
    with Laboratory(tmp_path / "lab", GPU, readable=[TESTS], device=watch) as laboratory:
        laboratory.warm((SimulatedRoute(),))
        bound = ProblemTools(laboratory, ROUTES, default)
        first = slices.bench(bound, WANTED[:2], state)
        assert (first["problems"], first["uncovered"]) == (2, 2)
        assert first["left"] == {"quick": 0, "thorough": 2}, "what is not covered has no thorough line"
        assert first["geomean_vs_eager"] == 1.0 and first["geomean_vs_max_autotune"] is None
        said: list[str] = []
        bound = replace(bound, baseline=COMPILED, prebuilt=Prebuilt(tmp_path / "none"))
        found = slices.bench(bound, WANTED, state, say=said.append)
    assert [line.partition(": ")[0] for line in said] == [f"{WANTED[2].name}, {one}" for one in PASSES]
    assert said[0].partition(": ")[2].startswith("triton")
    assert (found["problems"], found["uncovered"], found["left"]) == (3, 2, {"quick": 0, "thorough": 2})
    assert found["max_autotune_measured"] == 1 and found["max_autotune_uncovered"] == {"no result": 2}
    assert found["geomean_vs_max_autotune"] > 1, "150 us against 300"
    assert found["wins_by_route"] == {"triton": 1} and found["wins_by_method"] == {"compiler": 1}
    assert json.loads((state / "bench.json").read_text()) == found
    line, thorough = [one for one in Lines(state, "measured") if "entries" in one]
    ends = {one["route"]: one["status"] for one in line["entries"]}
    assert ends["triton"] == ends["eager"] == "ok"
    assert (ends["inductor"], ends["xla"]) == ("crashed", "cheated")
    entry = next(one for one in line["entries"] if one["route"] == "triton")
    again = next(one for one in thorough["entries"] if one["route"] == "triton")
    assert thorough["again"]["ratio"] == again["evidence"]["ratio_to_default"]
    # 500 us against 150, and on a busy host whatever: what is not covered counts as 1.
    assert found["geomean_vs_eager"] == pytest.approx(again["evidence"]["ratio_to_default"] ** (1 / 3))
    assert found["geomean_vs_eager"] > 1
    assert (line["clock"], found["clock"]) == ("wall", "wall")
    for one in line["entries"]:
        if one["status"] == "ok":
            by_device = one["facts"]["by_the_device"]
            assert 0 < by_device["warm_us"] <= 1.5 * one["evidence"]["median_us"]
            assert by_device["launch_bound"] is False
    assert found["measured_by_the_device"] == 1 and found["geomean_vs_eager_by_the_device"] > 1
    dropped = [one for one in line["entries"] if one["status"] == "ok" and not one["facts"].get("final")]
    assert all("files" not in one for one in dropped[1:]), "what could not be published does not travel"
    assert line["device"]["reading"]["sm_mhz"] == 1755

    call_command("import_measurements", *map(str, state.glob("measured-*.jsonl")))
    assert "4 lines: " in capsys.readouterr().out
    # On a busy host its interval may be too wide to lead by.
    leads = entry["evidence"]["ratio_low"] > 1
    assert Best.objects.get(rank=0).route == ("triton" if leads else "eager")
    best = Best.objects.get(route="triton")
    assert (best.kind, best.target.capability) == ("cuda-module", "cuda.sm_90")
    assert best.implementation.environment.versions == {"simulated": "1"}
    assert best.median_us == again["evidence"]["median_us"], "measured again, later"
    assert best.implementation.artifact.signature
    assert Best.objects.get(is_default=True).route == "eager"
    assert not Implementation.objects.filter(route__in=("inductor", "xla", "torch_compile")).exists()
    count = Measurement.objects.count()
    broken = tmp_path / "broken.jsonl"
    entry["manifest"]["files"] = dict.fromkeys(entry["manifest"]["files"], "0" * 64)
    rehearsed = json.dumps({**thorough, "rehearsed": True})
    broken.write_text("\n".join([json.dumps(line), '{"format": "another"}', rehearsed, '{"cut o']))
    call_command("import_measurements", str(broken))
    told = capsys.readouterr()
    assert "3 lines" in told.out and "line 2 is not of opatlas-measurements 1" in told.err
    assert "line 3 was rehearsed on a simulated device" in told.err
    assert Measurement.objects.count() == count, "a line is brought in whole or not at all"
    with pytest.raises(CommandError, match="There is no file"):
        call_command("import_measurements", str(tmp_path / "nothing"))
