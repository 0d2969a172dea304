"""GPUs of a machine as targets: one key whoever asks the driver; a reason where nobody can."""

from pathlib import Path

import pytest

from opatlas.identity.place.cuda import NoDevice, detect_gpus
from tests.catalog.making import GPU

BINDINGS = """
import enum

class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100

class CUdevice_attribute(enum.IntEnum):
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
    CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76

KNOWN = {16: (132, 58), 38: (52428800, 50331648), 75: (9, 8), 76: (0, 9)}
OK = CUresult.CUDA_SUCCESS

def cuInit(flags): return (OK,)
def cuDeviceGetCount(): return OK, 2
def cuDeviceGet(number): return OK, number
NAMES = b"NVIDIA H100 80GB HBM3", b"NVIDIA L4"
def cuDeviceGetName(length, device): return OK, NAMES[device].ljust(length, b"\\0")
def cuDeviceTotalMem(device): return OK, (85520809984, 23580639232)[device]
def cuDeviceGetAttribute(which, device): return OK, KNOWN[which][device]
"""
TORCH = """
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)

    @staticmethod
    def get_device_properties(number):
        class Properties:
            name = ("NVIDIA H100 80GB HBM3", "NVIDIA L4")[number]
            major, minor = ((9, 0), (8, 9))[number]
            multi_processor_count = (132, 58)[number]
            total_memory = (85520809984, 23580639232)[number]
            L2_cache_size = (52428800, 50331648)[number]
        return Properties
"""
ABSENT = "raise ImportError('not here')"
WITHOUT_DEVICE = BINDINGS.replace(
    "def cuInit(flags): return (OK,)", "def cuInit(flags): return (CUresult(100),)"
)


@pytest.fixture
def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that stand for what asks the driver; none of them can, at first."""
    for package in ("cuda", "cuda/bindings"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    for module in ("cuda/bindings/driver", "torch"):
        (tmp_path / f"{module}.py").write_text(ABSENT)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(__file__).parents[3]}")
    detect_gpus.cache_clear()
    return tmp_path


@pytest.mark.parametrize(("module", "text"), [("cuda/bindings/driver", BINDINGS), ("torch", TORCH)])
def test_a_device_has_one_key_whoever_asks(drivers: Path, module: str, text: str) -> None:
    (drivers / f"{module}.py").write_text(text)
    first, second = detect_gpus()
    assert first == GPU
    assert (second.capability, second.memory_gib) == ("cuda.sm_89", 24)
    assert type(first).from_json(first.to_json()) == first


def test_without_a_device_it_says_what_was_tried(drivers: Path) -> None:
    (drivers / "cuda/bindings/driver.py").write_text(WITHOUT_DEVICE)
    with pytest.raises(
        NoDevice, match="by cuda bindings: cuInit answers CUDA_ERROR_NO_DEVICE; by torch: not here"
    ):
        detect_gpus()


def test_a_machine_without_a_gpu_says_so() -> None:
    detect_gpus.cache_clear()
    try:
        assert all(gpu.kind == "cuda" for gpu in detect_gpus())
    except NoDevice as why:
        assert "No NVIDIA GPU can be asked for: by cuda bindings: " in str(why)
