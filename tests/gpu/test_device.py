"""What only a GPU can show: the driver by every way to it, routes that build and compute, a fault."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opatlas.identity import Setting, Target
from opatlas.identity.place.cuda import READERS, CudaAttributes
from opatlas.load.cuda.driver import DRIVERS
from tests.opatlas.load.cuda import driver_checks
from tests.opatlas.load.cuda.test_drivers import COMPILED
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.measure.proving import operator_of, prove
from tuning.routes import registry
from tuning.routes.base import Budget, Candidate
from tuning.routes.manual.nvrtc import compile_device_code
from tuning.routes.manual.own import proof_of

pytestmark = pytest.mark.gpu

ASK = """
import json, sys
from dataclasses import asdict
from opatlas.identity.place import cuda
print(json.dumps([asdict(one) for one in getattr(cuda, sys.argv[1])()]))
"""
IN_PLACE = """
import json, sys
import torch
from opatlas.client.loading.function import KernelFunction
from opatlas.identity import Setting, parse_operator
from opatlas.load import Manifest
from opatlas.load.recipe import load_recipe
value = {"shape": [256, 256], "dtype": "float32"}
operator = parse_operator({"op": "MatMul", "inputs": [value, value]})
recipe = {**json.loads(sys.argv[1]), "device": "cuda"}
manifest = Manifest("recipe", "test", operator.to_json(), Setting().to_json(), recipe=recipe)
function = KernelFunction(operator, manifest, kernel=load_recipe(manifest, {}))
a, b = (torch.randn(256, 256, device="cuda") for _ in range(2))
wanted = (a.double() @ b.double()).float()
torch.cuda.synchronize()
for stream in (None, torch.cuda.Stream()):
    made = function(a, b, stream=stream)
    torch.cuda.synchronize()
    assert made.is_cuda and torch.allclose(made, wanted, atol=1e-3), stream
