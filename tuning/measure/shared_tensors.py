"""Tensors in shared memory: how inputs, constants, outputs and references lie in a memory file.

A tensor's *span* is the flat run of elements that its strides reach; spans cross between processes as they
are, so that a strided input arrives strided. Offsets are in bytes and aligned to 64.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from opatlas.load.dtypes import numpy_dtype

ALIGNMENT = 64
BUFFERS = 2
"""Timed runs alternate between this many bound copies of the runtime inputs."""
ARMED = 1
"""What a child's flag shows while it waits for the parent's."""
_F_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; Python 3.11 has no name for it


@dataclass(frozen=True)
class TensorSlot:
    """One tensor's place. ``strides`` are in elements, None where dense and row-major."""

    offset: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Length of the span."""
        return span(self.shape, self.strides)

    @property
    def nbytes(self) -> int:
        return self.elements * numpy_dtype(self.dtype).itemsize

    def flat(self, memory: Any) -> np.ndarray:
        """The span in ``memory`` as a flat array (a view)."""
        return np.frombuffer(memory, numpy_dtype(self.dtype), self.elements, self.offset)

    def view(self, flat: np.ndarray) -> np.ndarray:
        """The tensor over a span."""
        if self.strides is None:
            return flat.reshape(self.shape)
        strides = tuple(stride * flat.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(flat, self.shape, strides, subok=False)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> TensorSlot:
        strides = document["strides"]
        return cls(
            offset=document["offset"],
            dtype=document["dtype"],
            shape=tuple(document["shape"]),
            strides=None if strides is None else tuple(strides),
        )


def span(shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """Elements between the first and the last that a tensor touches, both included."""
    count = 1
    for extent in shape:
        count *= extent
    if strides is None or count == 0:
        return count
    return 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))


class Planner:
    """Hands out aligned places one after another."""

    def __init__(self) -> None:
        self.nbytes = 0

    def place(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None) -> TensorSlot:
        slot = TensorSlot(self.nbytes, dtype, tuple(shape), None if strides is None else tuple(strides))
        self.nbytes += -(-slot.nbytes // ALIGNMENT) * ALIGNMENT
        return slot

    def flag(self) -> int:
        """The offset of a number of its own cache line (:func:`flag_at`)."""
        offset = self.nbytes
        self.nbytes += ALIGNMENT
        return offset


def flag_at(memory: Any, offset: int) -> memoryview:
    """One number in a memory file, by which two processes tell each other the moment."""
    return memoryview(memory)[offset : offset + 8].cast("Q")


class SharedMemory:
    """A sealed memory file: it cannot be shrunk under us, nor written by others where ``ours_only``."""

    def __init__(self, name: str, nbytes: int, *, ours_only: bool) -> None:
        self.nbytes = max(nbytes, 1)
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.nbytes)
        self.map = mmap.mmap(self.fd, self.nbytes)
        seals = (
            fcntl.F_SEAL_SHRINK
            | fcntl.F_SEAL_GROW
            | (_F_SEAL_FUTURE_WRITE if ours_only else 0)
            | fcntl.F_SEAL_SEAL
        )
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def close(self) -> None:
        os.close(self.fd)
        try:
            self.map.close()
        except BufferError:
            return  # arrays still look at it; the mapping goes with them


def aligned_empty(elements: int, dtype: np.dtype[Any]) -> np.ndarray:
    """A flat private array, aligned as PyTorch's allocator aligns (64 bytes)."""
    raw = np.empty(elements * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + elements * dtype.itemsize].view(dtype)
