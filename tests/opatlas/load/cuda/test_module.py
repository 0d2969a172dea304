"""Modules on a simulated device, through the loader's own code."""

from __future__ import annotations

import gc
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.identity import Operator, Setting
from opatlas.load import KernelFailed, LoadError, Manifest, load
from opatlas.load.cuda import driver
from opatlas.load.cuda.module import CudaKernel
from tests.opatlas.load.cuda.simulated import LEFT_OVER, SimulatedDriver
from tests.opatlas.load.cuda.simulated_streams import StreamingSimulation
from tests.opatlas.load.cuda.test_plan import PLAN, QUOTIENT, launch, plan


def image(**functions: str) -> bytes:
    return json.dumps({"functions": functions or {"scaled": "scaled", "inverted": "inverted"}}).encode()


def manifest(document: Any, content: bytes, operator: Operator = QUOTIENT) -> Manifest:
    return Manifest(
        kind="cuda-module",
        route="cuda",
        operator=operator.to_json(),
        setting=Setting().to_json(),
        files={document["module"]: hashlib.sha256(content).hexdigest()},
        launch=document,
    )


def kernel(device: SimulatedDriver, document: Any = PLAN, content: bytes | None = None) -> CudaKernel:
    content = image() if content is None else content
    return CudaKernel(manifest(document, content), {document["module"]: content}, device)


@pytest.fixture
def device() -> SimulatedDriver:
    return SimulatedDriver()


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.fixture
def weights() -> np.ndarray:
    return np.full((4, 8), 0.5, np.float32)


RUN = plan(
    run=[launch(arguments=[{"input": 0}, {"packed": 0}, {"output": 0}, {"int32": 32}])], workspace_bytes=0
)


