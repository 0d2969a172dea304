"""A GPU that is not there: files as the driver lays them, and a monitor that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

from tuning.measure.device.gpus import Gpu
from tuning.measure.device.nvml import Reading

CALM = Reading(
    sm_mhz=1755, memory_mhz=2619, temperature_c=54, slowed=(), used_bytes=1 << 30, total_bytes=80 << 30
)
UUID = "GPU-6f3c1b0e-0000-4000-8000-%012d"
PART = "MIG-6f3c1b0e-0000-5000-8000-00000000%d/%d"
NO_GPU = Gpu(number=0, minor=0, uuid=UUID % 0, bus="", product="simulated", nodes=())
INFORMATION = """Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 120
GPU UUID: \t %s
Bus Type: \t PCIe
Bus Location: \t %s
Device Minor: \t %d
GPU Excluded:\t No
"""


def lay_files(root: Path, minors: Mapping[str, int], nodes: tuple[int, ...] = (0, 1, 2, 3)) -> Path:
    """A root with the module's files by PCI bus, and device files."""
    for bus, minor in minors.items():
        folder = root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION % (UUID % minor, bus, minor))
    (root / "dev").mkdir()
    for name in (*(f"nvidia{minor}" for minor in nodes), "nvidiactl", "nvidia-uvm"):
        (root / "dev" / name).write_text(name)
    return root


def divide(root: Path, minor: int, parts: Mapping[tuple[int, int], tuple[int, int]]) -> None:
    """Files of a GPU's parts: by the numbers of their instances those of their two device files."""
    for (gpu_instance, compute_instance), (first, second) in parts.items():
        folder = root / f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
        (folder / f"ci{compute_instance}").mkdir(parents=True)
        for told, number in ((folder, first), (folder / f"ci{compute_instance}", second)):
            (told / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")
            (root / "dev/nvidia-caps").mkdir(exist_ok=True)
            (root / f"dev/nvidia-caps/nvidia-cap{number}").touch()
    (root / "proc/driver/nvidia-caps").mkdir(exist_ok=True)


class SimulatedMonitor:
    """``now`` is what a look sees; ``processes`` what each of them uses."""

    def __init__(self) -> None:
        self.now = CALM
        self.processes: dict[int, int] = {}

    def read(self) -> Reading:
        return self.now

    def held_back_ns(self) -> Mapping[str, int]:
        return self.now.held_back_ns

    def used_by(self) -> Mapping[int, int]:
        return self.processes


class FakeNvml:
    """The functions of ``pynvml`` that are asked, over what a test says. Has none that sets anything."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, bits: int = 0) -> None:
        self.bits = bits
        self.asked: list[str] = []
        self.parts: dict[str, list[tuple[int, int]]] = {}
        """Of a divided GPU, by its UUID: the numbers of its parts' instances."""

    def nvmlInit(self) -> None:
        self.asked.append("init")

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 13010

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        self.asked.append(uuid)
        return f"handle of {uuid}"

    def nvmlDeviceGetHandleByIndex(self, number: int) -> str:
        return f"handle of {number}"

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if handle.removeprefix("handle of ") not in self.parts:
            raise RuntimeError("Not Supported")
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:
        made = self.parts[handle.removeprefix("handle of ")]
        if index >= len(made):
            raise RuntimeError("Not Found")
        return "handle of " + PART % made[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle: str) -> str:
        return f"whole of {handle}"

    def nvmlDeviceGetUUID(self, handle: str) -> str:
        return handle.removeprefix("handle of ")

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H100 80GB HBM3 MIG 1g.10gb"

    def nvmlDeviceGetGpuInstanceId(self, handle: str) -> int:
        return int(handle[-3])

    def nvmlDeviceGetComputeInstanceId(self, handle: str) -> int:
        return int(handle[-1])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:
        total = 10 << 30 if handle.startswith("handle of MIG-") else 80 << 30
        return SimpleNamespace(used=3 << 30, total=total)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        self._must_be_whole(handle)
        return self.bits

    def _must_be_whole(self, handle: str) -> None:
        if handle.startswith("handle of MIG-"):
            raise RuntimeError("Not Supported")

    NVML_PERF_POLICY_THERMAL = 1

    def nvmlDeviceGetViolationStatus(self, handle: str, policy: int) -> SimpleNamespace:
        self._must_be_whole(handle)
        return SimpleNamespace(referenceTime=1000, violationTime=20)

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> int:
        self._must_be_whole(handle)
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}[which]

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> int:
        self._must_be_whole(handle)
        return 61

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=7, usedGpuMemory=5 << 20), SimpleNamespace(pid=8, usedGpuMemory=None)]
