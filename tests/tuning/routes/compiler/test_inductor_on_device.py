"""Inductor for GPUs, without one: what it refuses and asks for; its build and loader with the processor as
the device; whose builds are alone and watched."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Setting, detect_target, parse_operator
from opatlas.load import load
from opatlas.memory import total_bytes
from tests.catalog.making import GPU
from tests.configuring import configured
from tests.opatlas.load.operators import Case, operator_of
from tests.tuning.measure.device.simulated import NO_GPU, SimulatedMonitor
from tuning.measure import laboratory as laboratories
from tuning.measure.device.watch import DeviceWatch, claim_bytes
from tuning.measure.laboratory import Laboratory
from tuning.measure.specimen import tensor_bytes
from tuning.measure.timing.lock import MachineLock
from tuning.measure.transfers import OnDeviceInTorch, transfers
from tuning.routes.base import Budget, BuiltArtifact, Candidate, No, RouteError
from tuning.routes.compiler.inductor import InductorRoute, on_device
from tuning.routes.compiler.inductor import route as routing
from tuning.routes.compiler.inductor.cxx import find_cxx

ROUTE = InductorRoute()
VALUES = [{"shape": [8, 16], "dtype": "float32"}, {"shape": [16, 4], "dtype": "float32", "const": True}]
OPERATOR = parse_operator({"op": "MatMul", "inputs": VALUES})
pytestmark = pytest.mark.group("inductor")


def test_it_says_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "find_cxx", lambda: "/usr/bin/g++")

    def reason(torch: str, triton: str | None, folder: Path | None) -> str:
        found = {"torch": torch, "triton": triton}
        monkeypatch.setattr(routing, "installed_version", found.__getitem__)
        monkeypatch.setattr(routing, "toolkit", lambda: folder)
        return getattr(ROUTE.available(GPU), "reason", "")

    assert reason("2.13.0+cpu", "3.9.0", Path("/")) == "torch 2.13.0+cpu is built without CUDA"
    assert "Triton's, which is not installed" in reason("2.13.0+cu130", None, Path("/"))
    assert "install the CUDA toolkit" in reason("2.13.0+cu130", "3.9.0", None)
    assert reason("2.13.0+cu130", "3.9.0", Path("/")) == ""
    monkeypatch.setattr(routing, "find_cxx", lambda: None)
    assert "C++ compiler" in reason("2.13.0+cu130", "3.9.0", Path("/"))


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has one, too."""
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.usefixtures("no_gpu")
def test_on_a_gpu_it_times_templates_first(tmp_path: Path) -> None:
    labels = [one.label for one in ROUTE.candidates(OPERATOR, GPU, Setting(), Budget(1))]
    assert labels == ["max-autotune", "ahead of time"]
    chosen = on_device.options({"options": on_device.TUNED})
    assert chosen["max_autotune"] is True and chosen["aot_inductor.package_constants_in_so"] is False
    assert "CPP" not in chosen["max_autotune_gemm_backends"]
    from torch._inductor import config

    assert set(chosen) <= set(config._config)  # type: ignore[attr-defined]
    with pytest.raises(RouteError, match="finds none here"):
        ROUTE.build(OPERATOR, GPU, Setting(), Candidate("inductor", {}, ""), tmp_path)


@pytest.mark.nightly  # by day a package for the processor is built so, and recipes run on a device's tensors
@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.skipif(find_cxx() is None, reason="there is no C++ compiler")
def test_a_package_is_built_and_loaded_on_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor as the device: the same build, the same loader."""
    import torch

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x, w = (
        np.random.default_rng(n).standard_normal(s).astype(np.float32)
        for n, s in ((0, (8, 16)), (1, (16, 4)))
    )
    operator, _ = operator_of(Case("MatMul", [x, w], fixed=(1,)))
    target, setting = replace(detect_target(), arch="sm_90"), Setting(threads=1)
    made = on_device.compiled(operator, target, setting, {}, tmp_path, torch.device("cpu"))
    assert set(made.manifest.files) == {"kernel.pt2", "device.json"}
    assert isinstance(transfers(made.manifest.to_json()), OnDeviceInTorch)
    kernel = load(made.manifest, made.folder)
    kernel.prepare({1: w})
    bound: Any = kernel.bind({0: x})
    for _ in range(2):
        bound()
        np.testing.assert_allclose(bound.outputs()[0], x @ w, rtol=1e-5, atol=1e-5)
        x[...] *= 2
        bound.upload()
    there = torch.from_numpy(x)
    bound = kernel.bind({0: there})  # what lies on the device is read where it is
    there *= 3
    bound()
    np.testing.assert_allclose(bound.outputs()[0], there.numpy() @ w, rtol=1e-5, atol=1e-5)
    files = {name: (made.folder / name).read_bytes() for name in made.manifest.files}
    files["device.json"] = files["device.json"].replace(b'"cpu"', b'"cuda"')
    from opatlas.load.torch.package import open_kernel

    with pytest.raises(LoadError, match="needs a CUDA device"):
        open_kernel(made.manifest, files)
    with pytest.raises(LoadError, match="does not say what the package was built for"):
        open_kernel(made.manifest, {**files, "device.json": b"[]"})


def test_a_build_on_the_device_is_alone_bounded_and_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = DeviceWatch(NO_GPU, SimulatedMonitor())
    seen: list[tuple[int, list[int], float, bool]] = []

    def built(zygote: Any, request: Any, workdir: Path, bounds: Any, build_s: float) -> BuiltArtifact:
        other = os.open(tmp_path / "lock", os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alone = False
        except BlockingIOError:
            alone = True
        os.close(other)
        assert bounds.memory_bytes == max(4 << 30, min(16 << 30, total_bytes() // 2)), (
            "CUDA's libraries are large"
        )
        seen.append((bounds.device_bytes, request.get("device_bytes"), build_s, alone))
        raise RouteError("that is all")

    monkeypatch.setattr(laboratories, "build_in_child", built)
    candidate = Candidate("inductor", {}, "")
    with (
        configured(lock=tmp_path / "lock"),
        Laboratory(tmp_path / "lab", GPU, device=watch) as lab,
    ):
        assert lab.zygotes["inductor"].device is watch and lab.zygotes["tvm"].device is None
        with pytest.raises(RouteError):
            lab.build(ROUTE, OPERATOR, Setting(), candidate, tmp_path / "a")
        with pytest.raises(RouteError):
            lab.build_all(OPERATOR, Setting(), [(ROUTE, candidate, tmp_path / "b")])
    claim = claim_bytes(tensor_bytes(OPERATOR), 80 << 30)
    assert seen == [(claim, [claim, 80 << 30], laboratories.DEVICE_BUILD_S, True)] * 2


def test_who_builds_is_alone_for_a_while_and_then_beside_others_again(tmp_path: Path) -> None:
    ours, other = MachineLock(tmp_path / "lock"), os.open(tmp_path / "lock", os.O_RDWR)
    with ours.building():
        with ours.alone_meanwhile(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    ours.close()


def test_a_package_on_the_processor_is_none_of_a_device() -> None:
    manifest = {"kind": "package", "recipe": None, "files": {"kernel.pt2": ""}}
    assert not isinstance(transfers(manifest), OnDeviceInTorch)
    assert isinstance(ROUTE.available(replace(GPU, kind="npu")), No)