def test_constants_are_packed_once_and_runs_use_them(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    bound()
    bound()
    assert device.launches == 3
    np.testing.assert_array_equal(bound.outputs()[0], x / weights)


def test_a_call_returns_before_its_work_is_done(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    bound.synchronize()
    bound()
    assert len(device.waiting) == 1
    bound.synchronize()
    assert not device.waiting


def test_new_values_are_seen_when_they_are_brought(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    x += 1
    bound.poison()
    assert np.isnan(bound.outputs()[0]).all()
    bound.upload()
    bound()
    np.testing.assert_array_equal(bound.outputs()[0], x / weights)


def test_fresh_memory_tells_nothing_of_what_lay_there(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    LEFT_OVER[...] = 7
    loaded = kernel(device, plan(run=RUN["run"], workspace_bytes=128))
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    bound.synchronize()
    found = [memory for memory in device.allocated.values() if (memory == 7).any()]
    assert not found
    workspace = max(device.allocated)
    device.allocated[workspace][...] = 7
    bound.poison()
    bound.synchronize()
    assert not (device.allocated[workspace] == 7).any(), "nor a workspace of the run before"


def test_the_devices_own_clock_says_what_runs_took(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    content = json.dumps({"functions": {"scaled": "scaled", "inverted": "inverted"}, "us": 300}).encode()
    loaded = kernel(device, RUN, content)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})

    def twice() -> None:
        bound()
        bound()

    assert 600 <= bound.device_us(twice) < 500_000


def test_a_setting_with_graphs_launches_all_at_once(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    two = plan(run=[*RUN["run"], *RUN["run"]], workspace_bytes=0)
    content = image()
    described = replace(manifest(two, content), setting=Setting(graphs=True).to_json())
    loaded = CudaKernel(described, {two["module"]: content}, device)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    bound.synchronize()
    assert (device.launches, device.graph_launches) == (1, 0), "capturing runs nothing"
    bound()
    bound.synchronize()
    assert (device.launches, device.graph_launches) == (3, 1)
    np.testing.assert_array_equal(bound.outputs()[0], x / weights)


def test_caches_are_emptied_by_writing_more_than_they_hold(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    before, launches = device.filled_bytes, device.launches
    found = bound.each_us(3, 1 << 20, lead_in=True)
    assert len(found) == 3 and min(found) >= 0
    assert device.launches - launches == 6, "each once before it, not timed"
    # One more: memory is written when it is made.
    assert device.filled_bytes - before == 4 << 20
    assert not device.waiting
    assert len(device.allocated) == 4, "and given back"


def test_what_lies_askew_on_the_device_is_refused(device: SimulatedDriver, weights: np.ndarray) -> None:
    class There:
        __cuda_array_interface__ = {"typestr": "<f4", "shape": (4, 8), "data": (4, False), "strides": None}

    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    with pytest.raises(LoadError, match="input 0 does not lie on a multiple of 64 bytes"):
        loaded.bind({0: There()})


def test_runs_go_into_the_stream_that_is_asked_for(x: np.ndarray, weights: np.ndarray) -> None:
    device = StreamingSimulation()
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    stream = device.make_stream()
    bound = loaded.bind({0: x}, stream=stream)
    bound()
    assert not device.waiting, "nothing in the default stream"
    ended = device.record_in(stream)
    while not device.has_happened(ended):
        pass
    np.testing.assert_array_equal(bound.outputs()[0], x / weights)


def test_what_lies_on_the_device_is_read_where_it_is(
    device: SimulatedDriver, x: np.ndarray, weights: np.ndarray
) -> None:
    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    first = loaded.bind({0: x})
    first()
    (there,) = first.device_outputs()
    before = len(device.allocated)
    second = loaded.bind({0: there})
    assert len(device.allocated) == before + 1  # its output alone
    second()
    np.testing.assert_array_equal(second.outputs()[0], x / weights / weights)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"typestr": "<f8", "shape": (4, 8), "data": (1, False), "strides": None}, "element type float64"),
        ({"typestr": "<f4", "shape": (8, 4), "data": (1, False), "strides": None}, r"shape \[8, 4\]"),
        ({"typestr": "<f4", "shape": (4, 8), "data": (1, False), "strides": (4, 16)}, r"strides \[1, 4\]"),
    ],
)
def test_what_is_not_as_the_operator_says_is_refused(
    device: SimulatedDriver, weights: np.ndarray, said: Any, sentence: str
) -> None:
    class There:
        __cuda_array_interface__ = said

    loaded = kernel(device, RUN)
    loaded.prepare({1: weights})
    with pytest.raises(LoadError, match=sentence):
        loaded.bind({0: There()})
    with pytest.raises(LoadError, match="neither a NumPy array nor one on the device: list"):
        loaded.bind({0: [1.0]})


def test_memory_is_given_back(device: SimulatedDriver, x: np.ndarray, weights: np.ndarray) -> None:
    free_bytes = device.free_bytes
    loaded = kernel(device)
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    assert device.free_bytes == free_bytes - 5 * 128  # constants, packed, workspace, input, output
    loaded.close()
    with pytest.raises(KernelFailed, match="was closed"):
        bound()
    del bound, loaded
    gc.collect()
    assert (device.free_bytes, device.allocated) == (free_bytes, {})


def test_an_illegal_address_is_told_by_who_waits_and_by_all_after(x: np.ndarray, weights: np.ndarray) -> None:
    device = SimulatedDriver()
    loaded = kernel(device, RUN, image(scaled="beyond", inverted="inverted"))
    loaded.prepare({1: weights})
    bound = loaded.bind({0: x})
    bound()
    with pytest.raises(KernelFailed, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        bound.synchronize()
    with pytest.raises(KernelFailed, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        bound()


def test_too_little_memory_is_told(x: np.ndarray, weights: np.ndarray) -> None:
    loaded = kernel(SimulatedDriver(memory_bytes=400), RUN)
    loaded.prepare({1: weights})
    with pytest.raises(KernelFailed, match="CUDA_ERROR_OUT_OF_MEMORY"):
        loaded.bind({0: x})


@pytest.mark.parametrize(
    ("document", "content", "arch", "sentence"),
    [
        (PLAN, image(), "sm_80", "made for sm_90, and the device here is sm_80"),
        (PLAN, b"\x7fELF", "sm_90", "CUDA_ERROR_INVALID_IMAGE"),
        (PLAN, image(other="relu"), "sm_90", "CUDA_ERROR_NOT_FOUND"),
    ],
)
def test_what_does_not_go_on_the_device_is_refused(
    document: Any, content: bytes, arch: str, sentence: str, weights: np.ndarray
) -> None:
    with pytest.raises((LoadError, KernelFailed), match=sentence):
        kernel(SimulatedDriver(arch=arch), document, content).prepare({1: weights})


def test_the_loader_knows_the_kind_and_verifies_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = (("pycuda", "opatlas.load.cuda.nowhere", "Driver"),)  # whether there is a device here or not
    monkeypatch.setattr(driver, "DRIVERS", nowhere)
    driver.open_driver.cache_clear()
    content = image()
    made = manifest(PLAN, content)
    assert Manifest.from_json(made.to_json()) == made
    (tmp_path / "scaled.cubin").write_bytes(content + b"!")
    with pytest.raises(LoadError, match="has SHA-256"):
        load(made, tmp_path)
    (tmp_path / "scaled.cubin").write_bytes(content)
    with pytest.raises(LoadError, match=r"needs a CUDA device, and none .* here \(pycuda: No module"):
        load(made, tmp_path)


def test_a_manifest_without_a_launch_plan_keeps_its_bytes() -> None:
    old = Manifest("recipe", "eager", QUOTIENT.to_json(), Setting().to_json())
    assert "launch" not in old.to_json()
    assert "provenance" not in old.to_json()
