"""Device code is compiled without a GPU, for every architecture that we name; launch plans follow shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, Target, detect_target, parse_operator
from opatlas.load.cuda.plan import LaunchPlan
from tests.catalog.making import GPU
from tests.configuring import configured
from tuning.measure.laboratory import Laboratory
from tuning.measure.observing.device_code import looked_at
from tuning.measure.observing.inspecting import Inspection
from tuning.routes import cuda_headers
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No, RouteError
from tuning.routes.manual.cuda import CudaRoute
from tuning.routes.manual.header import CUDA, header, whole_numbers
from tuning.routes.manual.launch_template import InvalidLaunch, fill
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.nvrtc import OF_CUDA, compile_device_code
from tuning.routes.manual.own import EXAMPLES, is_own, proof_of
from tuning.routes.manual.submitted import SubmittedKernel

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")


def as_it_ships(path: Path) -> SubmittedKernel:
    document = json.loads(path.read_text())
    source = path.with_name(document["file"]).read_text()
    pattern, launch = parse_pattern(document["pattern"]), document["launch"]
    return SubmittedKernel(0, document["name"], 1, "cuda", source, (), pattern, launch)


KERNELS = {path.stem: as_it_ships(path) for path in sorted((EXAMPLES / "cuda").glob("*.json"))}
ROUTE = CudaRoute(KERNELS.values())
SETTING = Setting()


def tensor(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


SILU = {
    "inputs": [tensor(3, 1001)],
    "nodes": [
        {"op": "Sigmoid", "inputs": [0], "outputs": [1]},
        {"op": "Mul", "inputs": [0, 1], "outputs": [2]},
    ],
    "outputs": [2],
}
SERVED = {
    "softmax-cuda": [
        {"op": "Softmax", "attrs": {"axis": -1}, "inputs": [tensor(4, 12, 128, 128)]},
        {"op": "Softmax", "attrs": {"axis": 1}, "inputs": [tensor(7, 8191)]},
    ],
    "rms-norm-cuda": [
        {"op": "RMSNormalization", "inputs": [tensor(2, 16, 4096), tensor(4096, const=True)]},
    ],
    "skinny-product-cuda": [
        {"op": "MatMul", "inputs": [tensor(1, 4096), tensor(4096, 4096, const=True)]},
        {"op": "MatMul", "inputs": [tensor(8, 33), tensor(33, 1001)]},
    ],
    "silu-cuda": [SILU],
}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_what_ships_compiles_without_a_gpu(name: str, arch: str, tmp_path: Path) -> None:
    target = Target.from_json({**GPU.to_json(), "arch": arch})
    for number, document in enumerate(SERVED[name]):
        operator = parse_operator(document)
        (candidate,) = CudaRoute([KERNELS[name]]).candidates(operator, target, SETTING, Budget(1.0))
        folder = tmp_path / str(number)
        folder.mkdir()
        built = ROUTE.build(operator, target, SETTING, candidate, folder)
        plan = LaunchPlan.from_json(built.manifest.launch, operator)
        plan.check_device(arch, 13000)
        assert (folder / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
        assert f".target {arch}" in built.schedule
        (used,) = built.facts["functions"].values()
        assert used["spilled_bytes"] == used["stack_bytes"] == 0
        assert 0 < used["registers"] <= 128
        (shown,) = looked_at(built)[0]["device"].values()
        assert 50 <= shown["occupancy_percent"] <= 100


def test_shared_memory_of_a_block_is_told() -> None:
    source = """extern "C" __global__ void f(float* y) {
        __shared__ float x[1024]; x[threadIdx.x] = y[threadIdx.x]; __syncthreads();
        y[threadIdx.x] = x[1023 - threadIdx.x]; }"""
    assert compile_device_code(source, {}, "sm_90").functions["f"]["shared_bytes"] == 4096


@pytest.mark.parametrize("header_of_cuda", OF_CUDA)
def test_cudas_own_headers_are_there(header_of_cuda: str) -> None:
    source = f'#include <{header_of_cuda}>\nextern "C" __global__ void f(float* y) {{ y[0] = 1; }}'
    assert compile_device_code(source, {}, "sm_90").functions["f"]["registers"] > 0


def test_a_plan_follows_the_shapes() -> None:
    operator = parse_operator(SERVED["skinny-product-cuda"][1])
    names = whole_numbers(header(operator, SETTING, CUDA))
    plan = fill(KERNELS["skinny-product-cuda"].launch, names, operator, "kernel.cubin", "sm_90")
    (launch,) = plan.run
    assert (launch.grid, launch.block, launch.shared_bytes) == ((8, 1, 1), (32, 8, 1), 0)


def launch(**changes: Any) -> dict[str, Any]:
    return {"run": [{"function": "f", "grid": [1, 1, 1], "block": [1, 1, 1], "arguments": [], **changes}]}


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("7", 7),
        ("A", 40),
        ("ceil(A, 16)", 3),
        ("min(A, B) * 2 - 1", 13),
        ("-A // -8", 5),
        ("max(A % 7, B)", 7),
    ],
)
def test_what_an_expression_may_say(expression: str, number: int) -> None:
    operator = parse_operator(SERVED["softmax-cuda"][0])
    plan = fill(launch(grid=[expression, 1, 1]), {"A": 40, "B": 7}, operator, "kernel.cubin", "sm_90")
    assert plan.run[0].grid[0] == number


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ([], "launch is an object with 'run'"),
        ({"prepare": []}, "launch is an object with 'run'"),
        ({**launch(), "module": "x"}, "launch is an object with 'run'"),
        (launch(grid=["C", 1, 1]), r"launch.run\[0\].grid\[0\]: 'C' is no number here: there is no macro C"),
        (launch(grid=["A / 2", 1, 1]), "only .* of whole numbers"),
        (launch(grid=["A.real", 1, 1]), "only .* of whole numbers"),
        (launch(grid=["__import__('os')", 1, 1]), "only .* of whole numbers"),
        (launch(grid=["A // 0", 1, 1]), "is no number here: "),
        (launch(grid=["ceil(A)", 1, 1]), "is no number here: "),
        (launch(grid=["min()", 1, 1]), "is no number here: "),
        (launch(grid=["9" * 100, 1, 1]), "it is too large"),
        (launch(grid=["A" + "*A" * 99, 1, 1]), "more than 200 characters|it is too large"),
        (launch(grid=["1 +", 1, 1]), "is no number here: "),
        (launch(grid=["(" * 100, 1, 1]), "is no number here: "),
        (launch(grid=[0, 1, 1]), "from 1 to 2147483647"),
        (launch(more=1), "is an object with exactly function"),
    ],
)
def test_what_cannot_be_filled_in_says_where(template: Any, sentence: str) -> None:
    operator = parse_operator(SERVED["softmax-cuda"][0])
    with pytest.raises((InvalidLaunch, LoadError), match=sentence):
        fill(template, {"A": 40, "B": 7}, operator, "kernel.cubin", "sm_90")


@pytest.mark.parametrize(
    ("source", "changes", "sentence"),
    [
        ("int x = ;", {}, "does not compile: kernel.cu"),
        ('#include "/etc/passwd"\n', {}, 'only "opatlas_operator.h", <cuda_fp16.h>'),
        ("%: /* */ include \\\n <vector>\n", {}, "it includes <vector>: only"),
        ("", {}, "names f, which the source does not define"),
        ('extern "C" __global__ void f() {}', {"flags": ["-I/etc"]}, "The flag '-I/etc' is not allowed"),
    ],
)
def test_what_does_not_build_says_why(
    source: str, changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    operator = parse_operator(SERVED["softmax-cuda"][0])
    pattern = KERNELS["softmax-cuda"].pattern
    kernel = SubmittedKernel(0, "one", 1, "cuda", source, (), pattern, launch())
    candidate = Candidate("cuda", {**kernel.candidate().parameters, **changes}, "one")
    with pytest.raises(RouteError, match=sentence):
        ROUTE.build(operator, GPU, SETTING, candidate, tmp_path)


def test_it_is_for_gpus_and_for_what_matches() -> None:
    assert isinstance(ROUTE.available(detect_target()), No)
    assert ROUTE.available(GPU)
    assert ROUTE.supports(parse_operator(SERVED["silu-cuda"][0]), SETTING)
    assert not ROUTE.supports(parse_operator({"op": "Relu", "inputs": [tensor(8)]}), SETTING)


def test_our_own_proof_compiles_in_the_sandbox_and_is_known_as_ours(tmp_path: Path) -> None:
    parameters = proof_of("cuda")
    assert is_own(parameters["source"])
    assert all(is_own(kernel.source) for kernel in KERNELS.values())
    operator = parse_operator({"op": "Relu", "inputs": [tensor(8, 16)]})
    with configured(lock=tmp_path / "lock"), Laboratory(tmp_path / "lab", GPU) as lab:
        built = lab.build(ROUTE, operator, SETTING, Candidate("cuda", parameters, "proof"), tmp_path / "work")
    assert isinstance(built, BuiltArtifact), built
    assert built.manifest.provenance is not None
    assert LaunchPlan.from_json(built.manifest.launch, operator).run[0].grid == (1, 1, 1)
    assert "nothing of it runs on the host" in str(Inspection(*looked_at(built)).risks)


def test_what_stands_out_in_device_code_is_a_risk_line(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void f(float* y) { y[0] = (float)clock64(); printf("%d", 1); }'
    kernel = SubmittedKernel(
        0, "one", 1, "cuda", source, (), KERNELS["softmax-cuda"].pattern,
        launch(arguments=[{"output": 0}]),
    )  # fmt: skip
    operator = parse_operator(SERVED["softmax-cuda"][0])
    built = ROUTE.build(operator, GPU, SETTING, kernel.candidate(), tmp_path)
    lines = {line["text"]: line["severity"] for line in Inspection(*looked_at(built)).risks}
    assert any("clock" in text for text, severity in lines.items() if severity == "serious")
    assert any("vprintf" in text or "prints" in text for text in lines)


def test_cudas_headers_are_found_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have PyTorch's packages, of which none brings ``nv/target``, and a toolkit that does."""
    packages, of_nvcc = tmp_path / "packages", tmp_path / "cuda"
    for folder, names in ((packages, ["cuda_fp16.h", "cuda.h"]), (of_nvcc, ["nv/target", "cuda_fp16.h"])):
        for name in names:
            (folder / "include" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "include" / name).touch()
    monkeypatch.setattr(cuda_headers, "_folders", lambda: iter([packages, of_nvcc]))
    assert cuda_headers.include_folders() == [packages / "include", of_nvcc / "include"]
    assert cuda_headers.toolkit() is None
    (packages / "include/cuda_runtime_api.h").touch()
    assert cuda_headers.toolkit() is None, "what it includes is in a package of its own"
    (packages / "include/crt").mkdir()
    (packages / "include/crt/host_defines.h").touch()
    assert cuda_headers.toolkit() == packages
    (of_nvcc / "include/nv/target").unlink()
    assert cuda_headers.include_folders() == []
