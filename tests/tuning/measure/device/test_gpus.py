"""Which GPUs a machine has, and with what a process reaches one of them and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opatlas.identity.place.cuda import NoDevice
from tests.tuning.measure.device.simulated import UUID, lay_files
from tuning.measure.device.gpus import gpu_named, gpus
from tuning.measure.timing.lock import DeviceTaken, take_device


def test_devices_are_counted_by_bus_and_reached_by_their_own_file(tmp_path: Path) -> None:
    """The bus' order is not the minor numbers', and a container is told of GPUs that it was not given."""
    buses = {"0000:17:00.0": 2, "0000:3a:00.0": 0, "0000:5d:00.0": 1}
    root = lay_files(tmp_path, buses, nodes=(0, 2))
    first, second = gpus(root)
    assert (first.name, first.minor, first.uuid) == ("cuda:0", 2, UUID % 2)
    assert (second.name, second.minor, second.bus) == ("cuda:1", 0, "0000:3a:00.0")
    assert first.product == "NVIDIA H100 80GB HBM3"
    assert [node.name for node in first.nodes] == ["nvidia2", "nvidiactl", "nvidia-uvm"]
    assert first.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": UUID % 2}
    assert root / "proc/driver/nvidia" in first.folders


def test_without_the_modules_files_the_device_files_say_how_many(tmp_path: Path) -> None:
    root = lay_files(tmp_path, {}, nodes=(0, 10, 2))
    assert [(gpu.minor, gpu.environment["CUDA_VISIBLE_DEVICES"]) for gpu in gpus(root)] == [
        (0, "0"),
        (2, "1"),
        (10, "2"),
    ]


def test_a_file_that_comes_with_cudas_first_start_is_shown_too(tmp_path: Path) -> None:
    root = lay_files(tmp_path, {"0000:17:00.0": 0})
    (root / "dev/nvidia-uvm").unlink()
    (found,) = gpus(root)
    assert [node.name for node in found.present] == ["nvidia0", "nvidiactl"]
    (root / "dev/nvidia-uvm").touch()
    assert [node.name for node in found.present] == ["nvidia0", "nvidiactl", "nvidia-uvm"]


def test_the_driver_is_found_where_the_linker_was_told_to_look(tmp_path: Path) -> None:
    root = lay_files(tmp_path, {"0000:17:00.0": 0})
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf.d/driver.conf").write_text("# where it was put\n/opt/driver/lib\n")
    (root / "opt/driver/lib").mkdir(parents=True)
    assert root / "opt/driver/lib" not in gpus(root)[0].folders
    (root / "opt/driver/lib/libcuda.so.1").touch()
    assert root / "opt/driver/lib" in gpus(root)[0].folders


def test_a_uuid_that_is_not_told_yet_names_nothing(tmp_path: Path) -> None:
    root = lay_files(tmp_path, {"0000:17:00.0": 0})
    said = root / "proc/driver/nvidia/gpus/0000:17:00.0/information"
    said.write_text(said.read_text().replace(UUID % 0, "GPU-????????-????-????-????-????????????"))
    assert gpus(root)[0].environment["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_device_is_named_by_number_or_uuid(tmp_path: Path) -> None:
    root = lay_files(tmp_path, {"0000:17:00.0": 1, "0000:3a:00.0": 0})
    assert gpu_named("cuda:1", root) == gpu_named(UUID % 0, root)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cuda:4", "no device cuda:4: cuda:0 (NVIDIA H100 80GB HBM3)."),
        ("GPU-0", "no device GPU-0"),
        ("gpu0", "such as cuda:0, its UUID (GPU-…), or that of a part of it (MIG-…)"),
    ],
)
def test_a_device_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, name: str, sentence: str
) -> None:
    with pytest.raises(NoDevice) as refused:
        gpu_named(name, lay_files(tmp_path, {"0000:17:00.0": 0}))
    assert sentence in str(refused.value)


def test_a_device_has_one_worker(tmp_path: Path) -> None:
    lock = tmp_path / "machine.lock"
    other = (
        "import sys, pathlib; from tuning.measure.timing.lock import take_device;"
        "take_device('cuda:0', 'GPU-1', pathlib.Path(sys.argv[1])); print('taken', flush=True); input()"
    )
    held = subprocess.Popen(
        [sys.executable, "-c", other, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert held.stdout is not None and held.stdout.readline() == "taken\n"
    with pytest.raises(DeviceTaken, match="cuda:0 is served by another worker"):
        take_device("cuda:0", "GPU-1", lock)
    take_device("cuda:1", "GPU-2", lock)
    held.communicate("\n", timeout=60)
    take_device("cuda:0", "GPU-1", lock)
    take_device("cuda:0", "GPU-1", lock)