given = torch.empty_like(wanted)
function.bind([a, b], [given])()
torch.cuda.synchronize()
assert torch.allclose(given, wanted, atol=1e-3)
"""
PLANNED = """
import json
from opatlas.load.cuda.cudnn import open_library
from tests.opatlas.load.cuda.test_cudnn import without_plans
print(json.dumps(without_plans(open_library())))
"""
BEYOND = """
extern "C" __global__ void relu(const float* x, float* y) {
    y[(1ull << 40) + threadIdx.x] = x[0];
}
"""
LAUNCH = {
    "run": [
        {
            "function": "relu",
            "grid": ["ceil(IN0_SIZE, 256)", 1, 1],
            "block": [256, 1, 1],
            "arguments": [{"input": 0}, {"output": 0}],
        }
    ]
}


@pytest.mark.parametrize("reader", [reader.__name__ for reader in READERS])
def test_a_device_has_one_key_whoever_asks(device_target: Target, reader: str) -> None:
    done = subprocess.run([sys.executable, "-c", ASK, reader], capture_output=True, text=True, timeout=120)
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip(f"{reader}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert CudaAttributes(**json.loads(done.stdout.splitlines()[-1])[0]).target().key == device_target.key


@pytest.mark.parametrize(("distribution", "module", "name"), DRIVERS)
def test_a_driver_does_what_it_says(
    device_target: Target, tmp_path: Path, distribution: str, module: str, name: str
) -> None:
    """In a process of its own: this one is not to initialise CUDA before it forks."""
    pytest.importorskip(distribution.replace("-", "."), reason=f"{distribution} is not installed")
    image = tmp_path / "twice.cubin"
    image.write_bytes(compile_device_code(driver_checks.SOURCE, {}, device_target.arch).cubin)
    command = [sys.executable, "-m", driver_checks.__name__, module, name, str(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = dict(json.loads(line) for line in done.stdout.splitlines())
    assert said == {check.__name__: "" for check in driver_checks.CHECKS}


def test_what_pycuda_compiles_runs(device_target: Target, tmp_path: Path) -> None:
    """Compiled, loaded and launched by it, in a process of its own as above."""
    pytest.importorskip("pycuda", reason="PyCUDA is not installed")
    if shutil.which("nvcc") is None:
        pytest.skip("PyCUDA compiles by nvcc, which is not installed")
    image = tmp_path / "twice.cubin"
    code = COMPILED.replace("sm_90", device_target.arch)
    made = subprocess.run([sys.executable, "-c", code, str(image)], capture_output=True, timeout=120)
    assert made.returncode == 0, made.stderr
    way = ("opatlas.load.cuda.pycuda_driver", "PyCudaDriver")
    command = [sys.executable, "-m", driver_checks.__name__, *way, str(image)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {said for _, said in map(json.loads, done.stdout.splitlines())} == {""}


@pytest.mark.usefixtures("gpu")
def test_cudnn_has_plans_for_every_graph_that_is_asked_of_it() -> None:
    """In a process of its own, as above."""
    done = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, timeout=120)
    if "LoadError: needs" in done.stderr:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("call", ["torch eager", "cublaslt matmul"])
def test_a_function_takes_tensors_that_lie_there(call: str) -> None:
    """In a process of its own, as above."""
    library, name = call.split()
    code = [sys.executable, "-c", IN_PLACE, json.dumps({"library": library, "call": name})]
    done = subprocess.run(code, capture_output=True, text=True, timeout=120)
    if "LoadError: needs" in done.stderr:
        pytest.skip(f"{call}: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [route.name for route in registry.routes_for("cuda")])
def test_a_route_builds_and_computes(device_laboratory: Laboratory, name: str) -> None:
    route = registry.route(name)
    if not (answer := route.available(device_laboratory.target)):
        pytest.skip(f"{name}: {getattr(answer, 'reason', '')}")
    assert prove(device_laboratory, route) == ""


@pytest.mark.parametrize("name", ["eager", "triton", "inductor", "cuda"])
@pytest.mark.parametrize("setting", [Setting(graphs=True), Setting(cache="cold")], ids=["graphs", "cold"])
def test_a_setting_of_the_devices_own(
    device_laboratory: Laboratory, tmp_path: Path, setting: Setting, name: str
) -> None:
    operator, route = operator_of("Relu", [64, 256]), registry.route(name)
    if not (answer := route.available(device_laboratory.target)):
        pytest.skip(f"{name}: {getattr(answer, 'reason', '')}")
    candidate = next(
        iter(route.candidates(operator, device_laboratory.target, setting, Budget(1.0))),
        Candidate(name, proof_of(name), "our own Relu") if name == "cuda" else None,
    )
    assert candidate is not None
    made = device_laboratory.build(route, operator, setting, candidate, tmp_path)
    assert not isinstance(made, Outcome), made
    with device_laboratory.bench(operator, setting, made) as bench:
        assert bench.default.ok, bench.default


def test_after_an_illegal_address_the_device_computes(device_laboratory: Laboratory, tmp_path: Path) -> None:
    operator, setting = operator_of("Relu", [64, 256]), Setting()
    given = registry.default_candidate(operator, device_laboratory.target, setting)
    assert given is not None
    default = device_laboratory.build(given[0], operator, setting, given[1], tmp_path / "default")
    assert not isinstance(default, Outcome), default
    parameters = {"language": "cuda", "flags": [], "source": BEYOND, "launch": LAUNCH}
    route = registry.route("cuda")
    faulty = device_laboratory.build(
        route, operator, setting, Candidate("cuda", parameters, "beyond"), tmp_path / "faulty"
    )
    if isinstance(faulty, Outcome) and faulty.status is Status.UNSUPPORTED:
        pytest.skip(faulty.detail)
    assert not isinstance(faulty, Outcome), faulty
    with device_laboratory.bench(operator, setting, default) as bench:
        assert bench.default.ok, bench.default
        assert bench.measure(faulty).status is Status.CRASHED
    assert device_laboratory.device is not None
    assert device_laboratory.device.unwell == ""
