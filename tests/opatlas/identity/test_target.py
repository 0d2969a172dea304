"""Targets: hardware only, told by the machine or by a caller."""

from pathlib import Path
from typing import Any

import pytest

from opatlas.cores import usable_cores
from opatlas.errors import InvalidTarget
from opatlas.identity import Target, compiler_flags, detect_target, llvm_target
from opatlas.identity.place.cpu import read_caches, read_features

ZEN3: dict[str, Any] = {
    "kind": "cpu",
    "arch": "zen3",
    "vendor": "AuthenticAMD",
    "isa": "x86_64",
    "features": ["avx2", "fma", "sse4_2", "bmi2", "avx"],
    "cache_bytes": {"l1d": 32768, "l2": 524288, "l3": 33554432},
    "cores": 2,
}
H100: dict[str, Any] = {
    "kind": "cuda",
    "arch": "sm_90",
    "vendor": "nvidia",
    "isa": "ptx",
    "features": [],
    "cache_bytes": {"l2": 52428800},
    "product": "NVIDIA H100 80GB HBM3",
    "multiprocessors": 132,
    "memory_gib": 80,
}


def test_this_machine_is_told() -> None:
    target = detect_target()
    assert target.kind == "cpu"
    assert target.cores == usable_cores()
    assert target.features == tuple(sorted(target.features))
    assert "hypervisor" not in target.features
    assert target.capability == f"cpu.{target.arch}"
    assert detect_target().key == target.key
    assert Target.from_json(target.to_json()) == target


def test_order_of_features_and_caches_does_not_matter() -> None:
    turned = dict(reversed(ZEN3.items()))
    turned["features"] = ["fma", "avx", "bmi2", "avx2", "sse4_2"]
    turned["cache_bytes"] = {"l3": 33554432, "l2": 524288, "l1d": 32768}
    assert Target.from_json(turned).key == Target.from_json(ZEN3).key


@pytest.mark.parametrize(
    "change",
    [
        {"arch": "zen2"},
        {"cores": 3},
        {"features": ["avx2"]},
        {"cache_bytes": {"l1d": 32768}},
        {"isa": "aarch64"},
        {"vendor": "x"},
    ],
)
def test_every_field_is_part_of_the_key(change: dict[str, Any]) -> None:
    assert Target.from_json({**ZEN3, **change}).key != Target.from_json(ZEN3).key


@pytest.mark.parametrize(
    "change",
    [
        {"arch": "sm_80"},
        {"product": "H100 PCIe"},
        {"multiprocessors": 114},
        {"memory_gib": 96},
        {"cache_bytes": {}},
    ],
)
def test_every_field_of_a_gpu_is_part_of_its_key(change: dict[str, Any]) -> None:
    gpu = Target.from_json(H100)
    assert Target.from_json({**H100, **change}).key != gpu.key
    assert gpu.to_json() == H100
    assert gpu.capability == "cuda.sm_90"


def test_kinds_that_came_later_change_no_older_key() -> None:
    assert Target.from_json(ZEN3).key == "t1:69c9cabfc4b181c289dd964eb2966937f2976f0238fd355b0d6b790d0cc0383c"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], "must be a JSON object"),
        ({**ZEN3, "ram": 5}, "has no field 'ram'; known are"),
        ({**ZEN3, "kind": "abacus"}, "kind is one of cpu, cuda, not 'abacus'"),
        ({**ZEN3, "kind": None}, "kind is one of cpu, cuda, not nothing"),
        ({**ZEN3, "kind": ["cpu"]}, "kind is one of cpu, cuda"),
        ({**ZEN3, "kind": "cuda"}, "A cuda target has no field 'cores'; known are: .*multiprocessors"),
        ({**ZEN3, "memory_gib": 80}, "A cpu target has no field 'memory_gib'"),
        ({**H100, "multiprocessors": 0}, "multiprocessors must be an integer from 1"),
        ({**H100, "memory_gib": 79.6}, "memory_gib must be an integer"),
        ({**H100, "product": "x" * 101}, "product must be text of at most 100"),
        ({**H100, "cache_bytes": {"l3": 1}}, "levels l2 only"),
        ({**ZEN3, "arch": None}, "arch must be 1 to 64 of"),
        ({**ZEN3, "arch": "Zen 3; rm"}, "arch must be 1 to 64 of"),
        ({**ZEN3, "cores": 0}, "cores must be an integer from 1"),
        ({**ZEN3, "cores": True}, "cores must be an integer from 1"),
        ({**ZEN3, "cores": 2.0}, "cores must be an integer from 1"),
        ({**ZEN3, "features": "avx2"}, "features must be a list"),
        ({**ZEN3, "features": [["avx2"]]}, "feature must be 1 to 64 of"),
        ({**ZEN3, "features": ["a"] * 5000}, "at most 1024"),
        ({**ZEN3, "cache_bytes": [1]}, "must be an object"),
        ({**ZEN3, "cache_bytes": {"l9": 1}}, "levels l1d, l2, l3"),
        ({**ZEN3, "cache_bytes": {"l2": "1M"}}, "number of bytes"),
        ({**ZEN3, "vendor": "\n"}, "vendor must be text"),
    ],
)
def test_bad_targets_are_refused(document: Any, sentence: str) -> None:
    with pytest.raises(InvalidTarget, match=sentence):
        Target.from_json(document)


def test_caches_are_read_as_one_cpu_sees_them(tmp_path: Path) -> None:
    for i, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "1M"), ("4", "Unified", "1G")]
    ):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert read_caches(tmp_path) == (("l1d", 48 << 10), ("l2", 1 << 20))
    assert read_caches(tmp_path / "absent") == ()


def test_features_are_the_raw_ones(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu avx2 hypervisor\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert read_features(cpuinfo) == {"fpu", "avx2"}
    assert read_features(tmp_path / "absent") == set()


def test_flags_follow_the_features_not_the_name() -> None:
    hidden = Target.from_json({**ZEN3, "features": ["avx", "sse4_2"]})
    assert compiler_flags(Target.from_json(ZEN3)) == ("-mavx", "-mavx2", "-mbmi2", "-mfma", "-msse4.2")
    assert compiler_flags(hidden) == ("-mavx", "-msse4.2")
    cpu, attributes = llvm_target(hidden)
    assert cpu == "znver3"
    assert "-avx2" in attributes
    assert "+avx" in attributes
    assert attributes.index("-avx2") < attributes.index("+avx")
    unknown = Target.from_json({**ZEN3, "arch": "x86_64_v3", "features": ["sse4_2", "ssse3", "popcnt"]})
    assert llvm_target(unknown)[0] == "x86-64-v2"


def test_the_compiler_takes_the_flags_of_this_machine(tmp_path: Path) -> None:
    import shutil
    import subprocess

    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source = tmp_path / "a.c"
    source.write_text("int one(void) { return 1; }\n")
    command = [compiler, *compiler_flags(detect_target()), "-c", str(source), "-o", str(tmp_path / "a.o")]
    subprocess.run(command, check=True, capture_output=True)
