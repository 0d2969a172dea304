"""What is made ready at home: a Python, packages laid out, builds that are kept, ceilings."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from opatlas.identity import Setting
from tests.catalog.making import GPU
from tests.tuning.measure.kernels import relu_operator
from tests.tuning.measure.simulated_device import SimulatedRoute, artifact
from tuning.bare import ceilings, home, prebuilding, prebuilt
from tuning.bare.ceilings import Ceilings
from tuning.bare.prebuilt import Prebuilt
from tuning.bare.problems import Problem
from tuning.bare.wheels import _reasons, lay_out
from tuning.measure.laboratory import Laboratory, Limits
from tuning.measure.outcome import Outcome, Status
from tuning.routes.base import Candidate

OPERATOR, SETTING = relu_operator(), Setting()
ROUTE = SimulatedRoute("triton", builds_in_process=False)
CANDIDATE = Candidate("triton", {"does": "relu", "us": 5}, "relu")


def python(folder: Path, says: str) -> Path:
    folder.mkdir(parents=True)
    made = folder / "python"
    made.write_text(f"#!/bin/sh\necho {says}\n")
    made.chmod(0o755)
    return made


def test_a_python_of_the_machines_version_is_found_or_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(home.sys, "executable", str(python(tmp_path / "own", "3.99")))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert home.find_python() is None
    assert home.main(tmp_path / "home") == 78
    assert "Python 3.12 is missing" in capsys.readouterr().err
    python(tmp_path / "versions/3.12.0/bin", "3.11")  # a name that lies
    right = python(tmp_path / "versions/3.12.9/bin", "3.12")
    assert home.find_python() == str(right)


def test_a_wheel_is_laid_out_as_it_is_installed_without_its_commands(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("some/__init__.py", "some-1.dist-info/METADATA", "some-1.data/purelib/more.py"):
            archive.writestr(name, name)
        archive.writestr("some-1.data/scripts/some", "#!python")
        archive.writestr("../outside.py", "")
    lay_out(wheel, tmp_path / "site")
    site = tmp_path / "site"
    found = {path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()}
    assert found == {"some/__init__.py", "some-1.dist-info/METADATA", "more.py"}
    assert not (tmp_path / "outside.py").exists()


def test_why_a_wheel_was_not_built_is_what_its_compiler_or_linker_said() -> None:
    said = "In function ‘python::error::none()’:\n/usr/bin/ld: cannot find -lcuda\nerror: g++ failed"
    assert next(_reasons(said)) == "/usr/bin/ld: cannot find -lcuda"
    assert next(_reasons("x.cpp:1:2: fatal error: cudaProfiler.h: No such file")).endswith("No such file")
    assert list(_reasons("a note\nthe end")) == ["the end"]


def test_what_was_built_at_home_is_taken_where_all_that_decides_it_is_the_same(tmp_path: Path) -> None:
    store = Prebuilt(tmp_path / "store")
    built = artifact(tmp_path / "built", OPERATOR, "relu", 5, "triton")
    about = (ROUTE, OPERATOR, GPU, SETTING, CANDIDATE)
    assert store.get(*about, tmp_path / "none") is None and not store.has(*about)
    assert store.put(*about, built) > 0 and store.has(*about)
    taken = store.get(*about, tmp_path / "taken")
    assert taken is not None and taken.manifest == built.manifest
    assert (tmp_path / "taken/relu.cubin").read_bytes() == (built.folder / "relu.cubin").read_bytes()
    others = [
        (replace(ROUTE, name="cuda"), OPERATOR, GPU, SETTING, CANDIDATE),
        (ROUTE, relu_operator((9, 9)), GPU, SETTING, CANDIDATE),
        (ROUTE, OPERATOR, replace(GPU, arch="sm_100"), SETTING, CANDIDATE),
        (ROUTE, OPERATOR, GPU, Setting(tf32=True), CANDIDATE),
        (ROUTE, OPERATOR, GPU, SETTING, replace(CANDIDATE, parameters={"does": "relu", "us": 6})),
    ]
    assert not any(store.has(*other) for other in others)
    assert store.has(ROUTE, OPERATOR, replace(GPU, product="H200"), SETTING, CANDIDATE), "one architecture"
    for file in (tmp_path / "store/files").iterdir():
        file.write_bytes(b"another")
    assert store.get(*about, tmp_path / "changed") is None, "it is not what was built"


def test_what_a_route_built_before_it_was_changed_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("a", "x = 1"), ("b", "x = 1"), ("c", "x = 2")):
        (tmp_path / name / "templates").mkdir(parents=True)
        (tmp_path / name / "templates/product.py").write_text(text)
    of = {name: prebuilt.code_digest(tmp_path / name) for name in "abc"}
    assert of["a"] == of["b"] != of["c"]
    store, about = Prebuilt(tmp_path / "store"), (ROUTE, OPERATOR, GPU, SETTING, CANDIDATE)
    store.put(*about, artifact(tmp_path / "built", OPERATOR, "relu", 5, "triton"))
    monkeypatch.setattr(prebuilt, "code_digest", lambda folder: of["c"])
    assert not store.has(*about)


class TinyLaboratory:
    """Builds at once."""

    target = GPU

    def __init__(self, home: Path) -> None:
        self.home, self.asked = home, 0

    def build_all(self, operator: object, setting: Setting, jobs: list) -> list:
        self.asked += len(jobs)
        functions = {"functions": {"relu": {"registers": 32, "stack_bytes": 8}}}
        return [
            replace(artifact(place, OPERATOR, "relu", 5, route.name), facts=functions)
            for route, _, place in jobs
        ]


def test_builds_are_made_once_and_none_that_needs_a_device(tmp_path: Path) -> None:
    laboratory, store = TinyLaboratory(tmp_path), Prebuilt(tmp_path / "store")
    routes = (ROUTE, SimulatedRoute("eager"), replace(ROUTE, name="inductor", zygote="inductor"))
    wanted = [Problem("a", "float32", 0, OPERATOR), Problem("a", "float32", 1, None, "no rule")]
    stale = artifact(tmp_path / "stale", OPERATOR, "half", 5, "triton")
    store.put(ROUTE, relu_operator((9, 9)), GPU, SETTING, CANDIDATE, stale)
    for built, known in ((1, 0), (0, 1)):
        done = prebuilding.prebuild(laboratory, routes, wanted, store, lambda line: None)  # type: ignore[arg-type]
        assert (done.problems, done.built, done.known, done.failed) == (1, built, known, 0)
        assert (done.functions, done.spilling, done.most_registers, done.most_shared_bytes) == (1, 1, 32, 0)
        assert len([path for path in store.folder.rglob("*") if path.is_file()]) == 2, "nothing stale"
        assert done.nbytes == store.nbytes > 0
    assert laboratory.asked == 1
    assert prebuilding.NAMED["sm_90"].key == GPU.key


def test_a_build_ends_when_its_time_does_and_none_is_begun_just_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tuning.measure import laboratory as laboratories

    given: list[float] = []

    def build(*about: object) -> Outcome:
        given.append(float(about[-1]))  # type: ignore[arg-type]
        return Outcome(Status.TIMED_OUT, "took longer than it may")

    monkeypatch.setattr(laboratories, "build_in_child", build)
    monkeypatch.setattr(laboratories.time, "monotonic", lambda: 100.0)
    with Laboratory(tmp_path, GPU) as laboratory:
        late = laboratory.build(ROUTE, OPERATOR, SETTING, CANDIDATE, tmp_path / "late", Limits(ends=100.5))
        assert isinstance(late, Outcome) and late.detail == "not begun: 0 s are left for it" and not given
        laboratory.build(ROUTE, OPERATOR, SETTING, CANDIDATE, tmp_path / "soon", Limits(ends=107))
        laboratory.build(ROUTE, OPERATOR, SETTING, CANDIDATE, tmp_path / "any", Limits())
    assert given == [7.0, 60.0]


def test_ceilings_are_measured_and_bound_an_operator(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = ceilings.measured("cpu", 64, 1 << 20)
    assert set(made.flops_per_s) == {"float32"}
    assert min(made.flops_per_s["float32"], made.bytes_per_s, made.launch_us) > 0
    (tmp_path / "ceilings.json").write_text(json.dumps(asdict(made)))
    assert ceilings.known_or_asked(tmp_path / "ceilings.json") == made, "once a machine"
    slow = Ceilings("a device", {"float16": 1e12}, bytes_per_s=1e9, launch_us=4.0)
    by = slow.of(OPERATOR, SETTING)
    moved = 2 * 4 * OPERATOR.inputs[0].shape[0] * OPERATOR.inputs[0].shape[1]
    assert by == {"us": pytest.approx(moved / 1e3, rel=1e-3), "by": "bytes"}
    assert replace(slow, bytes_per_s=1e15).of(OPERATOR, SETTING) == {"us": 4.0, "by": "launch"}
