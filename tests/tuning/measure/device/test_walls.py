"""What a sandbox shows of a machine's devices: one GPU's files, to the zygotes that need them alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.catalog.making import GPU
from tests.tuning.measure.device.simulated import SimulatedMonitor, lay_files
from tuning.measure.device.gpus import Gpu, gpus
from tuning.measure.device.watch import DeviceWatch
from tuning.measure.laboratory import Laboratory
from tuning.measure.sandbox import tiers
from tuning.measure.sandbox.walls import Walls, standing

LOOK = """
import ctypes, fcntl, os, sys
from pathlib import Path
if os.environ.get("OPATLAS_CONFINE"):
    import json
    from tuning.measure.sandbox.confine import confine
    confine(json.loads(os.environ.pop("OPATLAS_CONFINE")))
root = Path(sys.argv[1])
print(sorted(path.name for path in root.glob("dev/*")), os.environ.get("CUDA_VISIBLE_DEVICES"))
print((root / "driver/libcuda.so.1").read_text())
try:
    (root / "driver/libcuda.so.1").write_text("mine")
except OSError as error:
    print("cannot be written to")
for command in (0xC020462A, 0x19, 0x30000001, 0x5412):
    try:
        fcntl.ioctl(os.open(root / "dev/nvidia1", os.O_RDONLY), command, bytes(8))
    except OSError as error:
        print(hex(command), error.strerror)
"""


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The second of two, its driver's libraries in a folder of their own."""
    root = lay_files(tmp_path / "machine", {"0000:17:00.0": 0, "0000:3a:00.0": 1})
    (root / "driver").mkdir()
    (root / "driver/libcuda.so.1").write_text("the driver")
    monkeypatch.setenv("LD_LIBRARY_PATH", f"relative:{root / 'driver'}")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(path.stat().st_mode | 0o011)  # to be gone through, and no more
    for path in (root, *root.rglob("*")):
        path.chmod(path.stat().st_mode | (0o777 if path.is_dir() else 0o666))
    return gpus(root)[1]


@pytest.mark.parametrize("tier", ["T2", "T1"])
def test_one_gpus_files_are_there_and_its_drivers_folder_is_read_only(
    gpu: Gpu, tmp_path: Path, tier: str
) -> None:
    if (reason := tiers.why_not(tier)) is not None:
        pytest.skip(reason)
    root = gpu.nodes[0].parents[1]
    work = tmp_path / "work"
    work.mkdir()
    with standing(tier, "library", work, gpu) as walls:
        said = tiers.said_inside(walls, ["-c", LOOK, str(root)])
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    assert lines[0] == f"['nvidia-uvm', 'nvidia1', 'nvidiactl'] {gpu.uuid}"
    assert lines[1:3] == ["the driver", "cannot be written to"]
    answers = dict(line.split(" ", 1) for line in lines[3:])
    # The driver's own questions reach the file, which is none of its; what types into a terminal does not.
    known = "Inappropriate ioctl for device"
    assert answers["0xc020462a"] == answers["0x19"] == answers["0x30000001"] == known
    assert answers["0x5412"] == ("Function not implemented" if tier == "T2" else known)


def test_the_arguments_name_no_other_device(gpu: Gpu, tmp_path: Path) -> None:
    if (reason := tiers.why_not("T2")) is not None:
        pytest.skip(reason)
    with standing("T2", "library", tmp_path, gpu) as walls:
        command = walls.command(["-c", ""])
    bound = [command[at + 1] for at, word in enumerate(command) if word == "--dev-bind"]
    assert bound == [str(node) for node in gpu.nodes]
    assert (
        command.index("--dev")
        < command.index("--dev-bind")
        < command.index("/dev", command.index("--remount-ro"))
    )
    with standing("T2", "library", tmp_path) as walls:
        assert "--dev-bind" not in walls.command(["-c", ""])


def test_zygotes_that_run_nothing_there_do_not_see_it(gpu: Gpu, tmp_path: Path) -> None:
    watch = DeviceWatch(gpu, SimulatedMonitor())
    with Laboratory(tmp_path / "lab", GPU, device=watch) as lab:
        seeing = {
            name for name in ("native", "manual", "cpp", "xla", "cuda", "library") if lab.zygotes[name].device
        }
    assert seeing == {"cuda", "library"}


def test_walls_without_a_device_say_nothing_of_one(tmp_path: Path) -> None:
    walls = Walls("T0", "cuda", tmp_path)
    assert "CUDA_VISIBLE_DEVICES" not in walls.environment()
