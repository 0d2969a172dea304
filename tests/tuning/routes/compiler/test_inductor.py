"""The Inductor route: what it says of itself, and packages built for real and loaded in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, detect_target, parse_operator
from opatlas.load import load
from tests import by_day
from tests.opatlas.load.operators import Case, expected, operator_of
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No, RouteError
from tuning.routes.compiler.inductor import InductorRoute
from tuning.routes.compiler.inductor import compile as compiling
from tuning.routes.compiler.inductor.baseline import TorchCompile
from tuning.routes.compiler.inductor.cxx import used_features, vector_bits
from tuning.routes.compiler.inductor.route import TEMPLATES
from tuning.routes.registry import ROUTES

ROOT = Path(__file__).parents[4]
ROUTE, TARGET, SETTING = InductorRoute(), detect_target(), Setting(threads=2)
PLAIN = Candidate("inductor", {}, "ahead of time")
PACKED = Candidate("inductor", {"options": TEMPLATES}, "C++ GEMM templates")
compiles = pytest.mark.skipif(not ROUTE.available(TARGET), reason="Inductor does not work here")
pytestmark = pytest.mark.group("inductor")  # its first graph in a process takes as long as ten more
Build = Callable[[Operator, Candidate], BuiltArtifact]


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


PRODUCT = Case("MatMul", [numbers(70, 100), numbers(100, 200, seed=1)], fixed=(1,))


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build in this process; headers are precompiled once for all tests."""
    folder = tmp_path_factory.mktemp("inductor")
    made: dict[tuple[str, str], BuiltArtifact] = {}

    def run(operator: Operator, candidate: Candidate = PLAIN) -> BuiltArtifact:
        key = (operator.key, candidate.label)
        if key not in made:
            workdir = folder / str(len(made))
            workdir.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(workdir))
                patch.setattr(compiling, "_headers", folder / "headers")
                made[key] = ROUTE.build(operator, TARGET, SETTING, candidate, workdir)
        return made[key]

    return run


