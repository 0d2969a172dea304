"""GPUs that are divided: each part is a device of its own, reached by its own files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opatlas.identity.place.cuda import NoDevice, detect_gpus
from tests.catalog.making import GPU
from tests.opatlas.identity.test_gpus import BINDINGS, drivers  # noqa: F401
from tests.tuning.measure.device.simulated import PART, UUID, FakeNvml, divide, lay_files
from tuning.measure.device.gpus import Gpu, devices, gpu_named, see_only
from tuning.measure.device.nvml import NvmlMonitor
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.sandbox import tiers
from tuning.measure.sandbox.walls import standing

FIRST, SECOND = PART % (1, 0), PART % (9, 0)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Two GPUs, of which the first is divided."""
    root = lay_files(tmp_path / "machine", {"0000:17:00.0": 2, "0000:3a:00.0": 0}, nodes=(0, 2))
    divide(root, 2, {(1, 0): (12, 13), (9, 0): (75, 76)})
    return root


@pytest.fixture
def nvml() -> FakeNvml:
    made = FakeNvml()
    made.parts = {UUID % 2: [(1, 0), (9, 0)]}
    return made


def caps(gpu: Gpu) -> list[str]:
    return [node.name for node in gpu.nodes if node.parent.name == "nvidia-caps"]


def test_parts_are_devices_and_the_gpu_they_are_of_is_none(machine: Path, nvml: FakeNvml) -> None:
    first, second, whole = devices(machine, nvml)
    assert [first.name, second.name, whole.name] == [FIRST, SECOND, "cuda:1"]
    assert first.product == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert first.environment["CUDA_VISIBLE_DEVICES"] == FIRST
    assert first.nodes[0].name == "nvidia2" and caps(first) == ["nvidia-cap12", "nvidia-cap13"]
    assert caps(second) == ["nvidia-cap75", "nvidia-cap76"]
    assert machine / "proc/driver/nvidia-caps" in first.folders
    assert not caps(whole) and whole.uuid == UUID % 0


def test_a_part_whose_files_are_not_here_is_no_device_of_this_machine(machine: Path, nvml: FakeNvml) -> None:
    (machine / "dev/nvidia-caps/nvidia-cap76").unlink()
    assert [gpu.name for gpu in devices(machine, nvml)] == [FIRST, "cuda:1"]
    nvml.parts = {UUID % 2: []}
    assert [gpu.name for gpu in devices(machine, nvml)] == ["cuda:1"], "divided, and no part was made"


def test_a_part_is_named_by_its_uuid(machine: Path, nvml: FakeNvml) -> None:
    assert gpu_named(SECOND, machine, nvml).name == SECOND
    assert gpu_named("cuda:1", machine, nvml).uuid == UUID % 0
    with pytest.raises(NoDevice, match=f"cuda:0 is divided into parts .MIG.*: {FIRST} .NVIDIA H100"):
        gpu_named("cuda:0", machine, nvml)
    with pytest.raises(NoDevice, match="This machine has no device MIG-7: MIG-"):
        gpu_named("MIG-7", machine, nvml)


def test_memory_is_the_parts_and_clocks_are_the_whole_gpus(machine: Path, nvml: FakeNvml) -> None:
    part = devices(machine, nvml)[0]
    watch = DeviceWatch(part, NvmlMonitor(part, nvml))
    assert watch.total_bytes == 10 << 30
    reading = watch.reading()
    assert reading is not None and reading.sm_mhz == 1980, watch.why_not


def test_a_part_is_a_target_of_its_own(
    machine: Path,
    nvml: FakeNvml,
    drivers: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CUDA shows the part alone, with its own memory and multiprocessors; here by a stand-in."""
    sees = f"import os\nassert os.environ['CUDA_VISIBLE_DEVICES'] == {FIRST!r}\n"
    small = BINDINGS.replace("return OK, 2", "return OK, 1").replace("85520809984", "10468982784")
    small = small.replace("(132", "(16").replace("80GB HBM3", "80GB HBM3 MIG 1g.10gb")
    (drivers / "cuda/bindings/driver.py").write_text(sees + small)
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # so that both are as they were afterwards
    see_only(gpu_named(FIRST, machine, nvml))
    [target] = detect_gpus()
    assert (target.product, target.multiprocessors, target.memory_gib) == (
        *("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16),
        12,
    )
    assert target.capability == GPU.capability and target.key != GPU.key


@pytest.mark.parametrize("tier", ["T2", "T1"])
def test_a_sandbox_shows_one_part(machine: Path, nvml: FakeNvml, tmp_path: Path, tier: str) -> None:
    if (reason := tiers.why_not(tier)) is not None:
        pytest.skip(reason)
    for path in (tmp_path, *tmp_path.parents[:2], machine, *machine.rglob("*")):
        path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o644))
    work = tmp_path / "work"
    work.mkdir()
    with standing(tier, "library", work, devices(machine, nvml)[1]) as walls:
        said = tiers.said_inside(walls, ["-c", LOOK, str(machine)])
    assert said.returncode == 0, said.stderr
    assert said.stdout.split() == ["nvidia-cap75", "nvidia-cap76", SECOND]


LOOK = """
import os, sys
from pathlib import Path
if os.environ.get("OPATLAS_CONFINE"):
    import json
    from tuning.measure.sandbox.confine import confine
    confine(json.loads(os.environ.pop("OPATLAS_CONFINE")))
seen = sorted(path.name for path in Path(sys.argv[1]).glob("dev/nvidia-caps/*"))
print(*seen, os.environ["CUDA_VISIBLE_DEVICES"])
"""
