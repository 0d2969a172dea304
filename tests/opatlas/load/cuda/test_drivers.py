"""The ways to the CUDA driver, each with its own code, over a stand-in for the driver's library: no GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from opatlas.load.cuda.driver import DRIVERS
from opatlas.load.toolchain import compile_shared
from tests.opatlas.load.cuda.driver_checks import CHECKS
from tuning.routes.cuda_headers import toolkit

SOURCE = Path(__file__).with_name("libcuda.c")
PACKAGES = {"pycuda": "pycuda", "cuda-bindings": "cuda.bindings"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``libcuda.so.1``."""
    if (of_cuda := toolkit()) is None:
        pytest.skip("CUDA's headers are not installed")
    folder, include = tmp_path_factory.mktemp("libcuda"), f"-I{of_cuda / 'include'}"
    compile_shared([SOURCE], folder / "libcuda.so.1", flags=[include])
    if built := importlib.util.find_spec("pycuda"):
        # PyCUDA wants every function that it knows to be there, called or not.
        assert built.origin
        others = folder / "others.c"
        there = symbols(folder / "libcuda.so.1", "--defined-only")
        wanted = symbols(next(Path(built.origin).parent.glob("_driver*.so")), "--undefined-only")
        others.write_text("".join(f"int {name}() {{ return 801; }}\n" for name in sorted(wanted - there)))
        compile_shared([SOURCE, others], folder / "libcuda.so.1", flags=[include])
    return folder


def symbols(file: Path, which: str) -> set[str]:
    said = subprocess.run(["nm", "-D", which, str(file)], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\b(cu[A-Z]\w+)", said))


@pytest.fixture(scope="module", params=DRIVERS, ids=[distribution for distribution, *_ in DRIVERS])
def said(library: Path, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """What each check says of one way, all in one process, which then ends as any."""
    distribution, *way = request.param
    pytest.importorskip(PACKAGES[distribution], reason=f"{distribution} is not installed")
    return dict(json.loads(line) for line in over(library, "tests.opatlas.load.cuda.driver_checks", *way))


def over(library: Path, *module: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", *module],
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_a_driver_does_what_it_says(said: Mapping[str, str], check: str) -> None:
    assert said[check] == ""


COMPILED = """
import sys
from pycuda.compiler import compile
from tests.opatlas.load.cuda.driver_checks import SOURCE
open(sys.argv[1], "wb").write(compile(SOURCE, arch="sm_90", no_extern_c=True, cache_dir=False))
"""
"""For a device that need not be here; what is compiled is loaded where one is (tests/gpu/test_device.py)."""


def test_pycuda_compiles(library: Path, tmp_path: Path) -> None:
    pytest.importorskip("pycuda", reason="pycuda is not installed")
    if shutil.which("nvcc") is None:
        pytest.skip("PyCUDA compiles by nvcc, which is not installed")
    image = tmp_path / "twice.cubin"
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, str(image)],
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert image.read_bytes()[:4] == b"\x7fELF"
    assert {b"twice", b"beyond"} <= set(re.findall(rb"\b(twice|beyond)\b", image.read_bytes()))
