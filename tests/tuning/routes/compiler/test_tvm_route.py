"""What the TVM route says about itself without importing TVM, and how it behaves in a forked child."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from opatlas.identity import Setting, llvm_target
from tests.tuning.routes.compiler.tvm_cases import ROUTE, TARGET, const, lying, one, typed
from tuning.routes.base import No
from tuning.routes.compiler.tvm.machine import used_features
from tuning.routes.registry import ROUTES


def test_it_is_registered() -> None:
    assert "tvm" in [route.name for route in ROUTES]


def test_another_ffi_version_makes_it_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(
        metadata, "version", lambda name: "0.1.15.post2" if name == "apache-tvm-ffi" else real(name)
    )
    answer = ROUTE.available(TARGET)
    assert isinstance(answer, No)
    assert "apache-tvm-ffi 0.1.14.post1" in answer.reason and "0.1.15.post2" in answer.reason


def test_it_is_unavailable_where_tvm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert not ROUTE.available(TARGET)
    assert ROUTE.versions() == {}


def test_it_compiles_for_x86_only() -> None:
    assert not ROUTE.available(replace(TARGET, isa="aarch64"))


def test_it_says_why_it_cannot() -> None:
    setting = Setting()
    assert ROUTE.supports(one("Relu", lying((4, 6), 1, 4)), setting)
    unknown = one("TopK", (4, 9), {"shape": [1], "dtype": "int64", "data": [3]})
    assert "TopK" in ROUTE.supports(unknown, setting).reason  # type: ignore[union-attr]


def test_asking_imports_no_tvm() -> None:
    code = (
        "import sys\n"
        "from opatlas.identity import Setting, detect_target, parse_operator\n"
        "from tuning.routes.base import Budget\n"
        "from tuning.routes.registry import route\n"
        "values = [{'shape': [4], 'dtype': 'float32'}]\n"
        "operator = parse_operator({'op': 'Relu', 'attrs': {}, 'inputs': values})\n"
        "tvm, target = route('tvm'), detect_target()\n"
        "tvm.available(target), tvm.supports(operator, Setting()), tvm.versions()\n"
        "list(tvm.candidates(operator, target, Setting(), Budget(1)))\n"
        "assert 'tvm' not in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


def test_features_come_from_the_raw_set() -> None:
    poor = replace(TARGET, features=("avx", "avx2", "fma", "sse2", "fpu"))
    assert "fpu" not in used_features(poor)
    assert {"avx2", "fma"} <= set(used_features(poor))
    assert "-avx512f" in llvm_target(poor)[1]


_FORK = """
import os, sys
from pathlib import Path
from tuning.routes.compiler.tvm.route import warm
warm()
assert "torch" not in sys.modules, "the zygote carries PyTorch"
threads = [open(f"/proc/self/task/{t}/comm").read().strip() for t in os.listdir("/proc/self/task")]
assert len(threads) == 1, threads
from opatlas.identity import Setting, detect_target, parse_operator
from tuning.routes.base import Budget
from tuning.routes.compiler.tvm import TvmRoute
route, target, setting = TvmRoute(), detect_target(), Setting(threads=2)
operator = parse_operator({"op": "Softmax", "attrs": {}, "inputs": [{"shape": [64, 96], "dtype": "float32"}]})
candidate = next(iter(route.candidates(operator, target, setting, Budget(1))))
for number in range(3):
    child = os.fork()
    if child == 0:
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        route.build(operator, target, setting, candidate, folder)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not ROUTE.available(TARGET), reason="TVM is not installed as pinned")
def test_children_forked_after_warming_can_compile(tmp_path: Path) -> None:
    environment = {"OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    subprocess.run(
        [sys.executable, "-c", _FORK, str(tmp_path)],
        check=True,
        env=environment,
        cwd=Path(__file__).parents[4],
        timeout=240,
    )
    assert {path.name for path in tmp_path.glob("*/kernel.so")} == {"kernel.so"}


def test_values_of_a_half_type_are_supported() -> None:
    operator = one("MatMul", typed("float16", 4, 8), const(8, 4, dtype="float16"))
    assert ROUTE.supports(operator, Setting())