def results(artifact: BuiltArtifact, operator: Operator, inputs: dict[int, np.ndarray]) -> list[np.ndarray]:
    kernel = load(artifact.manifest, artifact.folder)
    kernel.prepare({number: inputs[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: inputs[number] for number in operator.runtime_inputs})
    bound()
    return [output.copy() for output in bound.outputs()]


def test_it_is_registered_and_its_baseline_is_not() -> None:
    names = [route.name for route in ROUTES]
    assert "inductor" in names and TorchCompile.name not in names


def test_asking_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from opatlas.identity import Setting, detect_target, parse_operator\n"
        "from tuning.routes.base import Budget\n"
        "from tuning.routes.registry import route\n"
        "values = [{'shape': [4, 8], 'dtype': 'float32'}]\n"
        "values.append({'shape': [8, 4], 'dtype': 'float32', 'const': True})\n"
        "operator = parse_operator({'op': 'MatMul', 'inputs': values})\n"
        "inductor, target = route('inductor'), detect_target()\n"
        "assert inductor.supports(operator, Setting()) and inductor.versions()\n"
        "inductor.available(target)\n"
        "assert len(list(inductor.candidates(operator, target, Setting(), Budget(1)))) == 2\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_it_says_why_it_is_not_available(monkeypatch: pytest.MonkeyPatch, configure: Any) -> None:
    assert "aarch64" in ROUTE.available(replace(TARGET, isa="aarch64")).reason  # type: ignore[union-attr]
    monkeypatch.setenv("PATH", "/nowhere")
    configure(cxx="")
    for route in (ROUTE, TorchCompile()):
        answer = route.available(TARGET)
        assert isinstance(answer, No) and "C++ compiler" in answer.reason


def test_vectors_come_from_the_features() -> None:
    assert vector_bits(replace(TARGET, features=("avx", "sse2"))) == 0
    assert vector_bits(replace(TARGET, features=("avx2", "fma", "f16c", "fpu"))) == 256
    assert used_features(replace(TARGET, features=("avx2", "fma", "fpu"))) == ("avx2", "fma")


def test_templates_are_for_products_with_something_to_pack() -> None:
    values = [{"shape": [4, 8], "dtype": "float32"}, {"shape": [8, 4], "dtype": "float32"}]
    runtime = parse_operator({"op": "MatMul", "inputs": values})
    assert [one.label for one in ROUTE.candidates(runtime, TARGET, SETTING, Budget(1))] == [PLAIN.label]


CASES = [
    Case("Softmax", [numbers(32, 200)]),
    Case("LayerNormalization", [numbers(16, 200), numbers(200, seed=1), numbers(200, seed=2)], fixed=(1, 2)),
    Case("Conv", [numbers(1, 8, 14, 14), numbers(8, 8, 3, 3), numbers(8)], {"pads": [1] * 4}, fixed=(1, 2)),
    Case("MatMul", [numbers(24, 32), numbers(32, 48)], strides={0: (1, 24)}),
    Case("Det", [numbers(4, 5, 5)]),  # has no C function of its own: called by its description
]


@pytest.mark.nightly
@pytest.mark.slow
@compiles
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_packages_compute_what_onnx_says(case: Case, build: Build) -> None:
    operator, inputs = operator_of(case)
    artifact = build(operator, PLAIN)
    [output] = results(artifact, operator, inputs)
    np.testing.assert_allclose(output, expected(case)[0], rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@compiles
@pytest.mark.parametrize("candidate", by_day.only([PACKED], [PLAIN, PACKED]), ids=["plain", "packed"])
def test_a_package_serves_any_weights(candidate: Candidate, build: Build) -> None:
    operator, inputs = operator_of(PRODUCT)
    artifact = build(operator, candidate)
    assert ("packed.json" in artifact.manifest.files) == (candidate is PACKED)
    [number] = operator.constant_inputs
    [runtime] = operator.runtime_inputs
    kernel = load(artifact.manifest, artifact.folder)
    for seed in (5, 6):
        weights = numbers(100, 200, seed=seed)
        kernel.prepare({number: weights})
        bound = kernel.bind({runtime: inputs[runtime]})
        bound()
        np.testing.assert_allclose(bound.outputs()[0], inputs[runtime] @ weights, rtol=1e-3, atol=1e-3)
    assert (artifact.folder / "kernel.pt2").stat().st_size < 4 << 20
    assert artifact.manifest.kind == "package" and artifact.manifest.needs["torch"]
    assert "run_impl" in artifact.source and str(Path.cwd()) not in artifact.source
    assert json.loads(artifact.schedule)["options"]["cpp.threads"] == SETTING.threads
    assert artifact.facts["compile_s"] > 0


@pytest.mark.nightly
@pytest.mark.slow
@compiles
def test_small_constants_are_not_written_into_the_code(build: Build) -> None:
    """A scale of one number, a bias of eight: Inductor would take them for literals."""
    case = Case("BatchNormalization", [numbers(2, 8, 5), *(abs(numbers(8, seed=n)) for n in (1, 2, 3, 4))],
                fixed=(1, 2, 3, 4))  # fmt: skip
    operator, inputs = operator_of(case)
    [output] = results(build(operator, PLAIN), operator, inputs)
    np.testing.assert_allclose(output, expected(case)[0], rtol=2e-4, atol=2e-4)
    scalar = parse_operator(
        {
            "op": "Mul",
            "inputs": [
                {"dtype": "float32", "shape": [6]},
                {"dtype": "float32", "shape": [], "const": True},
            ],
        }
    )
    [runtime], [const] = scalar.runtime_inputs, scalar.constant_inputs
    values = {runtime: numbers(6), const: np.array(3.0, np.float32)}
    [output] = results(build(scalar, PLAIN), scalar, values)
    np.testing.assert_allclose(output, values[runtime] * 3, rtol=1e-6)


_FRESH = """
import json, sys
from pathlib import Path
import numpy as np
from opatlas.load import Manifest, load
folder = Path(sys.argv[1])
kernel = load(Manifest.from_json(json.loads((folder / "manifest.json").read_text())), folder)
x, w = np.ones((70, 100), np.float32), np.full((100, 200), 0.5, np.float32)
kernel.prepare({1: w})
bound = kernel.bind({0: x})
bound()
assert (bound.outputs()[0] == 50).all()
x[:] = 2
bound.poison()
bound()
assert (bound.outputs()[0] == 100).all()
assert "torch._inductor.compile_fx" not in sys.modules and "tuning" not in sys.modules
"""


@pytest.mark.slow
@compiles
def test_a_fresh_process_loads_it_without_the_compiler(build: Build) -> None:
    operator, _ = operator_of(PRODUCT)
    artifact = build(operator, PACKED)
    (artifact.folder / "manifest.json").write_text(json.dumps(artifact.manifest.to_json()))
    command = [sys.executable, "-c", _FRESH, str(artifact.folder)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=240)


@pytest.mark.slow
@compiles
def test_what_is_not_as_it_was_made_is_refused(build: Build, tmp_path: Path) -> None:
    operator, _ = operator_of(PRODUCT)
    artifact = build(operator, PACKED)
    manifest = artifact.manifest
    with pytest.raises(LoadError, match=r"needs torch 2\.12\.0, but 2\."):
        load(replace(manifest, needs={"torch": "2.12.0"}), artifact.folder)
    with pytest.raises(LoadError, match="states the exact torch"):
        load(replace(manifest, needs={}), artifact.folder)
    content = bytearray((artifact.folder / "kernel.pt2").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kernel.pt2").write_bytes(content)
    with pytest.raises(LoadError, match="SHA-256"):
        load(manifest, tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
@compiles
def test_a_graph_without_a_product_has_no_template(build: Build) -> None:
    operator, _ = operator_of(Case("Relu", [numbers(4, 8)]))
    with pytest.raises(RouteError, match="no GEMM template"):
        build(operator, PACKED)
