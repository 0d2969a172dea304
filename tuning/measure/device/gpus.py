"""NVIDIA GPUs of this machine: which there are, and what a process must see to reach one of them.

Read from what the kernel's module tells of itself, so that nobody has to initialise CUDA for it. Where a GPU
is divided into parts (MIG), these are the devices, and it is none itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opatlas.identity.place.cuda import NoDevice
from opatlas.identity.place.kinds import CUDA
from tuning.measure.device.mig import GpuPart, files_of, nvml, parts_of

ROOT = Path("/")
_LISTED = Path("proc/driver/nvidia/gpus")
_CAPS = Path("proc/driver/nvidia-caps")
_SHARED_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_DRIVER_FOLDERS = ("usr/local/nvidia/lib64", "usr/lib64", "usr/lib/wsl/lib")
_DRIVER = "libcuda.so.1"
_NAME = re.compile(rf"{CUDA.name}:(\d+)")


@dataclass(frozen=True)
class Gpu:
    """One of them. ``nodes`` are the device files that reach it and no other, ``folders`` those of the driver
    that are read for it."""

    number: int  # among those that are here, by PCI bus
    minor: int  # of its device file
    uuid: str  # "GPU-…", a part's "MIG-…"; empty where the driver does not tell it yet
    bus: str
    product: str
    nodes: tuple[Path, ...]
    folders: tuple[Path, ...] = ()
    is_part: bool = False

    @property
    def name(self) -> str:
        """``cuda:0``; a part's UUID."""
        return self.uuid if self.is_part else f"{CUDA.name}:{self.number}"

    @property
    def present(self) -> tuple[Path, ...]:
        """Its files, and those of the driver that were made since it was found: ``nvidia-uvm`` may come when
        CUDA first starts."""
        later = [self.nodes[0].with_name(name) for name in _SHARED_NODES] if self.nodes else []
        return tuple(dict.fromkeys((*self.nodes, *(node for node in later if node.exists()))))

    @property
    def environment(self) -> Mapping[str, str]:
        """With which a process sees it alone."""
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": self.uuid or str(self.number)}


def gpus(root: Path = ROOT) -> list[Gpu]:
    """Those that have a device file here, by PCI bus: a container may be told of more than it was given."""
    found = [
        _described(root, folder.name, _said(folder / "information"))
        for folder in sorted(root.glob(f"{_LISTED}/*"))
    ]
    # Where the module's files are not shown (gVisor), the device files are all there is.
    found = found or [
        _described(root, "", {"Device Minor": node.name.removeprefix("nvidia")})
        for node in sorted(root.glob("dev/nvidia[0-9]*"), key=lambda node: (len(node.name), node.name))
    ]
    here = [one for one in found if one["nodes"][0].exists()]
    return [Gpu(number=number, **one) for number, one in enumerate(here)]


def devices(root: Path = ROOT, library: Any = None) -> list[Gpu]:
    """What a worker can serve: each GPU, or each part of one that is divided. ``library`` is the module
    ``pynvml``, or what has its functions; without it none is known to be divided."""
    library = library or nvml()
    found: list[Gpu] = []
    for gpu in gpus(root):
        parts = parts_of(gpu.uuid, gpu.number, library)
        found += [gpu] if parts is None else _reachable(gpu, parts, root)
    return found


def _reachable(gpu: Gpu, parts: Sequence[GpuPart], root: Path) -> list[Gpu]:
    told = root / _CAPS
    folders = (*gpu.folders, *([told] if told.is_dir() else []))
    return [
        replace(
            gpu,
            uuid=part.uuid,
            product=part.product,
            nodes=(*gpu.nodes, *files),
            folders=folders,
            is_part=True,
        )
        for part in parts
        if (files := files_of(part, gpu.minor, root)) is not None
    ]


def gpu_named(name: str, root: Path = ROOT, library: Any = None) -> Gpu:
    """``cuda:0``, or a UUID; a part is named by its UUID alone. Raises :class:`NoDevice`, whose sentence says
    which there are."""
    if not _NAME.fullmatch(name) and not name.startswith(("GPU-", "MIG-")):
        example = f"{CUDA.name}:0, its UUID (GPU-…), or that of a part of it (MIG-…)"
        raise NoDevice(f"OPATLAS_DEVICE is a device such as {example}, not '{name[:80]}'.")
    here = devices(root, library)
    for gpu in here:
        if name in (gpu.name, gpu.uuid):
            return gpu
    known = ", ".join(f"{gpu.name} ({gpu.product or gpu.uuid or 'not told what'})" for gpu in here)
    if any(name in (gpu.name, gpu.uuid) for gpu in gpus(root)):
        raise NoDevice(f"{name} is divided into parts (MIG), and is none itself: {known or 'none is here'}.")
    raise NoDevice(f"This machine has no device {name}: {known or 'it has no NVIDIA GPU'}.")


def see_only(gpu: Gpu) -> None:
    """This process, and all that it starts, sees no other device."""
    os.environ.update(gpu.environment)


def _described(root: Path, bus: str, said: Mapping[str, str]) -> dict:
    minor = said.get("Device Minor", "")
    uuid = said.get("GPU UUID", "")
    names = (f"nvidia{minor}", *_SHARED_NODES)
    nodes = [root / "dev" / name for name in names]
    return {
        "minor": int(minor) if minor.isdigit() else -1,
        "uuid": "" if "?" in uuid else uuid,
        "bus": bus,
        "product": said.get("Model", ""),
        "nodes": (nodes[0], *(node for node in nodes[1:] if node.exists())),
        "folders": tuple(_folders(root)),
    }


def _said(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in lines]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _of_the_linker(root: Path) -> Iterator[str]:
    """What the dynamic linker was told to look through beside its own folders."""
    for file in (root / "etc/ld.so.conf", *sorted(root.glob("etc/ld.so.conf.d/*.conf"))):
        with suppress(OSError):
            lines = file.read_text(errors="replace").splitlines()
            yield from (line.strip().lstrip("/") for line in lines if line.strip().startswith("/"))


def _folders(root: Path) -> Sequence[Path]:
    """Where the driver's libraries lie, beside where the loader looks anyway; what the module tells."""
    asked = [Path(one) for one in os.environ.get("LD_LIBRARY_PATH", "").split(":") if one.startswith("/")]
    known = [root / folder for folder in (*_DRIVER_FOLDERS, *_of_the_linker(root))]
    libraries = [folder for folder in dict.fromkeys([*asked, *known]) if (folder / _DRIVER).exists()]
    module = root / _LISTED.parent
    return [*libraries, *([module] if module.is_dir() else [])]
