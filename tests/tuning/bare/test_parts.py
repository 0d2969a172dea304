"""Lines, lists, figures and the bundle of a bare machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.expression import Expression

from tests.gpu.__main__ import modules
from tuning.bare import bundle, lines
from tuning.bare.figures import figures
from tuning.bare.lines import Full, Lines
from tuning.bare.problems import DTYPES, problems

GEMM = {
    "op": "deepbench.gemm",
    "attrs": {"m": 64, "n": 16, "k": 32, "a_t": False, "b_t": True},
    "inputs": [{"shape": [64, 32], "dtype": "float32"}, {"shape": [16, 32], "dtype": "float32"}],
    "count": 1,
    "source": "a list",
}


def test_lines_survive_being_cut_off_and_never_outgrow_what_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 100)
    monkeypatch.setattr(lines, "MOST_FILES", 2)
    kept = Lines(tmp_path, "measured")
    kept.append({"problem": "a" * 40})
    with (tmp_path / "measured-0.jsonl").open("a") as file:
        file.write('{"problem": "cut o')
    kept.append({"problem": "b" * 10})
    kept.append({"problem": "c" * 60})
    assert [line["problem"][0] for line in kept] == ["a", "b", "c"]
    with pytest.raises(Full, match="2 files of"):
        kept.append({"problem": "d" * 60})
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())


def test_lists_are_taken_in_turns_and_in_every_type(tmp_path: Path) -> None:
    unknown = {**GEMM, "op": "deepbench.lstm"}
    (tmp_path / "deepbench_gemm.json").write_text(json.dumps([GEMM, GEMM, unknown]))
    (tmp_path / "tritonbench_gemm.json").write_text(json.dumps([{**GEMM, "op": "tritonbench.gemm"}]))
    found = problems(tmp_path)
    assert {one.suite for one in found[:6]} == {"deepbench_gemm", "tritonbench_gemm"}
    assert [one.dtype for one in found[:3]] == list(DTYPES)
    mapped = [one for one in found if one.suite == "deepbench_gemm" and one.operator]
    assert [one.number for one in mapped] == [0, 0, 0], "twice the same is once"
    assert {one.operator.inputs[0].dtype for one in mapped if one.operator} == set(DTYPES)
    assert [one.reason for one in found if not one.operator] == ["deepbench: lstm has no rule yet"] * 3
    assert problems(tmp_path / "nothing") == []


def entry(route: str, ratio: float, **more: Any) -> dict[str, Any]:
    evidence = {
        "ratio_to_default": ratio, "ratio_low": ratio * 0.98, "ratio_high": ratio * 1.02,
        "median_us": 100 / ratio,
    }  # fmt: skip
    known = {"route": route, "method": "library", "status": "ok", "facts": {"final": True}}
    return {**known, "evidence": evidence, **more}


def line(problem: str, *entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    default = entry("eager", 1.0, facts={"by_the_device": {"cold_us": 8.0}})
    times = {"first_s": 1.0, "best_s": 9.0, "flops": 2e9, "bytes_moved": 1e6}
    times |= {"pass": "quick", "ceiling": {"us": 5.0, "by": "launch"}}
    return {"problem": problem, "entries": [default, *entries], "again": None, **times, **more}


def by_the_device(cold_us: float, launch_bound: bool) -> dict[str, Any]:
    return {"final": True, "by_the_device": {"cold_us": cold_us, "launch_bound": launch_bound}}


def test_the_figures_count_what_has_no_result_as_no_gain() -> None:
    again = {"entry": 1, "ratio": 1.99}
    found = figures(
        [
            line("a", entry("triton", 9.0)),
            line("a", entry("triton", 2.01, method="compiler")),
            line(
                "a",
                entry("triton", 2.0, method="compiler", facts=by_the_device(4.0, launch_bound=True)),
                **{"pass": "thorough"},
                again=again,
                max_autotune={"ratio": 1.6},
            ),
            line(
                "b",
                entry("cublaslt", 0.5),
                entry("triton", 8.0, facts={}),
                entry("cudnn", 4.0, status="noisy"),
            ),
            line("c", entry("cublaslt", 4.0), max_autotune={"why_not": "it does not compile"}),
            line(
                "c",
                entry("cublaslt", 4.0),
                **{"pass": "thorough"},
                again={"entry": 1, "ratio": 0.9},
                max_autotune={"why_not": "it does not compile"},
            ),
            {"problem": "d", "uncovered": "no default can run it"},
        ]
    )
    assert (found["problems"], found["uncovered"]) == (4, 1)
    assert found["geomean_vs_eager"] == pytest.approx((2 * 1 * 4 * 1) ** (1 / 4))
    assert found["geomean_vs_max_autotune"] == pytest.approx((2 / 1.6) ** (1 / 4))
    assert found["max_autotune_measured"] == 1
    why_not = {"it does not compile": 1, "measured before it was asked for": 1, "no result": 1}
    assert found["max_autotune_uncovered"] == why_not
    none = figures([line("a", entry("triton", 2.0))])
    assert none["geomean_vs_max_autotune"] is None, "no 1.0 for what nobody measured"
    assert (found["regressions"], found["held_on_retiming"]) == (1, 0.5)
    assert found["wins_by_method"] == {"library": 2, "compiler": 1}
    assert found["most_tflops"] == pytest.approx(2e9 / 25e-6 / 1e12)
    assert found["of_the_ceiling"] == pytest.approx(5 / 50)
    assert found["bound_by"] == {"launch": 3} and found["launch_bound"] == 1
    assert (found["clock"], found["measured_by_the_device"]) == ("wall", 2)
    assert found["geomean_vs_eager_by_the_device"] == pytest.approx((8 / 4 * 1) ** (1 / 2))


ABOUT_DEVICES = re.compile(
    r"mark\.gpu\b|^from (opatlas\.load\.cuda|opatlas\.load\.torch\.on_device|opatlas\.identity\.place\.cuda"
    r"|opatlas\.streams\.cuda_device|tuning\.measure\.device|tuning\.measure\.scrutiny\.referees"
    r"|tests\.tuning\.measure\.simulated_device)\b",
    re.MULTILINE,
)
AT_HOME = {
    "tests/tuning/bare/test_home.py",
    "tests/tuning/bare/test_pace.py",
    "tests/tuning/bare/test_slices.py",
    "tests/tuning/measure/test_unseen.py",
}
"""They are of what is done at home, configure the service, or have fixtures of the whole suite; none of them
is of a real device."""


def test_every_module_about_devices_runs_on_one() -> None:
    about = {
        path.relative_to(bundle.ROOT).as_posix()
        for path in (bundle.ROOT / "tests").rglob("test_*.py")
        if ABOUT_DEVICES.search(path.read_text())
    }
    listed = modules(bundle.ROOT)
    assert about - AT_HOME <= set(listed)
    assert {"tests/gpu/test_device.py", *AT_HOME} <= about
    assert len(listed) == len(set(listed)) and all((bundle.ROOT / one).is_file() for one in listed)


def test_an_environment_over_another_has_what_that_has(tmp_path: Path) -> None:
    """As on a machine whose Python is that of an environment: PyTorch is in there."""
    make = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "theirs")]
    subprocess.run(make, check=True, timeout=240)
    python = tmp_path / "theirs/bin/python"
    (theirs,) = (tmp_path / "theirs").glob("lib/python*/site-packages")
    (theirs / "of_theirs.py").write_text("")
    environment = {**os.environ, "PYTHONPATH": str(bundle.ROOT)}
    unpack = [str(python), "-m", "tuning.bare.unpacked"]
    subprocess.run(unpack, cwd=tmp_path, env=environment, check=True, timeout=240)
    code = "import site, of_theirs; print(of_theirs.__file__, site.getsitepackages())"
    own = subprocess.run(
        [str(tmp_path / "var/gpu/venv/bin/python"), "-c", code], capture_output=True, text=True, timeout=240
    )
    assert own.returncode == 0, own.stderr
    assert str(theirs) in own.stdout.split(" ", 1)[1]


def test_a_bundle_runs_where_there_is_no_django(tmp_path: Path) -> None:
    """Unpacked in an empty folder; only the quick modules, the others are the same code."""
    made = bundle.make_bundle(tmp_path / "bundle.tar.gz", download=False)
    assert made.nbytes < bundle.MOST_BYTES
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        assert {member.uname for member in archive.getmembers()} == {""}
        archive.extractall(tmp_path, filter="data")
    tree, hidden = tmp_path / "opatlas-gpu", tmp_path / "hidden"
    for name in ("django", "celery", "rest_framework"):
        (hidden / name).mkdir(parents=True)
        (hidden / name / "__init__.py").write_text("raise ImportError('there is no service here')")
    environment = {**os.environ, "PYTHONPATH": f"{hidden}:{tree}"}
    tests = ["tests/gpu/test_device.py", "tests/tuning/measure/device/test_watch.py"]
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu", *tests],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"== {test}" in done.stdout for test in tests) and "passed" in done.stdout
    assert "it has no NVIDIA GPU" in done.stdout or "skipped" not in done.stdout
    bench = subprocess.run(
        [sys.executable, "-m", "tuning.bare", "bench", "--device", "cuda:77"],
        cwd=tree, env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert bench.returncode == os.EX_CONFIG
    assert "Nothing was measured: This machine has no device cuda:77" in bench.stderr


STEPS = {
    "1": {
        "machine",
        "ceilings",
        "sandbox",
        "driver",
        "in place",
        "plans",
        "proofs",
        "proof of inductor",
        "graphs, cold caches, the fault",
        "some of the table",
    },
    "2": {"table", "thorough"},
}


@pytest.mark.parametrize("phase", STEPS)
def test_an_errand_takes_every_step_whatever_fails_and_writes_how_each_ended(
    tmp_path: Path, phase: str
) -> None:
    out = tmp_path / "results"
    done = subprocess.run(
        ["bash", "tuning/bare/errand.sh", phase, str(out)],
        cwd=bundle.ROOT, env={**os.environ, "PYTHON": "false"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]
    assert {one["step"] for one in steps} == STEPS[phase] and len(steps) == len(STEPS[phase])
    assert all(one["code"] == 1 and one["limit_s"] > 1 for one in steps if one["step"] != "machine")
    assert all(f"== {phase} {one['step']}: code" in (out / "errand.log").read_text() for one in steps)
    assert "phase" in done.stdout and len(list(out.iterdir())) == 2


def test_what_an_errand_selects_is_there() -> None:
    script = (bundle.ROOT / "tuning/bare/errand.sh").read_text()
    selected = re.findall(r'^ *(?:OPATLAS_LOCK=\S+ )?tests "[^"]+" \d+ "([^"]+)"', script, re.MULTILINE)
    assert len(selected) == script.count(' tests "') == 6
    command = [sys.executable, "-m", "tests.gpu", "tests/gpu/test_device.py", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=bundle.ROOT, capture_output=True, text=True, timeout=240)
    tests = re.findall(r"::(test_.+)$", done.stdout, re.MULTILINE)
    taken = {
        one: [test for test in tests if Expression.compile(one).evaluate(lambda word: word in test)]  # noqa: B023
        for one in selected
    }
    assert all(taken.values()), taken
    left = set(tests) - {test for found in taken.values() for test in found}
    assert left and all("inductor" in test and "devices_own" in test for test in left), "phase 2 has these"


def test_what_a_step_has_said_comes_back_where_the_whole_call_is_killed(tmp_path: Path) -> None:
    python, out = tmp_path / "python", tmp_path / "results"
    python.write_text("#!/bin/bash\necho $$ is so far\nexec sleep 600\n")
    python.chmod(0o755)
    command = ["bash", "tuning/bare/errand.sh", "2", str(out)]
    with subprocess.Popen(command, cwd=bundle.ROOT, env={**os.environ, "PYTHON": str(python)}) as errand:
        while not any("is so far" in path.read_text() for path in out.glob("running-*")):
            assert errand.poll() is None
        errand.kill()
    (said,) = (path.read_text() for path in out.glob("running-*"))
    os.kill(int(said.split()[0]), signal.SIGKILL)
    assert not (out / "steps.jsonl").exists()


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.alone
def test_an_errands_table_is_rehearsed_on_the_simulated_device(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tuning.bare",
        "bench",
        "--rehearsed",
        "tests.gpu.rehearsal",
        "--most",
        "3",
    ]
    command += ["--state", str(tmp_path), "--seconds", "200", "--each", "60"]
    done = subprocess.run(command, cwd=bundle.ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert all(line["rehearsed"] for line in Lines(tmp_path, "measured"))
    found = json.loads((tmp_path / "bench.json").read_text())
    assert (
        found["devices"] == ["simulated"]
        and found["left"] == {"quick": 0, "thorough": 1}
        and found["uncovered"] == 1
    )
    assert sum(found["wins_by_route"].values()) == 2 and found["of_the_ceiling"] > 0
