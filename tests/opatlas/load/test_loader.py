"""What the loader refuses, each in one sentence, and that a fresh process can load what is right."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting
from opatlas.load import Manifest, load
from tests.opatlas.load.kernels import ADD, add_operator, build


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Path]:
    folder = tmp_path_factory.mktemp("add")
    return build(folder, ADD, add_operator(), threads=2), folder


def recipe_manifest(recipe: dict, **more) -> Manifest:
    return Manifest(
        kind="recipe",
        route="eager",
        operator=add_operator().to_json(),
        setting=Setting(threads=1).to_json(),
        recipe=recipe,
        **more,
    )


EAGER = {"library": "torch", "call": "eager"}

FRESH = """
import json, sys
from pathlib import Path
import numpy as np
from opatlas.load import Manifest, load
kernel = load(Manifest.from_json(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2]))
x = np.arange(1000, dtype=np.float32)
bound = kernel.bind({0: x, 1: 2 * x})
for _ in range(3):
    bound.poison()
    bound()
assert (bound.outputs()[0] == 3 * x).all()
heavy = sorted({"torch", "tvm", "django"} & set(sys.modules))
kernel.close()
print("fine", heavy)
"""


def run_fresh(manifest: Manifest, folder: Path, tmp_path: Path) -> str:
    (tmp_path / "manifest.json").write_text(json.dumps(manifest.to_json()))
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path / "manifest.json"), str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_c_kernel_loads_in_a_fresh_process_without_a_framework(artifact, tmp_path) -> None:
    assert run_fresh(*artifact, tmp_path) == "fine []"


@pytest.mark.parametrize(
    "recipe", [EAGER, {"library": "onnxruntime", "call": "session"}], ids=["torch", "onnxruntime"]
)
def test_recipe_loads_in_a_fresh_process(recipe: dict, tmp_path: Path) -> None:
    assert run_fresh(recipe_manifest(recipe), tmp_path, tmp_path).startswith("fine")


def test_a_package_is_not_squeezed_into_fewer_threads_than_it_was_built_for(tmp_path: Path) -> None:
    package = replace(recipe_manifest({}), kind="package", setting=Setting(threads=4).to_json())
    with pytest.raises(LoadError, match="built for 4 threads, and here are 2"):
        load(package, tmp_path, threads=2)
    for enough in (None, 4, 6):
        with pytest.raises(LoadError) as refused:
            load(package, tmp_path, threads=enough)
        assert "threads" not in str(refused.value), "what is wrong with it is something else"


def test_tampered_byte_is_refused(artifact, tmp_path) -> None:
    manifest, folder = artifact
    content = bytearray((folder / "kernel.so").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kernel.so").write_bytes(content)
    with pytest.raises(LoadError, match=r"kernel\.so has SHA-256 .*, the manifest says"):
        load(manifest, tmp_path)


def test_file_swapped_after_the_check_is_not_what_is_loaded(artifact, tmp_path, monkeypatch) -> None:
    manifest, folder = artifact
    (tmp_path / "kernel.so").write_bytes((folder / "kernel.so").read_bytes())
    from opatlas.load import loader

    def swap_then_check(needs) -> None:
        (tmp_path / "kernel.so").write_bytes(b"not a library any more")

    monkeypatch.setattr(loader, "check_versions", swap_then_check)
    kernel = load(manifest, tmp_path)
    x = np.ones(1000, np.float32)
    bound = kernel.bind({0: x, 1: x})
    bound()
    assert (bound.outputs()[0] == 2).all()


@pytest.mark.parametrize(
    "name",
    [
        "../kernel.so",
        "/etc/passwd",
        "a/b.so",
        ".hidden.so",
        "",
        "..",
        "kernel\0.so",
        "-x.so",
        "ü.so",
        "a" * 200,
    ],
)
def test_path_tricks_are_refused(artifact, name: str) -> None:
    manifest, folder = artifact
    (digest,) = manifest.files.values()
    with pytest.raises(LoadError, match="is not plain"):
        load(replace(manifest, files={name: digest}), folder)


def test_symbolic_link_is_refused(artifact, tmp_path) -> None:
    manifest, folder = artifact
    (tmp_path / "kernel.so").symlink_to(folder / "kernel.so")
    with pytest.raises(LoadError, match=r"kernel\.so cannot be read"):
        load(manifest, tmp_path)


def test_missing_file_is_refused(artifact, tmp_path) -> None:
    with pytest.raises(LoadError, match=r"kernel\.so cannot be read: No such file"):
        load(artifact[0], tmp_path)


def test_missing_cpu_feature_is_refused(artifact) -> None:
    manifest, folder = artifact
    with pytest.raises(LoadError, match="lacks: avx9000"):
        load(replace(manifest, features=("avx9000",)), folder)


def test_features_of_this_machine_are_accepted(artifact) -> None:
    from opatlas.identity import detect_target

    manifest, folder = artifact
    load(replace(manifest, features=detect_target().features), folder).close()


@pytest.mark.parametrize(
    ("needs", "sentence"),
    [
        ({"numpy": "1.0.0"}, r"needs numpy 1\.0\.0, but .* is installed"),
        ({"no-such-distribution": "1"}, "needs no-such-distribution 1, which is not installed"),
    ],
)
def test_wrong_version_is_refused(artifact, needs: dict, sentence: str) -> None:
    manifest, folder = artifact
    with pytest.raises(LoadError, match=sentence):
        load(replace(manifest, needs=needs), folder)


def test_build_label_counts_only_where_asked_for(monkeypatch) -> None:
    from opatlas.load import needs

    monkeypatch.setattr(needs.importlib.metadata, "version", lambda name: "2.13.0+cpu")
    needs.check_versions({"torch": "2.13.0"})
    needs.check_versions({"torch": "2.13.0+cpu"})
    with pytest.raises(LoadError):
        needs.check_versions({"torch": "2.13.0+cu130"})
    with pytest.raises(LoadError):
        needs.check_versions({"torch": "2.13"})


def test_unknown_kind_is_refused(artifact) -> None:
    manifest, folder = artifact
    with pytest.raises(LoadError, match="artifact kind 'pickle' is unknown"):
        load(replace(manifest, kind="pickle"), folder)  # type: ignore[arg-type]


@pytest.mark.parametrize("alignment", [0, 48, 1 << 20])
def test_odd_alignment_is_refused(artifact, alignment: int) -> None:
    manifest, folder = artifact
    with pytest.raises(LoadError, match="power of two"):
        load(replace(manifest, alignment=alignment), folder)


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        (None, "states its call"),
        ({"library": "os", "call": "system"}, "not on the list"),
        ({"library": "torch", "call": "load"}, "not on the list"),
        ({**EAGER, "stream": 1}, "has no parameter 'stream'"),
        ({**EAGER, "layout": "sideways"}, "'sideways'; it can be contiguous, channels_last"),
        ({**EAGER, "onednn": 1}, "it can be True, False"),
        ({**EAGER, "threads": 0}, "a number from 1 to 1024"),
        ({**EAGER, "threads": "2"}, "a number from 1 to 1024"),
        ({**EAGER, "threads": True}, "a number from 1 to 1024"),
    ],
)
def test_recipe_off_the_list_is_refused(recipe, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=sentence):
        load(recipe_manifest(recipe), tmp_path)


def test_recipe_with_files_is_refused(artifact) -> None:
    manifest, folder = artifact
    with pytest.raises(LoadError, match="a recipe has no files"):
        load(recipe_manifest(EAGER, files=manifest.files), folder)


def test_library_without_the_entry_is_refused(tmp_path) -> None:
    manifest = build(tmp_path, "int something_else(void) { return 0; }", add_operator())
    with pytest.raises(LoadError, match="does not export opatlas_run"):
        load(manifest, tmp_path)


def test_file_that_is_no_library_is_refused(tmp_path) -> None:
    import hashlib

    (tmp_path / "kernel.so").write_bytes(b"#!/bin/sh\n")
    manifest = build_manifest_of(tmp_path, hashlib.sha256(b"#!/bin/sh\n").hexdigest())
    with pytest.raises(LoadError, match=r"library kernel\.so cannot be loaded"):
        load(manifest, tmp_path)


def build_manifest_of(folder: Path, digest: str) -> Manifest:
    return Manifest(
        kind="c-abi",
        route="cpp",
        operator=add_operator().to_json(),
        setting=Setting(threads=1).to_json(),
        files={"kernel.so": digest},
    )


def test_two_libraries_are_refused(artifact, tmp_path) -> None:
    manifest, folder = artifact
    for name in ("a.so", "b.so"):
        (tmp_path / name).write_bytes((folder / "kernel.so").read_bytes())
    (digest,) = manifest.files.values()
    with pytest.raises(LoadError, match=r"exactly one \.so file"):
        load(replace(manifest, files={"a.so": digest, "b.so": digest}), tmp_path)
