"""NVIDIA GPUs of this machine, as targets.

The driver is asked in a process of its own, which then ends (``python -m opatlas.identity.place.cuda``): who
has initialised CUDA cannot fork children that use it. It is asked through whatever is installed that can;
all of these hand the driver's own attributes on, so that a device has one key whoever asks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from opatlas.errors import OpatlasError, first_line
from opatlas.identity.place.kinds import CUDA
from opatlas.identity.place.target import Target

ASKING_S = 120.0
GIB_STEP = 4


class NoDevice(OpatlasError):
    """There is no such device here, or nothing that could ask for it; says which."""


@dataclass(frozen=True)
class CudaAttributes:
    """What the driver says of one device, in its order (by PCI bus)."""

    name: str
    major: int
    minor: int
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int

    def target(self) -> Target:
        return Target(
            kind=CUDA.name,
            arch=f"sm_{self.major}{self.minor}",
            vendor="nvidia",
            isa="ptx",
            features=(),
            cache_bytes=(("l2", self.l2_bytes),) if self.l2_bytes else (),
            product=self.name.strip(),
            multiprocessors=self.multiprocessors,
            memory_gib=-(-self.memory_bytes // (GIB_STEP << 30)) * GIB_STEP,
        )


@cache
def detect_gpus() -> tuple[Target, ...]:
    """All that the driver shows, in its order; asked once. Raises :class:`NoDevice`."""
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASKING_S, check=False)
    except subprocess.TimeoutExpired:
        raise NoDevice(f"the CUDA driver has not answered in {ASKING_S:.0f} s") from None
    answer = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not answer:
        raise NoDevice((done.stderr.strip().splitlines() or ["asking the CUDA driver failed"])[-1])
    return tuple(CudaAttributes(**one).target() for one in json.loads(answer[0]))


def by_cuda_bindings() -> list[CudaAttributes]:
    from cuda.bindings import driver

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        error, *answer = function(*arguments)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise NoDevice(f"{function.__name__} answers {error.name}")
        return answer[0] if answer else None

    def of(number: int) -> CudaAttributes:
        device = ask(driver.cuDeviceGet, number)
        known = driver.CUdevice_attribute

        def attribute(name: str) -> int:
            number = getattr(known, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(ask(driver.cuDeviceGetAttribute, number, device))

        return CudaAttributes(
            ask(driver.cuDeviceGetName, 256, device).split(b"\0")[0].decode(),
            attribute("COMPUTE_CAPABILITY_MAJOR"),
            attribute("COMPUTE_CAPABILITY_MINOR"),
            attribute("MULTIPROCESSOR_COUNT"),
            int(ask(driver.cuDeviceTotalMem, device)),
            attribute("L2_CACHE_SIZE"),
        )

    ask(driver.cuInit, 0)
    return [of(number) for number in range(ask(driver.cuDeviceGetCount))]


def by_torch() -> list[CudaAttributes]:
    import torch

    if not torch.cuda.is_available():
        raise NoDevice("torch finds no CUDA device")
    found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    return [
        CudaAttributes(
            one.name, one.major, one.minor, one.multi_processor_count, one.total_memory, one.L2_cache_size
        )
        for one in found
    ]


READERS: Sequence[Callable[[], list[CudaAttributes]]] = (by_cuda_bindings, by_torch)


def ask_the_driver() -> list[CudaAttributes]:
    """By the first of ``READERS`` that can. Raises :class:`NoDevice` with what each of them said."""
    why: list[str] = []
    for reader in READERS:
        try:
            return reader()
        except Exception as error:  # libraries' errors share no base but Exception
            why.append(f"{reader.__name__.replace('_', ' ')}: {first_line(error, 120)}")
    raise NoDevice(f"No NVIDIA GPU can be asked for: {'; '.join(why)}.")


if __name__ == "__main__":
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML and the device files have it
    try:
        print(json.dumps([asdict(one) for one in ask_the_driver()]))
    except NoDevice as why_not:
        sys.exit(str(why_not))
