"""Builds that are repeated: the same bytes, a difference told, or why it cannot be done here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opatlas.identity import Setting, detect_target, parse_operator
from tests.configuring import configured
from tuning.explore.repeating import Recorded, repeat
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import BuiltArtifact, Candidate
from tuning.routes.manual.compiling import compile_kernel
from tuning.routes.manual.cpp import CppRoute

OPERATOR = parse_operator({"op": "Relu", "inputs": [{"shape": [64], "dtype": "float32"}]})
SETTING = Setting(threads=1)
TIMES = '__DATE__ __TIME__ __TIMESTAMP__ " " __FILE__'
SOURCE = f"""\
#include "opatlas_operator.h"
const char *opatlas_error(void) {{ return {TIMES}; }}
int opatlas_run(const opatlas_tensor *t, int32_t n, const opatlas_threads *p, void *s) {{ return 0; }}
"""
CANDIDATE = Candidate(
    "cpp",
    {
        "kernel_version": 7,
        "kernel": "relu",
        "version": 3,
        "language": "c",
        "flags": ["-O3"],
        "source": SOURCE,
    },
    "relu v3",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with (
        configured(lock=tmp_path_factory.mktemp("lock") / "lock"),
        Laboratory(tmp_path_factory.mktemp("laboratory"), detect_target()) as laboratory,
    ):
        yield laboratory


@pytest.fixture(scope="module")
def built(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> BuiltArtifact:
    found = lab.build(CppRoute(), OPERATOR, SETTING, CANDIDATE, tmp_path_factory.mktemp("built"))
    assert isinstance(found, BuiltArtifact), found
    return found


def recorded(built: BuiltArtifact, **changes: Any) -> Recorded:
    manifest = built.manifest
    return replace(Recorded(OPERATOR, SETTING, CANDIDATE, manifest.files, manifest.provenance), **changes)


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_same_source_gives_the_same_bytes_in_any_folder_at_any_time(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    hidden = "namespace { int hidden() { return 3; } }\n" if language == "c++" else ""
    head = 'extern "C" ' if language == "c++" else ""
    source = f"{hidden}{head}const char *opatlas_error(void) {{ return {TIMES}; }}\n"
    source += f"{head}int opatlas_run(void) {{ return {'hidden()' if hidden else '0'}; }}\n"
    for name, zone in (("a", "UTC"), ("elsewhere/with/a/longer/name", "Pacific/Auckland")):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.setenv("TZ", zone)
        library, _ = compile_kernel(source, ("h.h", ""), language, ["-O2"], folder)
        found.append(library.read_bytes())
    assert found[0] == found[1]
    assert b"1970" in found[0] and str(tmp_path).encode() not in found[0]


def test_the_manifest_says_how_it_was_built(built: BuiltArtifact, lab: Laboratory) -> None:
    told = built.manifest.provenance
    assert told is not None
    assert told["who"] == "relu v3 (version 7)"
    assert told["source_sha256"] == hashlib.sha256(SOURCE.encode()).hexdigest()
    assert told["versions"] == dict(CppRoute().versions()) and "-O3" in told["flags"]
    assert told["builder"]["tier"] == lab.tier.name and told["builder"]["libc"].startswith("glibc")
    assert str(lab.home) not in str(told)


def test_a_build_is_repeated_bit_for_bit(lab: Laboratory, built: BuiltArtifact, tmp_path: Path) -> None:
    assert str(repeat(lab, [CppRoute()], recorded(built), tmp_path)) == "same: kernel.so bit for bit"


@pytest.mark.parametrize(
    ("changes", "verdict", "detail"),
    [
        ({"files": {"kernel.so": "0" * 64}}, "differs", "in kernel.so"),
        ({"provenance": None}, "cannot be repeated here", "does not say how it was built"),
        ({"candidate": Candidate("cpp", {**CANDIDATE.parameters, "flags": []}, "relu v3")},
         "cannot be repeated here", "is not what it was built from"),
        ({"candidate": Candidate("gone", {}, "")}, "cannot be repeated here", "no route gone"),
    ],
)  # fmt: skip
def test_what_cannot_be_repeated_says_why(
    lab: Laboratory, built: BuiltArtifact, tmp_path: Path, changes: Any, verdict: str, detail: str
) -> None:
    found = repeat(lab, [CppRoute()], recorded(built, **changes), tmp_path)
    assert found.verdict == verdict and detail in found.detail


def test_another_compiler_is_named(lab: Laboratory, built: BuiltArtifact, tmp_path: Path) -> None:
    before = {**(built.manifest.provenance or {}), "versions": {"gcc": "4.8"}}
    found = repeat(lab, [CppRoute()], recorded(built, provenance=before), tmp_path)
    assert found.detail.startswith("it was built with gcc 4.8, here is ")
