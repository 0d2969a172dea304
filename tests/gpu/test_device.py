"""What only a GPU can show: the driver by every way to it, routes that build and compute, a fault."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from opatlas.identity import Setting, Target
from opatlas.identity.place.cuda import READERS, CudaAttributes
from opatlas.load.cuda.driver import DRIVERS
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.measure.proving import operator_of, prove
from tuning.routes import registry
from tuning.routes.base import Budget, Candidate
from tuning.routes.manual.own import proof_of

pytestmark = pytest.mark.gpu

ASK = """
import json, sys
from dataclasses import asdict
from opatlas.identity.place import cuda
print(json.dumps([asdict(one) for one in getattr(cuda, sys.argv[1])()]))
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


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("distribution", "module", "name"), DRIVERS)
def test_the_driver_keeps_what_it_is_given(distribution: str, module: str, name: str) -> None:
    """In a process of its own: this one is not to initialise CUDA before it forks."""
    try:
        importlib.import_module(distribution.replace("-", "."))
    except ImportError as error:
        pytest.skip(f"{distribution}: {error}")
    code = (
        f"import numpy as np; from {module} import {name}; driver = {name}(0);"
        "given = np.arange(1000, dtype=np.float32); back = np.empty_like(given);"
        "at = driver.allocate(given.nbytes); driver.to_device(at, given); driver.to_host(back, at);"
        "assert (back == given).all(); driver.fill(at, given.nbytes, 255); driver.to_host(back, at);"
        "assert np.isnan(back).all(); first = driver.record(); driver.fill(at, given.nbytes, 0);"
        "last = driver.record(); driver.synchronize(); assert 0 <= driver.elapsed_us(first, last) < 1e6;"
        "driver.free(at); print(driver.arch, driver.version)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sm_")


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
