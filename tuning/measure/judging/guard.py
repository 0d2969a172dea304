"""Traps for native code, set in the child itself: what a C kernel may not touch, it finds out here.

Only for kind ``c-abi``: the libraries behind recipes keep their own rules. Nothing here runs while calls are
timed.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from typing import Any

import numpy as np

_M_PERTURB = -6
_PERTURBED = 0x80
"""glibc fills what malloc gives with its complement, 0x7F: 3.4e38 as float32, so that sums of it show."""
_PATTERN = 0xA5
_EXCEPTION_FLAGS = 0x3F


def perturb_heap(on: bool) -> None:
    """Let malloc give memory full of large numbers, or as it is. What reads it before writing it shows."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, _PERTURBED if on else 0)


def float_state() -> bytes:
    """The processor's rounding, flushing and trapping, without the flags that any operation raises."""
    state = (ctypes.c_uint8 * 64)()
    if ctypes.CDLL("libm.so.6").fegetenv(state) != 0:
        return b""
    if platform.machine() == "x86_64":
        control, mxcsr = bytes(state[0:2]), int.from_bytes(bytes(state[28:32]), "little")
        return control + (mxcsr & ~_EXCEPTION_FLAGS).to_bytes(4, "little")
    return bytes(state[0:4])


class Fence:
    """The bytes around an array that belong to its allocation but to nobody else (16 at least behind it)."""

    def __init__(self, array: np.ndarray) -> None:
        root: Any = array
        while getattr(root, "base", None) is not None:
            root = root.base
        self._parts: list[np.ndarray] = []
        if isinstance(root, np.ndarray) and root.dtype == np.uint8 and array.size:
            start = array.ctypes.data - root.ctypes.data
            reach = sum(
                (extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)
            )
            self._parts = [root[:start], root[start + reach + array.itemsize :]]
        for part in self._parts:
            part[...] = _PATTERN

    def intact(self) -> bool:
        return all(bool((part == _PATTERN).all()) for part in self._parts)


class Edge:
    """Memory for one array that ends where nothing may be read, and is aligned to ``alignment`` bytes and to
    no more: it shows who reads beyond an input, and who needs more alignment than was said."""

    def __init__(self, elements: int, dtype: np.dtype[Any], alignment: int) -> None:
        nbytes = elements * dtype.itemsize
        pages = -(-(nbytes + 2 * alignment) // mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        whole = np.frombuffer(self._memory, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        fence = ctypes.c_void_p(whole.ctypes.data + pages * mmap.PAGESIZE)
        libc.mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), 0)
        start = (pages * mmap.PAGESIZE - nbytes) // alignment * alignment
        if start % (2 * alignment) == 0 and start >= alignment:
            start -= alignment
        self.flat = whole[start : start + nbytes].view(dtype)
