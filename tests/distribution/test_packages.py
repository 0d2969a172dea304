"""opatlas as ``make`` installs it, and as ``make dist`` packs it for a job's machine."""

from __future__ import annotations

import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.databases import ROOT
from tests.distribution.tree import copy_tree, make, new_environment, run

pytestmark = pytest.mark.group("distribution")  # one tree for all
WHERE = "import opatlas.client; print(opatlas.client.__file__)"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_tree(tmp_path_factory.mktemp("tree"))
    make(folder, ".venv/opatlas.stamp")
    return folder


@pytest.fixture(scope="module")
def dist(tree: Path) -> Path:
    (tree / ".venv" / "dev.stamp").touch()
    said = make(tree, "dist")
    assert said.count("PASSED") == 2, said  # twine check, of the wheel and of the sdist
    return tree / "dist"


def test_the_environment_that_make_sets_up_has_this_trees_opatlas_from_any_folder(
    tree: Path, tmp_path: Path
) -> None:
    python = str(tree / ".venv/bin/python")
    assert run([python, "-c", WHERE], tmp_path).strip() == str(tree / "opatlas/client/__init__.py")
    # … and nothing else of the tree, which has packages named `tests` and `docs` too.
    assert "None" in run(
        [python, "-c", "from importlib.util import find_spec as f; print(f('tests'))"], tmp_path
    )
    # A folder that has an opatlas of its own is asked first: another checkout's tests see their own code.
    (tmp_path / "opatlas").mkdir()
    (tmp_path / "opatlas/__init__.py").touch()
    assert str(tmp_path) in run([python, "-c", "import opatlas; print(opatlas.__file__)"], tmp_path)


@pytest.mark.parametrize("target", ["run", "test", "dist"])
def test_what_people_call_sets_that_up(tree: Path, target: str) -> None:
    assert "--editable ." in make(tree, "--dry-run", "--what-if=pyproject.toml", target)


def test_the_wheel_has_the_sources_that_loading_compiles_and_types_and_works_by_itself(
    dist: Path, tmp_path: Path
) -> None:
    [wheel] = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        [points] = [name for name in packed if name.endswith(".dist-info/entry_points.txt")]
        assert b"[torch_dynamo_backends]\nopatlas = opatlas.dynamo.backend:opatlas" in archive.read(points)
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "opatlas").rglob("*")
        if path.suffix in (".py", ".c", ".h", ".json")
    }
    assert {name for name in packed if name.startswith("opatlas/")} == {*sources, "opatlas/py.typed"}
    assert {
        "opatlas/load/pool.c",
        "opatlas/load/opatlas_abi.h",
        "opatlas/inside/inside.c",
        "opatlas/inside/ort.h",
    } <= sources
    assert any(name.endswith("licenses/LICENSE") for name in packed)

    python = new_environment(tmp_path / "job")
    run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], tmp_path)
    assert run([str(python), "-c", WHERE], tmp_path).startswith(str(tmp_path / "job"))


def test_the_sdist_has_the_library_and_nothing_of_the_service(dist: Path) -> None:
    [sdist] = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "opatlas/py.typed", "opatlas/load/pool.c"} <= packed
    assert {name.partition("/")[0] for name in packed if "/" in name} == {"opatlas", "opatlas.egg-info"}


def test_every_python_that_is_named_is_one_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python ::" in line]
    assert project["requires-python"] == f">={named[0]}"
